//! Binds the listeners, runs them, and drains them on request.
//!
//! gRPC connections are dealt to worker threads with a runtime each; everything about a
//! connection, its limiter's store connections included, stays on its thread. HTTP runs on the
//! caller's runtime.
//!
//! Invariants:
//! - All long-lived tasks start here or below.
//! - `run` returns within the drain deadline and a second, whatever clients do.

mod app;
mod connection;
mod drain;
mod health;
mod listener;
mod reload;
mod workers;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

pub use app::{App, StartError, run};
pub use drain::{Stop, StopHandle};
pub use health::Health;
pub use listener::{BindError, ListenerName};

use crate::api::admin::{self, RulesText};
use crate::api::decide::Decider;
use crate::api::http::{self, Ready};
use crate::limiter::Limiter;
use crate::settings::{Caps, Settings};
use crate::telemetry::Metrics;
use connection::HttpConnections;
use drain::Drain;
use workers::Workers;

/// Longest wait between reporting NOT_SERVING and sending clients away, so that balancers stop
/// sending new calls first; at most a tenth of the drain deadline.
const NOTICE: Duration = Duration::from_secs(1);
/// How long worker threads and HTTP connections may take to end after gRPC has, even where that
/// took all the time there was.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// Makes the limiter of a worker, on the worker's thread and inside its runtime. Called with 0
/// up to the number of workers; the last one is that of the HTTP port.
pub type LimiterFactory = Arc<dyn Fn(usize) -> Limiter + Send + Sync>;

/// What the server serves.
pub struct Parts {
    pub limiter: LimiterFactory,
    pub metrics: Arc<Metrics>,
    pub rules: RulesText,
    pub health: Health,
}

/// Where the server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
    pub prometheus: Option<SocketAddr>,
}

/// Why a server that was bound does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot start a worker")]
    Worker(#[source] std::io::Error),
    #[error("worker {0} failed while it started")]
    WorkerLost(usize),
    #[error("cannot use the {0} listener")]
    Listener(ListenerName, #[source] std::io::Error),
    #[error("cannot serve reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A server that listens and does not yet answer.
pub struct Server {
    grpc: TcpListener,
    http: TcpListener,
    admin: TcpListener,
    prometheus: Option<TcpListener>,
    addresses: Addresses,
    workers: usize,
    max_connection_age: Option<Duration>,
    prometheus_path: String,
    caps: Arc<Caps>,
    drain_timeout: Duration,
    parts: Parts,
}

impl Server {
    /// Binds all listeners; port 0 picks a free one.
    ///
    /// # Errors
    ///
    /// An address is taken, or not one of this machine's.
    pub fn bind(settings: &Settings, parts: Parts) -> Result<Self, BindError> {
        let (grpc, grpc_addr) = listener::bind(ListenerName::Grpc, settings.grpc.addr)?;
        let (http, http_addr) = listener::bind(ListenerName::Http, settings.http.addr)?;
        let (admin, admin_addr) = listener::bind(ListenerName::Admin, settings.admin.addr)?;
        let prometheus = settings
            .admin
            .prometheus_addr
            .map(|addr| listener::bind(ListenerName::Prometheus, addr))
            .transpose()?;
        let (prometheus, prometheus_addr) = prometheus.unzip();
        Ok(Self {
            grpc,
            http,
            admin,
            prometheus,
            addresses: Addresses {
                grpc: grpc_addr,
                http: http_addr,
                admin: admin_addr,
                prometheus: prometheus_addr,
            },
            workers: settings.grpc.workers.max(1),
            max_connection_age: settings.grpc.max_connection_age,
            prometheus_path: settings.admin.prometheus_path.clone(),
            caps: Arc::new(settings.caps.clone()),
            drain_timeout: settings.shutdown.drain_timeout,
            parts,
        })
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Answers calls until `stop` asks to end: reports NOT_SERVING, then sends clients away and
    /// waits for the calls in flight. When `stop` asks again, it returns at once.
    ///
    /// # Errors
    ///
    /// The server did not start.
    pub async fn run(self, mut stop: Stop) -> Result<(), RunError> {
        let (grpc_drain, grpc_watch) = Drain::new();
        let (http_drain, http_watch) = Drain::new();

        let decider = {
            let (limiter, metrics) =
                (Arc::clone(&self.parts.limiter), Arc::clone(&self.parts.metrics));
            let caps = Arc::clone(&self.caps);
            move |index| {
                Decider::new(limiter.as_ref()(index), Arc::clone(&metrics), Arc::clone(&caps))
            }
        };
        let health = &self.parts.health;
        let (workers, mut dealer) = Workers::start(
            self.workers,
            decider.clone(),
            health,
            self.max_connection_age,
            &grpc_watch,
        )
        .await?;
        let deal = move |stream| dealer.deal(stream);
        tokio::spawn(listener::accept(ListenerName::Grpc, self.grpc, deal, grpc_watch)?);

        let ready: Ready = {
            let health = health.clone();
            Arc::new(move || health.is_serving())
        };
        let metrics = self.parts.metrics;
        let mut routers = vec![
            (ListenerName::Http, self.http, http::router(decider(self.workers), ready)),
            (
                ListenerName::Admin,
                self.admin,
                admin::router(Arc::clone(&metrics), self.parts.rules),
            ),
        ];
        if let Some(listener) = self.prometheus {
            let router = admin::metrics_router(metrics, &self.prometheus_path);
            routers.push((ListenerName::Prometheus, listener, router));
        }
        for (name, listener, router) in routers {
            serve_http(name, listener, router, &http_watch)?;
        }
        drop(http_watch);

        stop.asked().await;
        tracing::info!("stopping");
        health.stop();
        let drained = drain(grpc_drain, http_drain, workers, self.drain_timeout);
        tokio::select! {
            () = drained => tracing::info!("stopped"),
            () = stop.asked() => tracing::warn!("stopped at once, calls in flight are cut off"),
        }
        Ok(())
    }
}

fn serve_http(
    name: ListenerName,
    listener: TcpListener,
    router: Router,
    watch: &drain::Watch,
) -> Result<(), RunError> {
    let connections = HttpConnections::new(router, watch.clone());
    let serve = move |stream| connections.spawn(stream);
    tokio::spawn(listener::accept(name, listener, serve, watch.clone())?);
    Ok(())
}

/// Ends the gRPC port first, while probes on HTTP still get answers.
async fn drain(grpc: Drain, http: Drain, workers: Workers, limit: Duration) {
    let deadline = Instant::now() + limit;
    tokio::time::sleep(NOTICE.min(limit / 10)).await;
    if timeout_at(deadline, grpc.finish()).await.is_err() {
        tracing::warn!("gRPC connections are still open at the drain deadline");
    }
    let mut ended = workers.end();
    let rest = async { tokio::join!(wait_for_all(&mut ended), http.finish()) };
    if timeout_at(deadline.max(Instant::now() + LAST_STEPS), rest).await.is_err() {
        tracing::warn!("a worker or an HTTP connection is still busy at the drain deadline");
    }
}

/// Returns when the last sender is gone.
async fn wait_for_all(senders: &mut mpsc::Receiver<std::convert::Infallible>) {
    while senders.recv().await.is_some() {}
}
