//! Time of one decision of the embedded store, and memory per key.

use std::hint::black_box;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use divan::Bencher;
use divan::counter::ItemsCount;
use tollgate::clock::Clock;
use tollgate::model::{
    AlgorithmKind, Call, Charge, Check, Consistency, CounterKey, Effect, Hits, Limit, Timestamp,
    Window,
};
use tollgate::settings::MemorySettings;
use tollgate::store::memory::MemoryStore;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 100_000;
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Names the algorithm whose memory a child process measures: a fresh process each, since an
/// allocator keeps what it once had.
const MEMORY_OF: &str = "TOLLGATE_BENCH_MEMORY_OF";

fn main() {
    if let Ok(name) = std::env::var(MEMORY_OF) {
        AlgorithmKind::ALL.into_iter().filter(|kind| kind.name() == name).for_each(report_memory);
        return;
    }
    if let Ok(own) = std::env::current_exe() {
        for algorithm in AlgorithmKind::ALL {
            let child = Command::new(&own).env(MEMORY_OF, algorithm.name()).status();
            assert!(child.is_ok_and(|status| status.success()), "measuring {algorithm:?} failed");
        }
    }
    divan::main();
}

fn call(algorithm: AlgorithmKind, key: usize) -> Call {
    let limit = Limit {
        algorithm,
        amount: 1_000_000,
        window: Window::Length(3_600_000_000),
        burst: 1_000_000,
    };
    let check = Check {
        key: CounterKey::from_bytes(format!("tg1|fw3600s|bench|key=k{key:09}").as_bytes()),
        limit,
        hits: Hits::Take(1),
        charge: Charge::Admitted,
        effect: Effect::Deny,
        consistency: Consistency::Strict,
    };
    Call { checks: [check].into_iter().collect() }
}

fn store() -> MemoryStore {
    let settings = MemorySettings { max_keys: 10_000_000, max_bytes: 1 << 32 };
    MemoryStore::new(&settings, Clock::System)
}

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0_usize);
    pages * 4_096
}

#[expect(clippy::print_stdout, reason = "a bench reports on standard output")]
fn report_memory(algorithm: AlgorithmKind) {
    const COUNT: usize = 1_000_000;
    let store = store();
    let before = resident();
    for key in 0..COUNT {
        black_box(store.decide_at(&call(algorithm, key), NOW));
    }
    let bytes = resident().saturating_sub(before) / COUNT;
    let accounted = store.stats().bytes / COUNT;
    println!("{algorithm:?}: {bytes} resident bytes per key at 1M keys, {accounted} accounted");
}

#[divan::bench(args = AlgorithmKind::ALL, threads = [1, 2])]
fn decide(bencher: Bencher<'_, '_>, algorithm: AlgorithmKind) {
    static CALLS: [OnceLock<(MemoryStore, Vec<Call>)>; 5] = [const { OnceLock::new() }; 5];
    let (store, calls) = CALLS[algorithm as usize]
        .get_or_init(|| (store(), (0..KEYS).map(|key| call(algorithm, key)).collect()));
    let next = AtomicUsize::new(0);
    bencher.counter(ItemsCount::new(1_000_usize)).bench(|| {
        let start = next.fetch_add(7_919, Ordering::Relaxed);
        for step in 0..1_000 {
            black_box(store.decide_at(&calls[(start + step * 61) % KEYS], NOW));
        }
    });
}
