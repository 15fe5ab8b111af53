//! The HTTP ports as clients see them.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::served::{serve, serve_with, settings, without_rules};

pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case, with the status line.
    head: String,
    pub(crate) body: String,
}

pub(crate) async fn ask(
    addr: std::net::SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
) -> Answer {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

const GOOD: &[u8] = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;

#[tokio::test]
async fn json_refuses_bad_requests_as_the_reference_does() {
    let served = serve();
    let http = served.addresses.http;
    let long = vec![b' '; 1_000_001];
    for body in [&b""[..], b"}{", b"{}", br#"{"domain":"d"}"#, br#"{"domain":"d","x":1}"#, &long] {
        let answer = ask(http, "POST", "/json", body).await;
        assert_eq!((answer.status, answer.body.as_str()), (400, "Bad Request"));
        assert!(answer.head.contains("content-type: text/plain"), "{}", answer.head);
    }
}

#[tokio::test]
async fn json_takes_any_method_and_says_why_there_is_no_decision() {
    let served = serve();
    let http = served.addresses.http;
    for method in ["POST", "PUT", "GET"] {
        let answer = ask(http, method, "/json", GOOD).await;
        assert_eq!(answer.status, 503);
        assert!(answer.body.contains("no rate limit rules"), "{}", answer.body);
    }
}

#[tokio::test]
async fn check_explains_its_errors() {
    let served = serve();
    let http = served.addresses.http;
    let long = vec![b' '; 1_000_001];
    for (method, body, status, part) in [
        ("POST", &b"{"[..], 400, "expected {"),
        ("POST", br#"{"domain":"d","entries":{"k":"v"},"hit":1}"#, 400, "unknown field `hit`"),
        ("POST", br#"{"domain":"","entries":{"k":"v"}}"#, 400, "domain"),
        ("POST", br#"{"domain":"d","entries":{"k":"v"}}"#, 503, "no rate limit rules"),
        ("POST", &long, 413, "1000000 bytes"),
        ("GET", b"", 405, "POST"),
    ] {
        let answer = ask(http, method, "/v1/check", body).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        let error = body["error"].as_str().unwrap();
        assert!(error.contains(part), "`{error}` lacks `{part}`");
    }
}

#[tokio::test]
async fn probes_follow_the_service() {
    let served = serve();
    let http = served.addresses.http;
    for (serving, status, body) in [(false, 500, ""), (true, 200, "OK")] {
        served.health.set_serving(serving);
        for path in ["/healthcheck", "/readyz"] {
            let answer = ask(http, "GET", path, b"").await;
            assert_eq!((answer.status, answer.body.as_str()), (status, body));
        }
        assert_eq!(ask(http, "GET", "/livez", b"").await.status, 200);
    }
}

#[tokio::test]
async fn the_admin_port_shows_rules_and_metrics() {
    let served = serve();
    let (admin, prometheus) = (served.addresses.admin, served.addresses.prometheus.unwrap());
    assert_eq!(ask(admin, "GET", "/rlconfig", b"").await.body, "the rules\n");
    let list = ask(admin, "GET", "/", b"").await.body;
    for path in ["/metrics", "/rlconfig"] {
        assert!(list.contains(path), "{list}");
    }
    for (addr, path) in [(admin, "/metrics"), (prometheus, "/prom")] {
        let answer = ask(addr, "GET", path, b"").await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    }
    assert_eq!(ask(prometheus, "GET", "/rlconfig", b"").await.status, 404);
}

#[tokio::test]
async fn a_panic_costs_one_connection_only() {
    let rules = Arc::new(|| panic!("on purpose"));
    let served = serve_with(&settings(), without_rules(), rules);
    let admin = served.addresses.admin;
    let mut stream = TcpStream::connect(admin).await.unwrap();
    stream.write_all(b"GET /rlconfig HTTP/1.1\r\nHost: t\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Closed or reset, but answered with nothing.
    _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    assert_eq!(ask(admin, "GET", "/metrics", b"").await.status, 200);
}
