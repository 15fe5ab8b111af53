//! What tests share: settings, calls in few words, and servers of their own.

pub(crate) mod process;
pub(crate) mod redis;
pub(crate) mod wire;

use std::time::Duration;

use tollgate::clock::Clock;
use tollgate::model::{
    AlgorithmKind, Call, Charge, Check, Consistency, CounterKey, Effect, Hits, Limit, Timestamp,
    Window,
};
use tollgate::settings::{MemorySettings, StoreSettings, StoreUrl};
use tollgate::store::redis::RedisStore;

use self::redis::RedisServer;

/// Settings of a test's Redis, patient enough for a busy machine.
pub(crate) fn store_settings() -> StoreSettings {
    StoreSettings {
        url: StoreUrl::Memory,
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        connections: 2,
        key_prefix: String::new(),
        ttl_jitter: Duration::ZERO,
        deny_cache_bytes: 0,
        memory: MemorySettings { max_keys: 1_000_000, max_bytes: 1 << 30 },
    }
}

/// A store on `server` that takes its time from `clock`. Where that is not the real time, keys
/// live long enough not to expire by it.
pub(crate) fn redis_store(server: &RedisServer, clock: Clock) -> RedisStore {
    let mut settings = store_settings();
    if matches!(clock, Clock::Manual(_)) {
        settings.ttl_jitter = Duration::from_secs(10 * 365 * 86_400);
    }
    RedisStore::new(&server.url(), &settings, clock).unwrap()
}

pub(crate) fn limit(algorithm: AlgorithmKind, amount: u32, window: Duration) -> Limit {
    let window = Window::Length(u64::try_from(window.as_micros()).unwrap());
    Limit { algorithm, amount, window, burst: amount }
}

/// A check that denies its call, and is charged if the call is admitted.
pub(crate) fn check(key: &str, limit: Limit, hits: Hits) -> Check {
    Check {
        key: CounterKey::from_bytes(key.as_bytes()),
        limit,
        hits,
        charge: Charge::Admitted,
        effect: Effect::Deny,
        consistency: Consistency::Strict,
    }
}

pub(crate) fn call(checks: impl IntoIterator<Item = Check>) -> Call {
    Call { checks: checks.into_iter().collect() }
}

/// A moment at which windows of up to a day start.
pub(crate) const MIDNIGHT: Timestamp = Timestamp::from_secs(1_750_032_000);

/// A runtime as a worker has it.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
