//! Time of one evaluation and charge, per algorithm.

use divan::{Bencher, black_box};
use tollgate::algorithm::{Refused, State, check};
use tollgate::model::{AlgorithmKind, Hits, Limit, Timestamp, Window};

fn main() {
    divan::main();
}

const SECOND: u64 = 1_000_000;

#[divan::bench(args = AlgorithmKind::ALL)]
fn admitted(bencher: Bencher<'_, '_>, algorithm: AlgorithmKind) {
    // One hit per ms on 1,000 per second: always admitted, with about 1,000 hits in the window.
    let limit = Limit { algorithm, amount: 1_000, window: Window::Length(SECOND), burst: 1_000 };
    let mut state: Option<State> = None;
    let mut now = Timestamp::from_secs(1_700_000_000);
    bencher.bench_local(|| {
        now = now.plus_micros(SECOND / 1_000);
        check(black_box(&limit), &mut state, Hits::Take(1), now, Refused::Uncharged)
    });
}

#[divan::bench(args = AlgorithmKind::ALL)]
fn refused(bencher: Bencher<'_, '_>, algorithm: AlgorithmKind) {
    let limit = Limit { algorithm, amount: 1_000, window: Window::Length(SECOND), burst: 1_000 };
    let mut state: Option<State> = None;
    let now = Timestamp::from_secs(1_700_000_000);
    check(&limit, &mut state, Hits::Take(1_000), now, Refused::Uncharged);
    bencher.bench_local(|| {
        check(black_box(&limit), &mut state, Hits::Take(1), now, Refused::Uncharged)
    });
}
