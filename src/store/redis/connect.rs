//! Connections to Redis: a few, shared by all calls, replaced as soon as they are in doubt.
//!
//! A call takes a clone of a pooled connection and gives the connection back at once, so many
//! calls share one and their commands travel together. The client library never gives up on a
//! connection that only times out, and the pool never looks at one it holds; so whoever sees a
//! connection fail marks it here, and it is replaced the next time it is taken out.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bb8::{ManageConnection, Pool, QueueStrategy, RunError};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError,
    ServerErrorKind, Value,
};
use tokio::sync::Notify;

use crate::settings::{RedisUrl, StoreSettings};
use crate::store::StoreError;

/// Commands that may wait to be written to one connection.
const PIPELINE_BUFFER: usize = 4_096;
/// Bytes gathered before a write to the socket.
const WRITE_BUFFER: usize = 64 * 1_024;
const SHORTEST_BACKOFF: Duration = Duration::from_millis(10);
/// Short enough for a store that came back to be used within a second.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);

/// What `url` says, and how to connect.
pub(super) fn connection_info(url: &RedisUrl) -> Result<ConnectionInfo, RedisError> {
    let info = url.expose().into_connection_info()?;
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// The pool, and what is known of why it may be empty.
#[derive(Debug)]
pub(super) struct Connections {
    pool: Pool<Connector>,
    health: Arc<Health>,
}

impl Connections {
    /// Starts to connect in the background, on the runtime that this is called in.
    pub(super) fn open(url: &RedisUrl, settings: &StoreSettings) -> Result<Self, RedisError> {
        let info = connection_info(url)?;
        if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            install_crypto_provider();
        }
        let size = u32::try_from(settings.connections).unwrap_or(u32::MAX).max(1);
        let health = Arc::new(Health { free_attempts: size, ..Health::default() });
        let connector = Connector {
            client: Client::open(info)?,
            config: AsyncConnectionConfig::new()
                .set_connection_timeout(Some(settings.connect_timeout))
                // The whole decision has one timeout; a second timer per command only costs.
                .set_response_timeout(None)
                .set_pipeline_buffer_size(PIPELINE_BUFFER)
                .set_write_backpressure_boundary(WRITE_BUFFER),
            health: Arc::clone(&health),
        };
        let pool = Pool::builder()
            .max_size(size)
            .min_idle(size)
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .queue_strategy(QueueStrategy::Fifo)
            .retry_connection(false)
            .connection_timeout(settings.timeout.max(SHORTEST_BACKOFF))
            .build_unchecked(connector);
        Ok(Self { pool, health })
    }

    /// A connection that is not known to be broken. Fails at once, with the cause, where there is
    /// none and the last attempt to connect failed.
    pub(super) async fn checkout(&self) -> Result<Connection, StoreError> {
        loop {
            let failed = self.health.failed.notified();
            if let Some(cause) = self.failure()
                && self.pool.state().connections == 0
            {
                return Err(StoreError::Connect(cause));
            }
            let pooled = tokio::select! {
                biased;
                pooled = self.pool.get() => pooled,
                () = failed => continue,
            };
            match pooled {
                Ok(pooled) if self.health.is_broken(&pooled) => drop(pooled),
                Ok(pooled) => return Ok(pooled.clone()),
                Err(RunError::User(cause)) => return Err(StoreError::Connect(Arc::new(cause))),
                Err(RunError::TimedOut) => {}
            }
        }
    }

    /// Why there may be no connection.
    pub(super) fn failure(&self) -> Option<Arc<RedisError>> {
        if self.health.is_failing.load(Relaxed) { self.health.cause.lock().clone() } else { None }
    }

    /// Notes that `connection` answered.
    pub(super) fn succeeded(&self) {
        if self.health.attempts.load(Relaxed) != 0 {
            self.health.attempts.store(0, Relaxed);
        }
    }

    /// Notes an error on `connection`: drops it, and all others to the same server, if the error
    /// is one of the server or of the way to it.
    pub(super) fn failed(&self, connection: &Connection, error: &Arc<RedisError>) {
        let is_servers = match error.kind() {
            ErrorKind::Io | ErrorKind::Parse | ErrorKind::AuthenticationFailed => true,
            ErrorKind::Server(kind) => matches!(
                kind,
                ServerErrorKind::ReadOnly
                    | ServerErrorKind::BusyLoading
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::ClusterDown
            ),
            _ => error.code() == Some("NOAUTH"),
        };
        if is_servers && !self.health.is_broken(connection) {
            self.health.fail(Arc::clone(error));
            self.health.generation.fetch_add(1, Relaxed);
        }
    }

    /// Notes that `connection` let a call time out.
    pub(super) fn timed_out(connection: &Connection) {
        connection.is_doubtful.store(true, Relaxed);
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.health.is_closed.store(true, Relaxed);
        self.health.closed.notify_waiters();
    }
}

/// A share of a pooled connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    multiplexed: MultiplexedConnection,
    generation: u32,
    is_doubtful: Arc<AtomicBool>,
}

impl Connection {
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        self.multiplexed.send_packed_command(command).await
    }
}

#[derive(Debug, Default)]
struct Health {
    /// Connections made before the last one-for-all failure are of an older generation.
    generation: AtomicU32,
    is_failing: AtomicBool,
    /// Of the last failure; only looked at while failing.
    cause: Mutex<Option<Arc<RedisError>>>,
    failed: Notify,
    /// Attempts to connect since a command was last answered.
    attempts: AtomicU32,
    /// How many of them are made without a pause.
    free_attempts: u32,
    is_closed: AtomicBool,
    closed: Notify,
}

impl Health {
    fn is_broken(&self, connection: &Connection) -> bool {
        connection.is_doubtful.load(Relaxed)
            || connection.generation != self.generation.load(Relaxed)
    }

    fn fail(&self, cause: Arc<RedisError>) {
        *self.cause.lock() = Some(cause);
        self.is_failing.store(true, Relaxed);
        self.failed.notify_waiters();
    }

    /// Waits longer after each attempt, and not the same for all, so that a server that comes
    /// back is not met by everyone at once.
    async fn pause(&self) {
        let attempt = self.attempts.fetch_add(1, Relaxed);
        let doublings = attempt.saturating_sub(self.free_attempts);
        if doublings == 0 {
            return;
        }
        let longest = (SHORTEST_BACKOFF * (1 << doublings.min(6))).min(LONGEST_BACKOFF);
        let half = longest / 2;
        let jitter = random_up_to(u64::try_from(half.as_micros()).unwrap_or(0));
        tokio::select! {
            () = tokio::time::sleep(half + Duration::from_micros(jitter)) => {}
            () = self.closed.notified() => {}
        }
    }
}

/// Makes connections for the pool, and keeps trying until it has one.
#[derive(Debug)]
struct Connector {
    client: Client,
    config: AsyncConnectionConfig,
    health: Arc<Health>,
}

impl ManageConnection for Connector {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        loop {
            self.health.pause().await;
            if self.health.is_closed.load(Relaxed) {
                return Err(io::Error::from(io::ErrorKind::NotConnected).into());
            }
            let generation = self.health.generation.load(Relaxed);
            match self.client.get_multiplexed_async_connection_with_config(&self.config).await {
                Ok(multiplexed) => {
                    self.health.is_failing.store(false, Relaxed);
                    return Ok(Connection { multiplexed, generation, is_doubtful: Arc::default() });
                }
                Err(error) => self.health.fail(Arc::new(error)),
            }
        }
    }

    async fn is_valid(&self, _: &mut Connection) -> Result<(), RedisError> {
        Ok(())
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        self.health.is_broken(connection)
    }
}

/// TLS needs a process-wide choice of cryptography; one that is already made stands.
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread was faster.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// A number from 0 to `most`; for spreading things out, not for secrets.
pub(super) fn random_up_to(most: u64) -> u64 {
    match most {
        0 => 0,
        _ => RandomState::new().hash_one(most) % most.saturating_add(1),
    }
}
