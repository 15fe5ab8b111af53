//! No interleaving admits more or less than the limit: many callers, several connections, and on
//! Redis two servers, against counters that neither refill nor expire meanwhile.
//!
//! `TOLLGATE_EXACTNESS_RUNS` is how often each case runs, 1 by default.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tollgate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::support::process::{FREE_PORTS, Process, run, wait_until};
use crate::support::redis::RedisServer;
use crate::support::wire::descriptor;

const CALLS: usize = 20_000;
const CALLERS: usize = 64;
/// To each server.
const CONNECTIONS: usize = 4;
const LIMIT: usize = 1_000;
/// Limits of two descriptors in one call.
const PAIR: [usize; 2] = [300, 700];
/// Ten years of 365 days.
const WINDOW_SECONDS: i64 = 10 * 365 * 86_400;
const ALGORITHMS: [&str; 5] =
    ["fixed_window", "sliding_window_log", "sliding_window_counter", "token_bucket", "gcra"];

/// For each algorithm the keys `<algorithm>`, `<algorithm>_first` and `<algorithm>_second`.
fn rules() -> String {
    let mut text = "domain: exact\ndescriptors:\n".to_owned();
    for algorithm in ALGORITHMS {
        for (suffix, limit) in [("", LIMIT), ("_first", PAIR[0]), ("_second", PAIR[1])] {
            text += &format!(
                "- key: {algorithm}{suffix}\n  rate_limit: {{ requests_per_unit: {limit}, \
                 window: {WINDOW_SECONDS}s, algorithm: {algorithm} }}\n"
            );
        }
    }
    text
}

fn runs() -> usize {
    match std::env::var("TOLLGATE_EXACTNESS_RUNS") {
        Ok(text) => text.parse().expect("TOLLGATE_EXACTNESS_RUNS is a number"),
        Err(_) => 1,
    }
}

/// Servers over one store, and connections to them in turn.
struct Rig {
    _servers: Vec<Process>,
    _folder: TempDir,
    channels: Vec<Channel>,
}

impl Rig {
    async fn start(servers: usize, store: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("rules.yaml");
        fs::write(&file, rules()).unwrap();
        let rules = ["--rules", file.to_str().unwrap(), "--store", store, "--workers", "2"];
        let arguments = [&["serve"], &FREE_PORTS[..], &rules].concat();
        let env = [("TOLLGATE_STORE_TIMEOUT", "10s")];
        let servers: Vec<_> = (0..servers).map(|_| Process::serve_with(&arguments, &env)).collect();
        let mut channels = Vec::new();
        for server in servers.iter().cycle().take(servers.len() * CONNECTIONS) {
            let addr = server.grpc.to_string();
            // A look takes no hit; it waits until the server has its store.
            let look = ["hit", "--addr", &addr, "exact", "gcra=warm", "--hits", "0"];
            wait_until("an answer", || run(&look).status.code() == Some(0));
            let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
            channels.push(endpoint.connect().await.unwrap());
        }
        Self { _servers: servers, _folder: folder, channels }
    }

    /// How many of [`CALLS`] equal calls are admitted; all others are over the limit.
    async fn admitted(&self, descriptors: &[RateLimitDescriptor]) -> usize {
        let taken = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let channel = self.channels[number % self.channels.len()].clone();
                tokio::spawn(call_in_turn(channel, descriptors.to_vec(), Arc::clone(&taken)))
            })
            .collect();
        let (mut admitted, mut denied) = (0, 0);
        for caller in callers {
            let (ok, over) = caller.await.unwrap();
            admitted += ok;
            denied += over;
        }
        assert_eq!(admitted + denied, CALLS);
        admitted
    }

    /// What each descriptor has left, by a look through another server each time.
    async fn remaining(&self, descriptors: &[RateLimitDescriptor]) -> Vec<usize> {
        let mut looks = descriptors.to_vec();
        for look in &mut looks {
            look.hits_addend = Some(0);
        }
        let mut seen = Vec::new();
        for channel in &self.channels {
            let mut client = RateLimitServiceClient::new(channel.clone());
            let statuses = call(&mut client, looks.clone()).await.unwrap().statuses;
            seen.push(statuses.iter().map(|it| it.limit_remaining as usize).collect::<Vec<_>>());
        }
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "servers disagree: {seen:?}");
        seen.swap_remove(0)
    }

    async fn check(&self, algorithm: &str, run: usize) {
        let value = format!("run-{run}");
        let one = [descriptor(&[(algorithm, &value)])];
        assert_eq!(self.admitted(&one).await, LIMIT, "{algorithm}, run {run}");
        assert_eq!(self.remaining(&one).await, [0], "{algorithm}, run {run}");

        let pair = ["first", "second"]
            .map(|place| descriptor(&[(&format!("{algorithm}_{place}"), &value)]));
        assert_eq!(self.admitted(&pair).await, PAIR[0], "pair of {algorithm}, run {run}");
        let left = self.remaining(&pair).await;
        assert_eq!(left, [0, PAIR[1] - PAIR[0]], "pair of {algorithm}, run {run}");
    }
}

async fn call(
    client: &mut RateLimitServiceClient<Channel>,
    descriptors: Vec<RateLimitDescriptor>,
) -> Result<RateLimitResponse, Status> {
    let request = RateLimitRequest { domain: "exact".to_owned(), descriptors, hits_addend: 0 };
    client.should_rate_limit(request).await.map(tonic::Response::into_inner)
}

/// Takes calls until none are left; counts those that were admitted and those that were not.
async fn call_in_turn(
    channel: Channel,
    descriptors: Vec<RateLimitDescriptor>,
    taken: Arc<AtomicUsize>,
) -> (usize, usize) {
    let mut client = RateLimitServiceClient::new(channel);
    let (mut ok, mut over) = (0, 0);
    while taken.fetch_add(1, Ordering::Relaxed) < CALLS {
        match call(&mut client, descriptors.clone()).await.unwrap().overall_code() {
            Code::Ok => ok += 1,
            Code::OverLimit => over += 1,
            Code::Unknown => panic!("an answer without a code"),
        }
    }
    (ok, over)
}

#[tokio::test]
async fn two_servers_on_one_redis_admit_exactly_the_limit() {
    let redis = RedisServer::start();
    let rig = Rig::start(2, redis.url().expose()).await;
    for run in 0..runs() {
        for algorithm in ALGORITHMS {
            rig.check(algorithm, run).await;
        }
        every_key_expires(&redis);
        redis.run::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn the_embedded_store_admits_exactly_the_limit() {
    let rig = Rig::start(1, "memory").await;
    for run in 0..runs() {
        for algorithm in ALGORITHMS {
            rig.check(algorithm, run).await;
        }
    }
}

/// A sliding counter needs two windows, all others one.
#[track_caller]
fn every_key_expires(redis: &RedisServer) {
    let mut keys: Vec<String> = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let (next, found): (String, Vec<String>) = redis.run(&["SCAN", &cursor, "COUNT", "100"]);
        keys.extend(found);
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    assert!(keys.len() >= 3 * ALGORITHMS.len(), "{keys:?}");
    for key in keys {
        let windows = if key.contains("sliding_window_counter") { 2 } else { 1 };
        let left: i64 = redis.run(&["PTTL", &key]);
        let most = windows * WINDOW_SECONDS * 1_000;
        // Rounded up to a whole millisecond, or second, of the store.
        assert!(0 < left && left <= most + 1_000, "{key}: {left} ms left, at most {most}");
    }
}
