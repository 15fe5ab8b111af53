//! A server on free ports, for tests of the wire.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate::clock::Clock;
use tollgate::key::KeyCodec;
use tollgate::limiter::{Context, Limiter};
use tollgate::model::{ChargeMode, FailureMode};
use tollgate::server::{Addresses, Health, LimiterFactory, Parts, Server, Stop, StopHandle};
use tollgate::settings::{
    AdminSettings, Caps, GrpcSettings, HttpSettings, LogFormat, LogSettings, MemorySettings,
    ModeSettings, ResponseSettings, RulesSettings, Settings, ShutdownSettings, StoreSettings,
    StoreUrl,
};
use tollgate::store::StoreStack;
use tollgate::store::memory::MemoryStore;

pub(crate) const WORKERS: usize = 2;

/// Runs on a thread of its own; asked to stop at once when dropped.
pub(crate) struct Served {
    pub(crate) addresses: Addresses,
    pub(crate) health: Health,
    pub(crate) stop: StopHandle,
    /// Fires when `run` has returned.
    pub(crate) ended: oneshot::Receiver<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        self.stop.stop();
    }
}

pub(crate) fn settings() -> Settings {
    let any = ([127, 0, 0, 1], 0).into();
    Settings {
        grpc: GrpcSettings { addr: any, workers: WORKERS, max_connection_age: None },
        http: HttpSettings { addr: any },
        admin: AdminSettings {
            addr: any,
            prometheus_addr: Some(any),
            prometheus_path: "/prom".to_owned(),
        },
        rules: RulesSettings {
            sources: Vec::new(),
            merge_domains: false,
            start_without_rules: true,
            healthy_needs_domain: false,
        },
        store: StoreSettings {
            url: StoreUrl::Memory,
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            connections: 1,
            key_prefix: String::new(),
            ttl_jitter: Duration::ZERO,
            memory: MemorySettings { max_keys: 1_000, max_bytes: 1_000_000 },
        },
        response: ResponseSettings { headers: None, dynamic_metadata: false },
        mode: ModeSettings {
            shadow: false,
            quota: false,
            charge: ChargeMode::Auto,
            on_store_failure: FailureMode::Error,
            near_limit_ratio: 0.8,
        },
        caps: Caps {
            descriptors_per_call: 100,
            entries_per_descriptor: 10,
            key_bytes: 100,
            value_bytes: 1_000,
            message_bytes: 1_000_000,
        },
        log: LogSettings { level: tracing::Level::INFO, format: LogFormat::Text },
        shutdown: ShutdownSettings { drain_timeout: Duration::from_millis(300) },
    }
}

/// A limiter before its first rules.
pub(crate) fn without_rules() -> LimiterFactory {
    Arc::new(|_| limiter_without_rules())
}

pub(crate) fn limiter_without_rules() -> Limiter {
    let settings = settings();
    let context = Context::new(
        Arc::default(),
        KeyCodec::default(),
        settings.mode,
        &settings.response,
        Arc::default(),
        Clock::System,
    );
    let memory = MemoryStore::new(&settings.store.memory, Clock::System);
    Limiter::new(Arc::new(context), StoreStack::Memory(Arc::new(memory)))
}

pub(crate) fn serve() -> Served {
    serve_with(&settings(), without_rules(), Arc::new(|| "the rules\n".to_owned()))
}

pub(crate) fn serve_with(
    settings: &Settings,
    limiter: LimiterFactory,
    rules: Arc<dyn Fn() -> String + Send + Sync>,
) -> Served {
    let health = Health::default();
    let parts = Parts { limiter, metrics: Arc::default(), rules, health: health.clone() };
    let server = Server::bind(settings, parts).unwrap();
    let addresses = server.addresses();
    let (stop, asked) = Stop::new();
    let (end, ended) = oneshot::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(server.run(asked)).unwrap();
        // Nobody waits for it in most tests.
        _ = end.send(());
    });
    Served { addresses, health, stop, ended }
}
