//! The gRPC port as clients see it, good ones and bad ones.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tollgate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate::server::{Health, Parts, RunError, Server, Stop};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower_service::Service;

use crate::http::ask;
use crate::served::{
    Served, WORKERS, limiter_without_rules, serve, serve_with, settings, without_rules,
};

/// Nothing here waits this long unless it hangs.
const HANG: Duration = Duration::from_secs(20);
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// What an HTTP/2 client says first, with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn channel(served: &Served) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", served.addresses.grpc)).unwrap();
    endpoint.connect().await.unwrap()
}

fn descriptor(entries: usize, value: &'static [u8]) -> RateLimitDescriptor {
    let entry = Entry { key: "k".into(), value: value.into() };
    RateLimitDescriptor { entries: vec![entry; entries], ..Default::default() }
}

fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

async fn call(channel: &Channel, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let mut client = RateLimitServiceClient::new(channel.clone());
    client.should_rate_limit(request).await.map(tonic::Response::into_inner)
}

/// A call that reaches the limiter, which has no rules.
async fn assert_alive(channel: &Channel) {
    let status = call(channel, request("d", vec![descriptor(1, b"v")])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().contains("no rate limit rules"), "{status}");
}

#[tokio::test]
async fn bad_requests_are_refused_with_their_reason() {
    let served = serve();
    let channel = channel(&served).await;
    let limit = RateLimitOverride { requests_per_unit: 1, unit: 99, unit_multiplier: None };
    let odd = RateLimitDescriptor { limit: Some(limit), ..descriptor(1, b"v") };
    let mut long = descriptor(1, b"v");
    long.entries[0].key = vec![b'k'; 101].into();
    let ok = || descriptor(1, b"v");
    for (request, code, part) in [
        (request("", vec![ok()]), Code::Unknown, "domain"),
        (request("d", vec![]), Code::Unknown, "descriptor"),
        (
            request("d", vec![ok(); 10_000]),
            Code::ResourceExhausted,
            "10000 descriptors, at most 100",
        ),
        (
            request("d", vec![descriptor(11, b"v")]),
            Code::ResourceExhausted,
            "11 entries, at most 10",
        ),
        (request("d", vec![long]), Code::ResourceExhausted, "101 bytes, at most 100"),
        (
            request("d", vec![descriptor(1, &[b'v'; 1_001])]),
            Code::ResourceExhausted,
            "1001 bytes, at most 1000",
        ),
        (request("d", vec![odd]), Code::InvalidArgument, "unit number 99"),
    ] {
        let status = call(&channel, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(part), "`{}` lacks `{part}`", status.message());
    }
    assert_alive(&channel).await;
}

#[tokio::test]
async fn an_oversize_message_is_refused_and_the_connection_goes_on() {
    let served = serve();
    let channel = channel(&served).await;
    let large = request("d", vec![descriptor(1, &[b'v'; 1_000_001])]);
    let size = large.encoded_len();
    let status = call(&channel, large).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    for part in [size.to_string(), "1000000".to_owned()] {
        assert!(status.message().contains(&part), "`{}` lacks `{part}`", status.message());
    }
    assert_alive(&channel).await;
}

/// A request body that is sent in the pieces given.
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// Sends `bytes` as the body of a call, `size` at a time; the answer must be an error.
async fn call_bytes(channel: &Channel, encoding: &str, bytes: &[u8], size: usize) -> Status {
    let pieces = Pieces(bytes.chunks(size).map(Bytes::copy_from_slice).collect());
    let mut request = http::Request::post(SHOULD_RATE_LIMIT).body(pieces).unwrap();
    request.headers_mut().insert("grpc-encoding", encoding.parse().unwrap());
    let mut client = channel.clone();
    poll_fn(|context| client.poll_ready(context)).await.unwrap();
    let answer = client.call(request.map(tonic::body::Body::new)).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    Status::from_header_map(answer.headers()).unwrap()
}

#[tokio::test]
async fn messages_are_taken_however_they_are_cut_and_one_per_call() {
    let served = serve();
    let channel = channel(&served).await;
    let message = request("d", vec![descriptor(1, b"v")]).encode_to_vec();
    let framed = |compressed: u8, length: usize| {
        let head = u32::try_from(length).unwrap().to_be_bytes();
        [&[compressed], &head[..], &message].concat()
    };
    let whole = framed(0, message.len());
    let size = whole.len();
    for piece in [1, 4, 5, 6, size] {
        let status = call_bytes(&channel, "identity", &whole, piece).await;
        assert_eq!(status.code(), Code::Unknown, "{status}");
        assert!(status.message().contains("no rate limit rules"), "{status}");
    }
    let cases = [
        ("identity", whole.repeat(2), Code::Internal, "more than one message"),
        ("identity", whole[..size - 1].to_vec(), Code::Internal, "no whole message"),
        ("identity", Vec::new(), Code::Internal, "no whole message"),
        ("identity", framed(0, 1_000_001), Code::ResourceExhausted, "1000001 bytes"),
        ("identity", framed(1, message.len()), Code::Unimplemented, "send them with `identity`"),
        ("gzip", whole.clone(), Code::Unimplemented, "`gzip`"),
    ];
    for (encoding, bytes, code, part) in cases {
        let status = call_bytes(&channel, encoding, &bytes, 7).await;
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(part), "`{}` lacks `{part}`", status.message());
        let accepted = status.metadata().get("grpc-accept-encoding");
        let told = accepted.is_some_and(|encoding| encoding == "identity");
        assert_eq!(told, code == Code::Unimplemented, "{status}");
    }
    assert_alive(&channel).await;
}

/// Sends an `Entry` where the method takes something else.
async fn call_raw(channel: &Channel, path: &'static str, message: Entry) -> Status {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<Entry, RateLimitResponse>::default();
    let path = http::uri::PathAndQuery::from_static(path);
    client.unary(Request::new(message), path, codec).await.unwrap_err()
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_the_connection_goes_on() {
    let served = serve();
    let channel = channel(&served).await;
    // As a request, the key is the domain, which must be text.
    let not_text = Entry { key: b"\xff\xfe"[..].into(), value: "".into() };
    let status = call_raw(&channel, SHOULD_RATE_LIMIT, not_text).await;
    assert_eq!(status.code(), Code::Internal, "{status}");
    for path in
        ["/envoy.service.ratelimit.v3.RateLimitService/NoSuchMethod", "/no.Such/Method", "/"]
    {
        let status = call_raw(&channel, path, Entry::default()).await;
        assert_eq!(status.code(), Code::Unimplemented, "{path}: {status}");
    }
    assert_alive(&channel).await;
}

#[tokio::test]
async fn values_that_are_not_text_reach_the_limiter() {
    let served = serve();
    let channel = channel(&served).await;
    let status = call(&channel, request("d", vec![descriptor(1, b"caf\xe9")])).await.unwrap_err();
    assert!(status.message().contains("no rate limit rules"), "{status}");
}

#[tokio::test]
async fn other_protocols_are_closed_without_harm() {
    let served = serve();
    let mut noise = vec![0; 1 << 20];
    // Any bytes will do; these are the same each time.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for byte in &mut noise {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
    let http2_noise = [PREFACE, &noise].concat();
    let tls = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &noise[..500]].concat();
    let http1 = b"GET /healthcheck HTTP/1.1\r\nHost: tollgate\r\n\r\n";
    let post = b"POST /json HTTP/1.1\r\nHost: tollgate\r\nContent-Length: 2\r\n\r\n{}";
    for sent in [&noise[..], &http2_noise, &tls, http1, post] {
        let mut stream = TcpStream::connect(served.addresses.grpc).await.unwrap();
        let (mut read, mut write) = stream.split();
        let mut answer = Vec::new();
        let exchange = async { tokio::join!(write.write_all(sent), read.read_to_end(&mut answer)) };
        // Noise may meet a closed connection; what is short and known ends in order.
        let (_, end) = timeout(HANG, exchange).await.expect("the connection is closed");
        if sent.len() < 1_000 {
            assert_eq!(end.expect("no reset"), 0);
        }
    }
    assert_alive(&channel(&served).await).await;
}

#[tokio::test]
async fn health_follows_the_service() {
    let served = serve();
    let mut client = HealthClient::new(channel(&served).await);
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let mut watch = client.watch(ask("ratelimit")).await.unwrap().into_inner();
    let mut seen = async || watch.next().await.unwrap().unwrap().status();
    assert_eq!(seen().await, ServingStatus::NotServing);
    for (serving, want) in [(true, ServingStatus::Serving), (false, ServingStatus::NotServing)] {
        served.health.set_serving(serving);
        for service in ["", "ratelimit"] {
            let answer = client.check(ask(service)).await.unwrap().into_inner();
            assert_eq!(answer.status(), want);
        }
        assert_eq!(seen().await, want);
    }
    let status = client.check(ask("no.such.service")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

const SERVICES: [&str; 2] =
    ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"];

/// Asks reflection for its services and for the file of the descriptor message; the two versions
/// differ in their types only.
macro_rules! reflect {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

        let ask = |request| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(request),
        };
        let symbol = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor".to_owned();
        let requests = tokio_stream::iter([
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol(symbol)),
        ]);
        let mut client = ServerReflectionClient::new($channel);
        let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
        let mut next = async || answers.next().await.unwrap().unwrap().message_response.unwrap();
        let MessageResponse::ListServicesResponse(list) = next().await else { panic!("no list") };
        let MessageResponse::FileDescriptorResponse(files) = next().await else {
            panic!("no file")
        };
        let services: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        (services, files.file_descriptor_proto)
    }};
}

#[track_caller]
fn check_reflection((services, files): (Vec<String>, Vec<Vec<u8>>)) {
    for service in SERVICES {
        assert!(services.iter().any(|name| name == service), "{service} is not in {services:?}");
    }
    let file = prost_types::FileDescriptorProto::decode(&files[0][..]).unwrap();
    let entry = &file.message_type[0].nested_type[0];
    assert_eq!(entry.name(), "Entry");
    for field in &entry.field {
        assert_eq!(field.r#type(), prost_types::field_descriptor_proto::Type::String);
    }
}

#[tokio::test]
async fn reflection_lists_services_and_shows_entries_as_text() {
    let served = serve();
    let channel = channel(&served).await;
    check_reflection(reflect!(v1, channel.clone()));
    check_reflection(reflect!(v1alpha, channel));
}

#[tokio::test]
async fn each_worker_makes_its_limiter_on_its_thread_and_runtime() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let limiter = {
        let seen = Arc::clone(&seen);
        Arc::new(move |index| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            tokio::runtime::Handle::current();
            seen.lock().unwrap().push((index, name));
            limiter_without_rules()
        })
    };
    let served = serve_with(&settings(), limiter, Arc::new(String::new));
    // Nothing is answered before all have begun.
    assert_alive(&channel(&served).await).await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen[..WORKERS], [(0, "grpc-0".to_owned()), (1, "grpc-1".to_owned())]);
    assert_eq!(seen.len(), WORKERS + 1, "and one for HTTP");
    assert_eq!(seen[WORKERS].0, WORKERS);
}

#[test]
fn a_worker_that_cannot_start_is_reported() {
    let health = Health::default();
    let limiter =
        Arc::new(|index| if index == 1 { panic!("on purpose") } else { limiter_without_rules() });
    let parts = Parts { limiter, metrics: Arc::default(), rules: Arc::new(String::new), health };
    let server = Server::bind(&settings(), parts).unwrap();
    let (_handle, stop) = Stop::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(server.run(stop)).unwrap_err();
    assert!(matches!(error, RunError::WorkerLost(1)), "{error}");
}

/// Reads frames until one of `kind`, and returns its payload.
async fn frame(stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == kind {
            return payload;
        }
    }
}

const GOAWAY: u8 = 7;

#[tokio::test]
async fn an_old_connection_is_asked_to_go() {
    let mut settings = settings();
    settings.grpc.max_connection_age = Some(Duration::from_millis(50));
    let served = serve_with(&settings, without_rules(), Arc::new(String::new));
    let mut stream = TcpStream::connect(served.addresses.grpc).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    let goaway = timeout(HANG, frame(&mut stream, GOAWAY)).await.unwrap();
    assert_eq!(goaway[..4], 0x7fff_ffff_u32.to_be_bytes(), "calls on their way are still taken");
    assert_eq!(goaway[4..8], [0; 4], "no error");
}

#[tokio::test]
async fn stopping_tells_health_first_and_then_sends_clients_away() {
    let mut served = serve();
    served.health.set_serving(true);
    let channel = channel(&served).await;
    let mut client = HealthClient::new(channel.clone());
    let mut watch = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    let mut seen = async || watch.next().await.map(|answer| answer.unwrap().status());
    assert_eq!(seen().await, Some(ServingStatus::Serving));
    served.stop.stop();
    assert_eq!(seen().await, Some(ServingStatus::NotServing));
    assert_eq!(seen().await, None, "the stream ends, so that the connection can");
    timeout(HANG, &mut served.ended).await.unwrap().unwrap();
    assert!(TcpStream::connect(served.addresses.grpc).await.is_err());
    assert!(TcpStream::connect(served.addresses.http).await.is_err());
}

#[tokio::test]
async fn calls_in_flight_are_answered_while_stopping() {
    let mut settings = settings();
    settings.shutdown.drain_timeout = Duration::from_secs(5);
    let mut served = serve_with(&settings, without_rules(), Arc::new(String::new));
    served.health.set_serving(true);
    let channel = channel(&served).await;

    // A call that has begun and whose message is still to come.
    let (send, message) = mpsc::channel(1);
    let in_flight = tokio::spawn({
        let mut client = tonic::client::Grpc::new(channel.clone());
        async move {
            client.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
            let path = http::uri::PathAndQuery::from_static(SHOULD_RATE_LIMIT);
            client.client_streaming(Request::new(ReceiverStream::new(message)), path, codec).await
        }
    });
    tokio::task::yield_now().await;
    // Answered after the other has begun, being later on the same connection.
    assert_alive(&channel).await;

    served.stop.stop();
    while TcpStream::connect(served.addresses.grpc).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let probe = ask(served.addresses.http, "GET", "/healthcheck", b"").await;
    assert_eq!(probe.status, 500, "probes are answered until gRPC has ended");
    send.send(request("d", vec![descriptor(1, b"v")])).await.unwrap();
    drop(send);
    let status = timeout(HANG, in_flight).await.unwrap().unwrap().unwrap_err();
    assert!(status.message().contains("no rate limit rules"), "{status}");
    timeout(HANG, &mut served.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let mut served = serve();
    let silent = TcpStream::connect(served.addresses.grpc).await.unwrap();
    let mut halting = TcpStream::connect(served.addresses.grpc).await.unwrap();
    halting.write_all(&PREFACE[..10]).await.unwrap();
    // Says hello, and never answers or reads again.
    let mut deaf = TcpStream::connect(served.addresses.grpc).await.unwrap();
    deaf.write_all(PREFACE).await.unwrap();
    let idle = channel(&served).await;
    let mut slow = TcpStream::connect(served.addresses.http).await.unwrap();
    slow.write_all(b"POST /json HTTP/1.1\r\n").await.unwrap();
    served.stop.stop();
    timeout(HANG, &mut served.ended).await.unwrap().unwrap();
    drop((silent, halting, deaf, idle, slow));
}

#[tokio::test]
async fn a_second_request_to_stop_ends_at_once() {
    let mut settings = settings();
    settings.shutdown.drain_timeout = Duration::from_secs(3_600);
    let mut served = serve_with(&settings, without_rules(), Arc::new(String::new));
    let mut deaf = TcpStream::connect(served.addresses.grpc).await.unwrap();
    deaf.write_all(PREFACE).await.unwrap();
    frame(&mut deaf, 4).await;
    served.stop.stop();
    served.stop.stop();
    timeout(HANG, &mut served.ended).await.unwrap().unwrap();
}
