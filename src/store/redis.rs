//! Counters in Redis: a batch is one script call, decided by Redis in one step.
//!
//! Invariants:
//! - A script call is sent again only when the reply proves that it did not run.
//! - Checkout, connecting and the command share one timeout.
//! - A decision is not retried and not logged here.

mod connect;
mod deadline;
mod script;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use smallvec::smallvec;
use tokio::sync::Mutex;

use self::connect::{Connection, Connections, random_up_to};
use self::deadline::within;
use self::script::Request;
use super::{Slices, Store, StoreError, Taken, Unspent};
use crate::clock::Clock;
use crate::model::{Call, Check, MAX_WINDOW, Timestamp, Verdict};
use crate::settings::{RedisUrl, StoreSettings};

/// ms; as long as a counter may live.
const LONGEST_JITTER: u64 = MAX_WINDOW / 1_000;

/// Keeps counters in one Redis.
#[derive(Debug)]
pub struct RedisStore {
    connections: Connections,
    clock: Clock,
    timeout: Duration,
    /// ms.
    ttl_jitter: u64,
    /// Held while the script's text is sent, so that only one caller sends it.
    loading: Mutex<()>,
    /// How often the script's text was sent.
    loads: AtomicU64,
    commands: AtomicU64,
}

impl RedisStore {
    /// Starts to connect in the background; calls fail until that has worked, with the reason.
    ///
    /// Must be called in a Tokio runtime, on which the connections then live. With
    /// [`Clock::System`] the time is that of Redis, any other clock's is handed to it.
    ///
    /// # Errors
    ///
    /// `url` is none that the client library accepts.
    pub fn new(url: &RedisUrl, settings: &StoreSettings, clock: Clock) -> Result<Self, StoreError> {
        let connections = Connections::open(url, settings)
            .map_err(|error| StoreError::Connect(Arc::new(error)))?;
        Ok(Self {
            connections,
            clock,
            timeout: settings.timeout,
            ttl_jitter: u64::try_from(settings.ttl_jitter.as_millis())
                .map_or(LONGEST_JITTER, |jitter| jitter.min(LONGEST_JITTER)),
            loading: Mutex::new(()),
            loads: AtomicU64::new(0),
            commands: AtomicU64::new(0),
        })
    }

    /// Whether `url` is one that [`RedisStore::new`] accepts; connects to nothing.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub fn check_url(url: &RedisUrl) -> Result<(), StoreError> {
        connect::connection_info(url).map_err(|error| StoreError::Connect(Arc::new(error)))?;
        Ok(())
    }

    /// Script calls sent so far.
    pub fn commands(&self) -> u64 {
        self.commands.load(Relaxed)
    }

    /// `None` has Redis tell the time.
    fn now(&self) -> Option<Timestamp> {
        match &self.clock {
            Clock::System => None,
            clock @ Clock::Manual(_) => Some(clock.now()),
        }
    }

    async fn run_within(
        &self,
        request: &Request<'_>,
        limit: Duration,
    ) -> Result<Value, StoreError> {
        let mut used = None;
        let reply = within(limit.min(self.timeout), self.run(request, &mut used)).await;
        match (reply, used) {
            (Some(reply), _) => reply,
            (None, Some(connection)) => {
                // Less time than it should have says nothing about the connection.
                if limit >= self.timeout / 2 {
                    Connections::timed_out(&connection);
                }
                Err(StoreError::Timeout(self.timeout))
            }
            (None, None) => Err(match self.connections.failure() {
                Some(cause) => StoreError::Connect(cause),
                None => StoreError::Timeout(self.timeout),
            }),
        }
    }

    async fn run(
        &self,
        request: &Request<'_>,
        used: &mut Option<Connection>,
    ) -> Result<Value, StoreError> {
        let connection = used.insert(self.connections.checkout().await?);
        loop {
            let loads = self.loads.load(Relaxed);
            match self.send(connection, &request.evalsha()).await {
                Err(error) if is_noscript(&error) => {}
                reply => return reply.map_err(StoreError::Redis),
            }
            let loading = self.loading.lock().await;
            if self.loads.load(Relaxed) == loads {
                let reply = self.send(connection, &request.eval()).await;
                self.loads.fetch_add(1, Relaxed);
                drop(loading);
                return reply.map_err(StoreError::Redis);
            }
        }
    }

    async fn send(
        &self,
        connection: &mut Connection,
        command: &Cmd,
    ) -> Result<Value, Arc<RedisError>> {
        self.commands.fetch_add(1, Relaxed);
        match connection.send(command).await {
            // An error may be the reply to the script as well as the lack of one.
            Ok(Value::ServerError(error)) => Err(self.failed(connection, error.into())),
            Ok(reply) => {
                self.connections.succeeded();
                Ok(reply)
            }
            Err(error) => Err(self.failed(connection, error)),
        }
    }

    fn failed(&self, connection: &Connection, error: RedisError) -> Arc<RedisError> {
        let error = Arc::new(error);
        self.connections.failed(connection, &error);
        error
    }
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl Store for RedisStore {
    async fn decide(&self, batch: &[Call]) -> Result<Vec<Verdict>, StoreError> {
        self.decide_within(batch, self.timeout).await
    }

    async fn decide_within(
        &self,
        batch: &[Call],
        limit: Duration,
    ) -> Result<Vec<Verdict>, StoreError> {
        let request = Request::new(batch, self.now(), random_up_to(self.ttl_jitter));
        if request.is_empty() {
            return Ok(Vec::new());
        }
        request.decode(&self.run_within(&request, limit).await?)
    }
}

impl Slices for RedisStore {
    async fn take(&self, check: Check) -> Result<Taken, StoreError> {
        let batch = [Call { checks: smallvec![check] }];
        let request = Request::new(&batch, self.now(), random_up_to(self.ttl_jitter));
        request.decode_taken(&self.run_within(&request, self.timeout).await?)
    }

    async fn give_back(&self, unspent: &[Unspent]) -> Result<u64, StoreError> {
        if unspent.is_empty() {
            return Ok(0);
        }
        let request = Request::give_back(unspent, self.now());
        request.decode_given_back(&self.run_within(&request, self.timeout).await?)
    }
}
