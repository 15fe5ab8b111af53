//! The generator against real gRPC servers in this process, and against peers that misbehave.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use clap::Parser;
use serde_json::Value;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::*;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

type Answer =
    dyn Fn(u64, RateLimitRequest) -> Result<Response<RateLimitResponse>, Status> + Send + Sync;

/// Answers the n-th call, from 1 on.
struct Service {
    calls: AtomicU64,
    answer: Box<Answer>,
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        (self.answer)(self.calls.fetch_add(1, SeqCst) + 1, request.into_inner())
    }
}

/// A server that ends with this value, or when `stop` is emptied.
struct Server {
    addr: SocketAddr,
    stop: Arc<Mutex<Option<oneshot::Sender<std::convert::Infallible>>>>,
}

impl Server {
    fn start(
        answer: impl Fn(u64, RateLimitRequest) -> Result<Response<RateLimitResponse>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, (sender, end)) = (listener.local_addr().unwrap(), oneshot::channel());
        let service = Service { calls: AtomicU64::new(0), answer: Box::new(answer) };
        thread::spawn(move || bare::serve(listener, service, end));
        Self { addr, stop: Arc::new(Mutex::new(Some(sender))) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.lock().unwrap().take();
    }
}

fn code(code: i32) -> Response<RateLimitResponse> {
    Response::new(RateLimitResponse { overall_code: code, ..Default::default() })
}

/// Runs the bench with `line` and returns its exit code and its JSON.
fn bench(addr: SocketAddr, line: &str) -> Result<(u8, Value), BenchError> {
    bench_against(addr, line, None)
}

fn bench_against(
    addr: SocketAddr,
    line: &str,
    bare: Option<SocketAddr>,
) -> Result<(u8, Value), BenchError> {
    let line = format!("bench --addr {addr} --output json {line}");
    let args = Cli::try_parse_from(line.split_whitespace()).unwrap().bench;
    let (load, mut out) = (args.load()?, Vec::new());
    let bare = bare.map(|addr| (addr, Process::this()));
    let exit_code = measure(&args, &load, bare, &AtomicBool::new(false), &mut out)?;
    Ok((exit_code, serde_json::from_slice(&out).unwrap()))
}

#[track_caller]
fn check_calls(report: &Value, ok: u64, over_limit: u64, errors: u64) {
    let calls = &report["calls"];
    let got = ["ok", "over_limit", "errors"].map(|name| calls[name].as_u64().unwrap());
    assert_eq!(got, [ok, over_limit, errors], "{report:#}");
    assert_eq!((&calls["unanswered"], &calls["unsent"]), (&0.into(), &0.into()));
}

#[test]
fn calls_arrive_as_described_and_are_all_counted() {
    let server = Server::start(|_, request| {
        let is_right = request.domain == "shop"
            && request.hits_addend == 2
            && request.descriptors.len() == 2
            && request.descriptors.iter().enumerate().all(|(index, descriptor)| {
                let [entry] = &descriptor.entries[..] else { return false };
                entry.key == format!("path{index}") && entry.value.starts_with(b"v0000000")
            });
        Ok(code(if is_right { 1 } else { 0 }))
    });
    let line = "--requests 501 --domain shop --descriptors 2 --entry path --value v --keys 99 \
                --hits 2 --connections 3 --in-flight 32";
    let (exit_code, report) = bench(server.addr, line).unwrap();
    check_calls(&report, 501, 0, 0);
    assert_eq!((exit_code, &report["ending"]), (0, &"complete".into()));
    assert_eq!(report["addr"][0], server.addr.to_string());
    let process = &report["cpu"]["processes"][0];
    assert_eq!(process["pid"], std::process::id(), "found by its port");
    let latency = |name: &str| report["latency_us"][name].as_f64().unwrap();
    assert!(0.0 < latency("p50") && latency("p50") <= latency("max"));
}

#[test]
fn the_number_admitted_is_judged() {
    for (expected, exit_code) in [(100, 0), (99, 1), (101, 1)] {
        let server = Server::start(|call, _| Ok(code(if call <= 100 { 1 } else { 2 })));
        let line = format!("--requests 300 --dist hot --expect-admitted {expected}");
        let (got, report) = bench(server.addr, &line).unwrap();
        check_calls(&report, 100, 200, 0);
        assert_eq!(got, exit_code);
        assert_eq!(report["admitted"], serde_json::json!({ "expected": expected, "got": 100 }));
    }
}

#[test]
fn unique_keys_are_never_asked_for_twice() {
    let seen = Mutex::new(std::collections::HashSet::new());
    let server = Server::start(move |_, mut request| {
        let value = request.descriptors.remove(0).entries.remove(0).value;
        Ok(code(if seen.lock().unwrap().insert(value) { 1 } else { 2 }))
    });
    let (_, report) = bench(server.addr, "--requests 2000 --dist unique").unwrap();
    check_calls(&report, 2_000, 0, 0);
}

#[test]
fn errors_are_counted_and_the_first_is_told() {
    let text = "no store: 100% gone, “sorry”\n";
    let server = Server::start(move |call, _| {
        if call.is_multiple_of(2) { Err(Status::unavailable(text)) } else { Ok(code(1)) }
    });
    let (exit_code, report) = bench(server.addr, "--requests 200").unwrap();
    check_calls(&report, 100, 0, 100);
    assert_eq!(exit_code, 1);
    assert_eq!(report["calls"]["first_error"], format!("Unavailable: {text}"));
}

#[test]
fn answers_are_read_whatever_stands_around_them() {
    // Headers that come and go in the table, of any bytes; blocks and messages of several frames.
    let server = Server::start(|call, _| {
        let mut response = code(if call.is_multiple_of(3) { 2 } else { 1 });
        let bytes: Vec<u8> = (0x20..0x7f)
            .chain(0x80..=0xff)
            .cycle()
            .skip(call as usize * 7)
            .take(call as usize * 13 % 900)
            .collect();
        let name = format!("x-name-{}", call % 17);
        let value = http::HeaderValue::from_bytes(&bytes).unwrap();
        let headers = response.metadata_mut();
        let mut map = std::mem::take(headers).into_headers();
        map.insert(http::HeaderName::try_from(name).unwrap(), value);
        if call.is_multiple_of(50) {
            map.insert("x-long", http::HeaderValue::from_bytes(&vec![b'~'; 12_000]).unwrap());
            map.insert("x-longer", http::HeaderValue::from_bytes(&vec![b'<'; 12_000]).unwrap());
            response.get_mut().raw_body = vec![8; 200_000].into();
        }
        *response.metadata_mut() = tonic::metadata::MetadataMap::from_headers(map);
        Ok(response)
    });
    let (exit_code, report) = bench(server.addr, "--requests 900 --connections 2").unwrap();
    check_calls(&report, 600, 300, 0);
    assert_eq!(exit_code, 0);
}

#[test]
fn an_open_loop_sends_as_many_calls_as_are_due() {
    let server = Server::start(|_, _| Ok(code(1)));
    for line in ["--rate 3000", "--rate 3000 --paced"] {
        let line = format!("{line} --warmup 50ms --duration 400ms");
        let (exit_code, report) = bench(server.addr, &line).unwrap();
        let calls = &report["calls"];
        let count = |name: &str| calls[name].as_u64().unwrap();
        let due = (count("answered") + count("unanswered") + count("unsent")) as f64;
        let want = 3_000.0 * report["seconds"].as_f64().unwrap();
        assert!((due - want).abs() < 7.0 * want.sqrt(), "{due} calls instead of {want}");
        assert!(exit_code == 0 || count("unanswered") > 0);
    }
}

#[test]
fn a_server_that_dies_leaves_what_was_measured() {
    let stop = Arc::new(Mutex::new(None));
    let inside = Arc::clone(&stop);
    let server = Server::start(move |call, _| {
        if call == 500 {
            inside.lock().unwrap().take();
        }
        Ok(code(1))
    });
    *stop.lock().unwrap() = server.stop.lock().unwrap().take();
    let (exit_code, report) = bench(server.addr, "--warmup 0s --duration 30s").unwrap();
    assert_eq!((exit_code, &report["ending"]), (3, &"lost".into()));
    assert!(report["calls"]["ok"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["ending_detail"].as_str().unwrap().contains("closed"), "{report:#}");
}

/// A peer that says `words` once it is spoken to, and then listens.
fn peer(words: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut heard = [0; 4096];
        socket.write_all(words).unwrap();
        while matches!(socket.read(&mut heard), Ok(1..)) {}
    });
    addr
}

#[test]
fn a_server_that_sends_its_clients_away_is_told() {
    // SETTINGS, then GOAWAY with ENHANCE_YOUR_CALM.
    let addr = peer(b"\0\0\0\x04\0\0\0\0\0\0\0\x0c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0bcalm");
    let (exit_code, report) = bench(addr, "--connections 1 --requests 10 --pid me=1").unwrap();
    assert_eq!(exit_code, 3);
    let detail = report["ending_detail"].as_str().unwrap();
    assert!(detail.contains("GOAWAY, HTTP/2 error 11, `calm`"), "{detail}");
}

#[test]
fn a_server_that_never_answers_does_not_hold_the_run() {
    let addr = peer(b"\0\0\0\x04\0\0\0\0\0");
    let line = "--connections 1 --requests 10 --duration 100ms";
    let (exit_code, report) = bench(addr, line).unwrap();
    assert_eq!((exit_code, &report["ending"]), (1, &"out_of_time".into()));
    assert_eq!(report["calls"]["unanswered"], 10);
    assert_eq!(report["calls"]["answered"], 0);
}

#[test]
fn frames_that_are_no_http2_end_the_run() {
    for (words, part) in [
        (&b"\0\0\0\x04\0\0\0\0\0\x01\0\0\0\0\0\0\0\0"[..], "longer than allowed"),
        (b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x80", "malformed header block"),
        (b"\0\0\0\x04\0\0\0\0\0\0\0\x01\0\x08\0\0\0\x01\x05", "padding"),
    ] {
        let (exit_code, report) = bench(peer(words), "--connections 1 --requests 1").unwrap();
        assert_eq!(exit_code, 3);
        let detail = report["ending_detail"].as_str().unwrap();
        assert!(detail.contains(part), "{detail}");
    }
}

#[test]
fn an_interrupt_ends_a_run_with_its_result() {
    let server = Server::start(|_, _| Ok(code(1)));
    let line = format!("bench --addr {} --output json --duration 1h", server.addr);
    let args = Cli::try_parse_from(line.split_whitespace()).unwrap().bench;
    let mut out = Vec::new();
    let load = args.load().unwrap();
    let exit_code = measure(&args, &load, None, &AtomicBool::new(true), &mut out).unwrap();
    let report: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((exit_code, &report["ending"]), (0, &"interrupted".into()));
}

#[test]
fn two_servers_are_compared_and_drawn() {
    let (server, bare) = (Server::start(|_, _| Ok(code(1))), Server::start(|_, _| Ok(code(1))));
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("chart.svg");
    let line = format!("--compare --repeats 2 --requests 400 --chart {}", chart.display());
    let (exit_code, report) = bench_against(server.addr, &line, Some(bare.addr)).unwrap();
    check_calls(&report, 800, 0, 0);
    let compare = &report["compare"];
    assert_eq!((exit_code, &compare["repeats"]), (0, &2.into()));
    assert!(compare["throughput_ratio"].as_f64().unwrap() > 0.0, "{report:#}");
    let svg = std::fs::read_to_string(chart).unwrap();
    assert_eq!(svg.matches("<polyline").count(), 4);
}

#[test]
fn nothing_to_measure_is_an_error_with_its_code() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (line, bare, exit_code, part) in [
        ("", None, 3, "nothing listens"),
        ("--rate 0", None, 2, "--rate"),
        ("--compare", Some(free), 2, "--pid"),
        ("--redis redis://127.0.0.1:1", None, 3, "--redis"),
        ("--redis nonsense", None, 2, "--redis"),
    ] {
        let error = bench_against(free, line, bare).unwrap_err();
        assert!(error.to_string().contains(part), "`{line}`: {error}");
        assert_eq!(error.exit_code(), exit_code, "`{line}`");
    }
}
