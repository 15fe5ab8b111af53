//! Rules that change under a running server: every way in which files change, good and bad.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use tollgate::clock::Stopwatch;
use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::{Channel, Endpoint};

use crate::http::ask;
use crate::support::process::{FREE_PORTS, HANG, Process};
use crate::support::wire::descriptor;

const BAD: &str = "domain: shop\ndescriptors:\n- key: user\n  rate_limt: {}\n";
const RELOADS: u32 = 50;
const CALLERS: usize = 4;

/// One rule for `user` in `domain`, with a window that does not end during a test.
fn rules(domain: &str, limit: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n- key: user\n  rate_limit: {{ requests_per_unit: {limit}, \
         unit: year, unit_multiplier: 10 }}\n"
    )
}

/// A server and the folder that it reads its rules from.
struct Rig {
    server: Process,
    folder: TempDir,
}

impl Rig {
    fn start(text: &str) -> Self {
        Self::start_with(text, &[])
    }

    fn start_with(text: &str, env: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("shop.yaml"), text).unwrap();
        let path = folder.path().to_str().unwrap();
        let arguments = [&["serve"], &FREE_PORTS[..], &["--rules", path]].concat();
        Self { server: Process::serve_with(&arguments, env), folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Moves a new file over the one of this name.
    fn replace(&self, name: &str, text: &str) {
        let elsewhere = TempDir::new_in(self.folder.path().parent().unwrap()).unwrap();
        let new = elsewhere.path().join(name);
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file(name)).unwrap();
    }

    /// The answer to a call with this many hits.
    async fn check(&self, domain: &str, hits: u64) -> Value {
        let body = format!(r#"{{"domain":"{domain}","entries":{{"user":"1"}},"hits":{hits}}}"#);
        let answer = ask(self.server.http, "POST", "/v1/check", body.as_bytes()).await;
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Waits until the limit for `user` in `domain` is this one; none if the domain is unknown.
    async fn becomes(&self, domain: &str, limit: Option<u32>) {
        self.until(&format!("a limit of {limit:?} in {domain}"), async || {
            let answer = self.check(domain, 0).await;
            answer.get("error").is_none() && answer["limit"] == Value::from(limit)
        })
        .await;
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let watch = Stopwatch::start();
        while !is_so().await {
            assert!(watch.elapsed() < HANG, "still not so: {what}\n{}", self.server.log());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    async fn admin(&self, path: &str) -> String {
        ask(self.server.admin, "GET", path, b"").await.body
    }

    /// The value of a metric without labels.
    async fn metric(&self, name: &str) -> u64 {
        let text = self.admin("/metrics").await;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} is missing in\n{text}")).parse().unwrap()
    }

    async fn ready(&self) -> u16 {
        ask(self.server.http, "GET", "/readyz", b"").await.status
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.server.grpc)).unwrap();
        endpoint.connect().await.unwrap()
    }
}

#[tokio::test]
async fn every_way_to_change_files_is_noticed() {
    let rig = Rig::start(&rules("shop", 1));
    rig.becomes("shop", Some(1)).await;
    fs::write(rig.file("shop.yaml"), rules("shop", 2)).unwrap();
    rig.becomes("shop", Some(2)).await;
    rig.replace("shop.yaml", &rules("shop", 3));
    rig.becomes("shop", Some(3)).await;
    fs::write(rig.file("more.yaml"), rules("more", 4)).unwrap();
    rig.becomes("more", Some(4)).await;
    fs::create_dir(rig.file("deep")).unwrap();
    fs::write(rig.file("deep/deep.yaml"), rules("deep", 5)).unwrap();
    rig.becomes("deep", Some(5)).await;
    fs::remove_file(rig.file("more.yaml")).unwrap();
    rig.becomes("more", None).await;
    fs::remove_dir_all(rig.file("deep")).unwrap();
    rig.becomes("deep", None).await;
    rig.becomes("shop", Some(3)).await;
    rig.until("all good", async || rig.metric("tollgate_rules_rejected").await == 0).await;
}

/// Points `link` to `target`, which must exist, in one step.
fn swap(link: &Path, target: &str) {
    let new = link.with_file_name("..new");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

#[tokio::test]
async fn a_config_map_is_swapped_as_kubernetes_does() {
    let folder = TempDir::new().unwrap();
    let mount = folder.path().to_owned();
    let version = |number: u32| {
        let name = format!("..version_{number}");
        fs::create_dir(mount.join(&name)).unwrap();
        fs::write(mount.join(&name).join("shop.yaml"), rules("shop", number)).unwrap();
        swap(&mount.join("..data"), &name);
    };
    version(1);
    symlink("..data/shop.yaml", mount.join("shop.yaml")).unwrap();
    let path = mount.to_str().unwrap();
    let rig = Rig { server: Process::serve(&["--rules", path]), folder };
    rig.becomes("shop", Some(1)).await;
    for number in 2..5 {
        version(number);
        fs::remove_dir_all(rig.file(&format!("..version_{}", number - 1))).unwrap();
        rig.becomes("shop", Some(number)).await;
    }
    assert_eq!(rig.metric("ratelimit_service_config_load_error").await, 0);
}

#[tokio::test]
async fn a_release_is_swapped_as_the_reference_expects() {
    let folder = TempDir::new().unwrap();
    let release = |number: u32| {
        let config = folder.path().join(format!("release-{number}/config"));
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("shop.yaml"), rules("shop", number)).unwrap();
        swap(&folder.path().join("current"), &format!("release-{number}"));
    };
    release(1);
    let current = folder.path().join("current");
    let env = [("RUNTIME_ROOT", current.to_str().unwrap())];
    let server = Process::serve_with(&[&["serve"], &FREE_PORTS[..]].concat(), &env);
    let rig = Rig { server, folder: TempDir::new().unwrap() };
    rig.becomes("shop", Some(1)).await;
    for number in 2..4 {
        release(number);
        rig.becomes("shop", Some(number)).await;
    }
}

#[tokio::test]
async fn bad_rules_change_nothing_and_are_told_everywhere_until_repaired() {
    let rig = Rig::start(&rules("shop", 7));
    let place = format!("{}:4:3", rig.file("shop.yaml").display());
    rig.becomes("shop", Some(7)).await;
    for (round, limit) in [(1, 8), (2, 9)] {
        let before = rig.check("shop", 0).await["limit"].clone();
        rig.replace("shop.yaml", BAD);
        rig.until("refused", async || rig.metric("tollgate_rules_rejected").await == 1).await;
        assert_eq!(rig.metric("ratelimit_service_config_load_error").await, round);
        let shown = rig.admin("/rlconfig").await;
        for part in ["refused", &place, "rate_limt", &format!("requests_per_unit={before}")] {
            assert!(shown.contains(part), "`{part}` is missing in\n{shown}");
        }
        let told = || rig.server.log().matches(&place).count() as u64;
        rig.until("logged", async || told() == round).await;
        assert_eq!(rig.check("shop", 0).await["limit"], before);
        assert_eq!(rig.ready().await, 200);

        rig.replace("shop.yaml", &rules("shop", limit));
        rig.becomes("shop", Some(limit)).await;
        rig.until("taken", async || rig.metric("tollgate_rules_rejected").await == 0).await;
        let shown = rig.admin("/rlconfig").await;
        assert!(!shown.contains("refused"), "{shown}");
        assert_eq!(rig.metric("ratelimit_service_config_load_success").await, round + 1);
    }
}

#[tokio::test]
async fn the_rules_before_come_back_as_they_were() {
    let rig = Rig::start(&rules("shop", 7));
    rig.becomes("shop", Some(7)).await;
    rig.replace("shop.yaml", BAD);
    rig.until("refused", async || rig.metric("tollgate_rules_rejected").await == 1).await;
    rig.replace("shop.yaml", &rules("shop", 7));
    rig.until("taken", async || rig.metric("tollgate_rules_rejected").await == 0).await;
    assert!(!rig.admin("/rlconfig").await.contains("refused"));
    rig.becomes("shop", Some(7)).await;
}

#[tokio::test]
async fn what_was_used_stays_used() {
    let rig = Rig::start(&rules("shop", 10));
    rig.becomes("shop", Some(10)).await;
    assert_eq!(rig.check("shop", 4).await["remaining"], 6);
    for (limit, remaining) in [(20, 16), (4, 0), (10, 6)] {
        rig.replace("shop.yaml", &rules("shop", limit));
        rig.becomes("shop", Some(limit)).await;
        assert_eq!(rig.check("shop", 0).await["remaining"], remaining, "limit {limit}");
    }
    rig.replace("shop.yaml", BAD);
    rig.until("refused", async || rig.metric("tollgate_rules_rejected").await == 1).await;
    assert_eq!(rig.check("shop", 1).await["remaining"], 5);
}

#[tokio::test]
async fn a_start_without_rules_serves_once_there_are_some() {
    let rig = Rig::start_with(BAD, &[("TOLLGATE_RULES_START_WITHOUT_RULES", "true")]);
    rig.until("running", async || rig.metric("tollgate_rules_rejected").await == 1).await;
    assert_eq!(rig.ready().await, 500);
    let error = rig.check("shop", 1).await["error"].to_string();
    assert!(error.contains("no rate limit rules"), "{error}");
    assert!(rig.admin("/rlconfig").await.contains("rate_limt"));
    rig.replace("shop.yaml", &rules("shop", 3));
    rig.becomes("shop", Some(3)).await;
    rig.until("ready", async || rig.ready().await == 200).await;
    rig.replace("shop.yaml", BAD);
    rig.until("refused", async || rig.metric("tollgate_rules_rejected").await == 1).await;
    assert_eq!(rig.ready().await, 200, "old rules are rules");
}

/// Calls until told to stop, and counts the answers; each must come from one whole set of rules.
async fn keep_calling(channel: Channel, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) {
    let mut client = RateLimitServiceClient::new(channel);
    let request = RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![descriptor(&[("user", "1")])],
        hits_addend: 1,
    };
    while !stop.load(Ordering::Relaxed) {
        let answer = client.should_rate_limit(request.clone()).await.unwrap().into_inner();
        assert_eq!(answer.overall_code(), Code::Ok);
        let limit = answer.statuses[0].current_limit.as_ref().expect("a limit in every set");
        assert!(limit.requests_per_unit >= LARGE, "{limit:?}");
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// More than all callers use.
const LARGE: u32 = 1_000_000_000;

#[tokio::test]
async fn calls_are_answered_while_rules_change() {
    let rig = Rig::start(&rules("shop", LARGE));
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let call = keep_calling(rig.channel().await, Arc::clone(&stop), Arc::clone(&answered));
        callers.push(tokio::spawn(call));
    }
    for number in 1..=RELOADS {
        let before = answered.load(Ordering::Relaxed);
        let text = rules("shop", LARGE + number);
        match number % 3 {
            0 => rig.replace("shop.yaml", &text),
            1 => fs::write(rig.file("shop.yaml"), &text).unwrap(),
            _ => {
                fs::write(rig.file("shop.yaml"), BAD).unwrap();
                rig.until("refused", async || rig.metric("tollgate_rules_rejected").await == 1)
                    .await;
                rig.replace("shop.yaml", &text);
            }
        }
        rig.becomes("shop", Some(LARGE + number)).await;
        rig.until("an answer under the new rules", async || {
            answered.load(Ordering::Relaxed) > before
                || callers.iter().any(tokio::task::JoinHandle::is_finished)
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    rig.until("counted", async || {
        let loads = rig.metric("ratelimit_service_config_load_success").await;
        loads == u64::from(RELOADS) + 1
    })
    .await;
    let used =
        u64::from(LARGE + RELOADS) - rig.check("shop", 0).await["remaining"].as_u64().unwrap();
    assert_eq!(used, answered.load(Ordering::Relaxed), "every hit was counted once");
}
