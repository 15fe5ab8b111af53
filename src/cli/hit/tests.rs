//! `hit` against a server that answers as told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower_service::Service;

use super::*;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    hit: HitArgs,
}

fn parse(line: &str) -> Result<HitArgs, clap::Error> {
    Cli::try_parse_from(std::iter::once("hit").chain(line.split(' '))).map(|cli| cli.hit)
}

#[test]
fn a_plus_begins_another_descriptor() {
    let request = parse("shop user=a=b + path=/api verb").unwrap().request();
    assert_eq!(request.domain, "shop");
    let entries: Vec<Vec<_>> = request
        .descriptors
        .iter()
        .map(|descriptor| {
            descriptor.entries.iter().map(|entry| (&entry.key[..], &entry.value[..])).collect()
        })
        .collect();
    let (first, second) = (
        vec![(&b"user"[..], &b"a=b"[..])],
        vec![(&b"path"[..], &b"/api"[..]), (&b"verb"[..], &b""[..])],
    );
    assert_eq!(entries, [first, second]);
}

#[test]
fn hits_and_limit_go_to_every_descriptor() {
    let request = parse("shop a=1 + b=2 --hits 0 --limit 5/15minute").unwrap().request();
    for descriptor in &request.descriptors {
        assert_eq!(descriptor.hits_addend, Some(0));
        let limit = descriptor.limit.unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit, limit.unit_multiplier), (5, 2, Some(15)));
    }
    let plain = parse("shop a=1").unwrap().request();
    assert_eq!((plain.descriptors[0].hits_addend, plain.descriptors[0].limit), (None, None));
}

#[test]
fn mistakes_are_refused_with_an_example() {
    for (line, part) in [
        ("shop", "KEY=VALUE"),
        ("shop a=1 --limit 5", "5/minute"),
        ("shop a=1 --limit 5/fortnight", "5/minute"),
        ("shop a=1 --limit x/minute", "5/minute"),
        ("shop a=1 --every soon", "100ms"),
        ("shop a=1 --repeat 0", "1.."),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(part), "`{error}` lacks `{part}`");
    }
}

#[tokio::test]
async fn an_absent_server_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let args = parse(&format!("shop a=1 --addr {free}")).unwrap();
    let error = run(&args, &mut Vec::new()).await.unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert!(error.to_string().contains(&free.to_string()));

    let args = parse("shop a=1 --addr localhost").unwrap();
    assert_eq!(run(&args, &mut Vec::new()).await.unwrap_err().exit_code(), 2);
}

#[tokio::test]
async fn a_descriptor_needs_an_entry() {
    for line in ["shop +", "shop a=1 +", "shop a=1 + + b=2"] {
        let error = run(&parse(line).unwrap(), &mut Vec::new()).await.unwrap_err();
        assert!(matches!(error, HitError::EmptyDescriptor), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn a_run_with_a_denied_call_says_no() {
    assert_eq!(Tally { ok: 3, over_limit: 0 }.exit_code(), 0);
    assert_eq!(Tally { ok: 3, over_limit: 1 }.exit_code(), 1);
}

/// Takes as many calls as it holds, then denies; an empty domain is an error.
struct Allowance(AtomicU64);

#[tonic::async_trait]
impl RateLimitService for Allowance {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        if request.get_ref().domain.is_empty() {
            return Err(Status::invalid_argument("no domain"));
        }
        let taken =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let code = match taken {
            Ok(_) => rate_limit_response::Code::Ok,
            Err(_) => rate_limit_response::Code::OverLimit,
        };
        let status =
            rate_limit_response::DescriptorStatus { code: code.into(), ..Default::default() };
        Ok(tonic::Response::new(RateLimitResponse {
            overall_code: code.into(),
            statuses: vec![status],
            ..Default::default()
        }))
    }
}

/// Serves one connection.
async fn serve(allowance: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = RateLimitServiceServer::new(Allowance(AtomicU64::new(allowance)));
    tokio::spawn(async move {
        let stream = TokioIo::new(listener.accept().await.unwrap().0);
        let service = service_fn(move |request| server.clone().call(request));
        http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
    });
    addr
}

#[tokio::test]
async fn every_answer_is_shown_and_counted() {
    let addr = serve(2).await;
    let args = parse(&format!("shop a=1 --repeat 3 --every 1ms --addr {addr}")).unwrap();
    let mut out = Vec::new();
    let tally = run(&args, &mut out).await.unwrap();
    assert_eq!(tally, Tally { ok: 2, over_limit: 1 });
    let out = String::from_utf8(out).unwrap();
    let codes: Vec<_> =
        out.lines().map(|line| line.split_whitespace().nth(1).unwrap_or_default()).collect();
    assert_eq!(codes, ["code", "OK", "OK", "OVER_LIMIT", "calls:"]);
}

#[tokio::test]
async fn json_has_one_object_per_line_and_nothing_else() {
    let addr = serve(1).await;
    let args = parse(&format!("shop a=1 --repeat 2 --output json --addr {addr}")).unwrap();
    let mut out = Vec::new();
    run(&args, &mut out).await.unwrap();
    let codes: Vec<_> = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["code"].clone())
        .collect();
    assert_eq!(codes, ["OK", "OVER_LIMIT"]);
}

#[tokio::test]
async fn a_refusal_is_told_with_its_reason() {
    let addr = serve(1).await;
    let mut args = parse(&format!("shop a=1 --addr {addr}")).unwrap();
    args.domain.clear();
    let error = run(&args, &mut Vec::new()).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("no domain"), "{error}");
}
