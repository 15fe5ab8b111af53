//! One connection from accept to close.
//!
//! A connection ends when its peer leaves, when it is drained (calls in flight finish, the next
//! go elsewhere), when it is too old, or when its peer no longer answers.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::drain::Watch;
use crate::api::grpc::GrpcService;

/// How long a peer may be silent before it is asked for a sign of life, and how long that takes.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Calls at once on a connection, as many as Envoy allows itself; it opens further connections
/// beyond that.
const MAX_STREAMS: u32 = 1024;
/// Calls that a peer has given up on and that were not taken up yet. Envoy resets each call that
/// runs into its timeout, so a stall of the server must not look like an attack.
const MAX_PENDING_RESETS: usize = 1024;
const MAX_HEADER_BYTES: u32 = 64 * 1024;
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// Least time between two log lines about peers that speak something else.
const MISDIALED_PAUSE: Duration = Duration::from_secs(10);
/// How long a peer may take to say its first word.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// How long an HTTP/1 connection may take from one request's end to the head of the next; longer
/// than proxies keep idle connections (60 s and 90 s), so that it is they who close them.
const NEXT_HEAD: Duration = Duration::from_secs(120);

/// Serves gRPC on the connections of one worker.
pub(super) struct GrpcConnections {
    service: GrpcService,
    http2: http2::Builder<TokioExecutor>,
    max_age: Option<Duration>,
    watch: Watch,
    /// Connections so far, which spreads their ages.
    count: u32,
    misdialed: Arc<Misdialed>,
}

impl GrpcConnections {
    pub(super) fn new(service: GrpcService, max_age: Option<Duration>, watch: Watch) -> Self {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .auto_date_header(false);
        Self { service, http2, max_age, watch, count: 0, misdialed: Arc::default() }
    }

    /// Serves `stream` on the current runtime.
    pub(super) fn spawn(&mut self, stream: TcpStream) {
        self.count = self.count.wrapping_add(1);
        let max_age = self.max_age.map(|age| spread(age, self.count));
        let (http2, service) = (self.http2.clone(), self.service.clone());
        let misdialed = Arc::clone(&self.misdialed);
        let mut watch = self.watch.clone();
        tokio::spawn(async move {
            let spoke = tokio::select! {
                spoke = speaks_http2(&stream, &misdialed) => spoke,
                () = watch.begun() => false,
            };
            if !spoke {
                return;
            }
            let connection = pin!(http2.serve_connection(TokioIo::new(stream), service));
            run(connection, |connection| connection.graceful_shutdown(), max_age, watch).await;
        });
    }
}

/// Serves HTTP/1 and HTTP/2 with one router.
pub(super) struct HttpConnections {
    router: Router,
    http: auto::Builder<TokioExecutor>,
    watch: Watch,
}

impl HttpConnections {
    pub(super) fn new(router: Router, watch: Watch) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(NEXT_HEAD);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(MAX_HEADER_BYTES);
        Self { router, http, watch }
    }

    /// Serves `stream` on the current runtime.
    pub(super) fn spawn(&self, stream: TcpStream) {
        let (http, router) = (self.http.clone(), self.router.clone());
        let mut watch = self.watch.clone();
        tokio::spawn(async move {
            let mut first = [0];
            let spoke = tokio::select! {
                length = peek(&stream, &mut first) => length > 0,
                () = watch.begun() => false,
            };
            if !spoke {
                return;
            }
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                router.clone().call(request.map(axum::body::Body::new))
            });
            let connection = pin!(http.serve_connection(TokioIo::new(stream), service));
            run(connection, |connection| connection.graceful_shutdown(), None, watch).await;
        });
    }
}

/// Drives `connection` to its end; `end` asks it to take no more calls.
async fn run<C, E>(
    mut connection: Pin<&mut C>,
    end: impl Fn(Pin<&mut C>),
    max_age: Option<Duration>,
    mut watch: Watch,
) where
    C: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let too_old = async {
        match max_age {
            Some(age) => tokio::time::sleep(age).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = async { tokio::select! { () = too_old => {}, () = watch.begun() => {} } } => {
            end(connection.as_mut());
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection closed");
    }
}

/// Peers that take the gRPC port for another one: told in the log, but not once per connection.
#[derive(Default)]
struct Misdialed(Mutex<Option<Instant>>);

impl Misdialed {
    fn log(&self, speaks: &'static str) {
        let mut told = self.0.lock();
        if told.is_none_or(|told| told.elapsed() > MISDIALED_PAUSE) {
            *told = Some(Instant::now());
            tracing::warn!(
                speaks,
                "connection closed: the gRPC port takes HTTP/2 without TLS only"
            );
        }
    }
}

/// Whether the peer begins as HTTP/2 does.
async fn speaks_http2(stream: &TcpStream, misdialed: &Misdialed) -> bool {
    const TLS_HANDSHAKE: u8 = 0x16;
    let mut start = [0; 4];
    let length = peek(stream, &mut start).await;
    let speaks = match &start[..length] {
        [] => return false,
        start if HTTP2_PREFACE.starts_with(start) => return true,
        [TLS_HANDSHAKE, ..] => "TLS",
        [b'A'..=b'Z', ..] => "HTTP/1",
        _ => "something else",
    };
    misdialed.log(speaks);
    // What is left unread would turn the close into a reset.
    let mut unread = [0; 4_096];
    for _ in 0..16 {
        if !matches!(stream.try_read(&mut unread), Ok(1..)) {
            break;
        }
    }
    false
}

/// Looks at the first bytes that the peer sends and leaves them in place; 0 if it sends none in
/// time.
async fn peek(stream: &TcpStream, start: &mut [u8]) -> usize {
    match tokio::time::timeout(FIRST_BYTE, stream.peek(start)).await {
        Ok(Ok(length)) => length,
        _ => 0,
    }
}

/// `age` within a tenth either way, so that connections made together do not all end together.
fn spread(age: Duration, count: u32) -> Duration {
    /// 2³² divided by the golden ratio: multiples of it fill the range evenly.
    const STEP: u32 = 0x9e37_79b9;
    let share = f64::from(count.wrapping_mul(STEP)) / f64::from(u32::MAX);
    age.mul_f64(0.9 + 0.2 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_a_tenth_at_most() {
        let age = Duration::from_secs(1_000);
        let ages: Vec<_> = (0..50).map(|count| spread(age, count)).collect();
        let (least, most) = (ages.iter().min().unwrap(), ages.iter().max().unwrap());
        assert!(*least >= Duration::from_secs(900) && *most <= Duration::from_secs(1_100));
        assert!(*most - *least > Duration::from_secs(150), "they are spread out");
    }
}
