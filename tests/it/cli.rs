//! The built binary as people, scripts and process supervisors see it.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::settings::StoreUrl;

use crate::http::ask;
use crate::support::process::{FREE_PORTS, Process, run, run_with, wait_until};
use crate::support::redis::RedisServer;

const RULES: &str = "domain: shop\n\
                     descriptors:\n\
                     - key: user\n\
                     \x20 rate_limit: { requests_per_unit: 2, unit: year, unit_multiplier: 10 }\n";
/// Wrong in line 4, column 3.
const BAD_RULES: &str = "domain: shop\ndescriptors:\n- key: user\n  ra: {}\n";
const GOOD: &str = "tests/golden/good.yaml";
const BAD: &str = "tests/golden/bad.yaml";

/// A folder with one file of rules, and the file's path.
fn rules(text: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap().to_owned();
    (folder, path)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Checks the exit code and that standard output and standard error have their parts.
#[track_caller]
fn expect(output: &Output, code: i32, stdout: &[&str], stderr: &[&str]) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    for (text, parts) in [(out, stdout), (err, stderr)] {
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
    }
}

#[track_caller]
fn check(arguments: &[&str], code: i32, stdout: &[&str], stderr: &[&str]) {
    expect(&run(arguments), code, stdout, stderr);
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn rules_are_checked_without_a_server() {
    check(&["check", GOOD], 0, &["shop", "1 domain", "version"], &[]);
    check(&["check", BAD], 1, &[], &["tests/golden/bad.yaml:6:7", "5 faults"]);
    check(&["check", "no/such/file"], 1, &[], &["no/such/file"]);
    check(&["check"], 2, &[], &["PATH"]);
    let good = run(&["check", GOOD, "--output", "json"]);
    assert_eq!((good.status.code(), &json(&good)["ok"]), (Some(0), &Value::Bool(true)));
    let bad = run(&["check", BAD, "--output", "json"]);
    assert_eq!((bad.status.code(), &json(&bad)["ok"]), (Some(1), &Value::Bool(false)));
}

#[test]
fn a_descriptor_is_explained_without_a_server() {
    let rules = ["explain", "--rules", GOOD, "shop"];
    let known = [&rules[..], &["user_id=42"]].concat();
    check(&known, 0, &["rule shop.user_id", "5000 per day", "tg1|"], &[]);
    check(&[&rules[..], &["other=1"]].concat(), 0, &["other"], &[]);
    check(&[&rules[..], &["no-value"]].concat(), 2, &[], &["key=value"]);
    check(&["explain", "--rules", BAD, "shop", "user_id=42"], 1, &[], &["bad.yaml:6:7"]);
    let explained = run(&[&known[..], &["--output", "json"]].concat());
    assert_eq!(explained.status.code(), Some(0));
    assert!(json(&explained).is_object());
}

#[test]
fn schema_and_completions_are_printed() {
    let schema = run(&["schema"]);
    assert_eq!(schema.status.code(), Some(0));
    assert!(json(&schema)["$schema"].is_string());
    for shell in ["bash", "zsh", "fish"] {
        check(&["completions", shell], 0, &["tollgate", "explain"], &[]);
    }
    check(&["completions", "cobol"], 2, &[], &["cobol", "bash"]);
}

#[test]
fn mistakes_on_the_command_line_are_named() {
    for (arguments, part) in [
        (&[][..], "Usage"),
        (&["serv"], "serve"),
        (&["serve", "--rule-s", "x"], "--rules"),
        (&["serve"], "RUNTIME_ROOT"),
        (&["serve", "--rules", "x", "--grpc-addr", "nowhere"], "grpc.addr"),
        (&["serve", "--rules", "x", "--workers", "many"], "grpc.workers"),
        (&["serve", "--rules", "x", "--settings", "no/such/file"], "no/such/file"),
        (&["hit", "shop"], "KEY=VALUE"),
    ] {
        check(arguments, 2, &[], &[part]);
    }
    check(&["--version"], 0, &[env!("CARGO_PKG_VERSION")], &[]);
    check(&["--help"], 0, &["serve", "Exit codes"], &[]);
}

#[test]
fn settings_are_shown_with_their_origin() {
    let env = [("TOLLGATE_LOG_LEVEL", "warn"), ("GRPC_PORT", "9")];
    let shown = run_with(&["serve", "--print-settings", "--workers", "3"], &env);
    expect(&shown, 0, &["$TOLLGATE_LOG_LEVEL", "$GRPC_PORT", "--workers"], &[]);
}

#[test]
fn bad_rules_at_the_start_are_told_with_their_place() {
    let (_folder, file) = rules(BAD_RULES);
    let output = run(&[&["serve"], &FREE_PORTS[..], &["--rules", &file]].concat());
    expect(&output, 1, &[], &[&format!("{file}:4:3"), "`ra`"]);
}

#[test]
fn a_taken_port_is_told_with_the_way_out() {
    let (_folder, file) = rules(RULES);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let ports = ["--http-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"];
    let first = ["serve", "--rules", &file, "--grpc-addr", &addr];
    check(&[&first[..], &ports].concat(), 3, &[], &[&addr, "--grpc-addr"]);
}

#[test]
fn a_server_says_where_it_listens_and_ends_on_sigterm() {
    let (_folder, file) = rules(RULES);
    let server = Process::serve(&["--rules", &file]);
    let log = server.log();
    let first: Vec<_> = log.lines().take(4).collect();
    for addr in [server.grpc, server.http, server.admin] {
        let addr = format!("addr={addr}");
        assert!(first.iter().any(|line| line.ends_with(&addr)), "{addr} is not in\n{log}");
        assert!(!addr.ends_with(":0"), "{addr}");
    }
    server.terminate();
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("stopped") && !log.contains("ERROR"), "{log}");
}

#[test]
fn hits_are_answered_by_a_running_server() {
    let (_folder, file) = rules(RULES);
    let server = Process::serve(&["--rules", &file]);
    let addr = server.grpc.to_string();
    let hit = |arguments: &[&str]| run(&[&["hit", "--addr", &addr], arguments].concat());
    expect(&hit(&["shop", "user=1", "--repeat", "2"]), 0, &["2 calls: 2 OK"], &[]);
    expect(&hit(&["shop", "user=1"]), 1, &["OVER_LIMIT", "1 over limit"], &[]);
    expect(&hit(&["shop", "none=1"]), 0, &["1 OK"], &[]);
    let looked = hit(&["shop", "user=1", "--hits", "0", "--output", "json"]);
    assert_eq!(looked.status.code(), Some(0), "a look at a used-up limit is OK");
    assert_eq!(json(&looked)["statuses"][0]["remaining"], 0);
    let denied = hit(&["shop", "user=1", "--output", "json"]);
    assert_eq!((denied.status.code(), &json(&denied)["code"]), (Some(1), &"OVER_LIMIT".into()));
    expect(&hit(&["", "user=1"]), 3, &[], &["domain"]);
    expect(&hit(&["shop", "user=1", "--limit", "5/fortnight"]), 2, &[], &["5/minute"]);
    server.terminate();
    server.ended();
    expect(&hit(&["shop", "user=1"]), 3, &[], &["no server at", &addr]);
}

/// `current -> the folder of the release`, as the reference's runtime loader lays it out.
fn runtime_root(text: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("release-1/ratelimit/config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("shop.yaml"), text).unwrap();
    let current = folder.path().join("current");
    std::os::unix::fs::symlink(folder.path().join("release-1"), &current).unwrap();
    (folder, current)
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_environment_of_the_reference_is_enough() {
    let redis = RedisServer::start_with(&["--requirepass", "opensesame"]);
    let address = redis_address(&redis);
    let (_folder, current) = runtime_root(RULES);
    let env = [
        ("RUNTIME_ROOT", path_text(&current)),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("BACKEND_TYPE", "redis"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", address.as_str()),
        ("REDIS_AUTH", "opensesame"),
        ("USE_STATSD", "false"),
        ("LOG_LEVEL", "debug"),
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "0"),
        ("DEBUG_PORT", "0"),
        // Two Redis connections on a busy machine may take longer than the default.
        ("TOLLGATE_STORE_TIMEOUT", "10s"),
    ];
    let server = Process::serve_with(&["serve"], &env);
    let addr = server.grpc.to_string();
    let hit = ["hit", "--addr", &addr, "shop", "user=1"];
    wait_until("the first connection to Redis", || run(&hit).status.code() == Some(0));
    check(&hit, 0, &[], &[]);
    check(&hit, 1, &["OVER_LIMIT"], &[]);
    let keys: Vec<String> = redis.run(&["KEYS", "*"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    server.terminate();
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("opensesame"), "{log}");
}

/// `host:port`.
fn redis_address(server: &RedisServer) -> String {
    let url = server.url();
    let address = url.expose().rsplit(['@', '/']).find(|part| !part.is_empty()).unwrap();
    address.to_owned()
}

#[tokio::test]
async fn a_password_is_never_shown() {
    const SECRET: &str = "s3cr3t-w0rd";
    let (_folder, file) = rules(RULES);
    let mut seen = String::new();
    for url in [
        format!("redis://user:{SECRET}@127.0.0.1:1/"),
        format!("redis://:{SECRET}@no-such-host.invalid:6379"),
        format!("rediss://user:{SECRET}@127.0.0.1:1/3"),
    ] {
        assert!(url.parse::<StoreUrl>().is_ok(), "a case about the store, not the settings");
        seen += text(&run(&["serve", "--store", &url, "--print-settings"]).stdout);
        let server = Process::serve(&["--rules", &file, "--store", &url, "--log-level", "trace"]);
        let addr = server.grpc.to_string();
        let hit = run(&["hit", "--addr", &addr, "shop", "user=1"]);
        expect(&hit, 3, &[], &["counter store unavailable"]);
        seen += text(&hit.stderr);
        let body = br#"{"domain":"shop","entries":{"user":"1"}}"#;
        let answer = ask(server.http, "POST", "/v1/check", body).await;
        assert_eq!(answer.status, 503);
        seen += &answer.body;
        for path in ["/metrics", "/rlconfig", "/"] {
            seen += &ask(server.admin, "GET", path, b"").await.body;
        }
        server.terminate();
        let (status, log) = server.ended();
        assert_eq!(status.code(), Some(0), "{log}");
        seen += &log;
    }
    for (url, code) in [
        (format!("redis://user:{SECRET}@127.0.0.1:port/"), 2),
        (format!("http://user:{SECRET}@127.0.0.1/"), 2),
        (format!("redis://user:{SECRET}@/"), 2),
        (format!("user:{SECRET}@127.0.0.1:1"), 2),
        (format!("redis://user:{SECRET}@127.0.0.1:1/database"), 2),
    ] {
        let output = run(&["serve", "--rules", &file, "--store", &url]);
        expect(&output, code, &[], &["store.url"]);
        seen += text(&output.stderr);
        seen += text(&run_with(&["serve"], &[("REDIS_URL", &url)]).stderr);
    }
    assert!(seen.contains("connect"), "nothing was said about the store:\n{seen}");
    assert!(!seen.contains(SECRET), "{seen}");
}
