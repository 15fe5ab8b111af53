//! The empty server that others are compared with: what gRPC itself costs.
//!
//! Answers OK to every call without looking at it, on the runtime that a gRPC server has by
//! default, so its cost is what a decision comes on top of.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::thread;

use clap::Args;
use tokio::runtime;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::cli::{EXIT_UNAVAILABLE, fail};
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// Name of the subcommand.
pub const NAME: &str = "bench-bare";
const LEAST_WORKERS: usize = 2;

/// Serve an empty rate limit service, for `bench --compare`
///
/// Prints the address it listens on and ends when its input does.
#[derive(Debug, Clone, Args)]
pub struct BareArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    addr: SocketAddr,
}

/// Runs the command between standard input and output.
pub(in crate::cli) fn run_alone(args: &BareArgs) -> ExitCode {
    match run(args, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(EXIT_UNAVAILABLE, &error),
    }
}

/// Serves until the standard input ends, so no parent leaves it behind.
///
/// # Errors
///
/// The address cannot be listened on, or serving failed.
fn run(args: &BareArgs, out: &mut impl Write) -> io::Result<()> {
    let listener = TcpListener::bind(args.addr)?;
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let (ended, end) = oneshot::channel();
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
        drop::<oneshot::Sender<Infallible>>(ended);
    });
    serve(listener, Empty, end)
}

/// Answers OK at once.
struct Empty;

#[tonic::async_trait]
impl RateLimitService for Empty {
    async fn should_rate_limit(
        &self,
        _request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(RateLimitResponse { overall_code: Code::Ok.into(), ..Default::default() }))
    }
}

/// Serves `service` on the default runtime until the sender of `end` is gone.
pub(super) fn serve(
    listener: TcpListener,
    service: impl RateLimitService,
    end: oneshot::Receiver<Infallible>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let workers = thread::available_parallelism().map_or(LEAST_WORKERS, usize::from);
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(workers.max(LEAST_WORKERS))
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?)
            .with_nodelay(Some(true));
        let server = Server::builder()
            .add_service(RateLimitServiceServer::new(service))
            .serve_with_incoming(incoming);
        tokio::select! {
            served = server => served.map_err(io::Error::other),
            _ = end => Ok(()),
        }
    });
    runtime.shutdown_background();
    served
}
