//! What each algorithm admits over time.

use std::time::Duration;

use tollgate::model::AlgorithmKind::{
    self, FixedWindow, Gcra, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};
use tollgate::model::{Hits, Limit, Window};

use super::{Harness, for_each_store};
use crate::support::{MIDNIGHT, limit};

for_each_store![
    fixed_windows_are_aligned_to_the_epoch,
    fixed_windows_let_twice_the_limit_through_at_a_boundary,
    calendar_windows_follow_their_bounds,
    a_log_never_admits_more_than_the_limit,
    a_log_counts_hits_of_one_instant,
    a_log_lets_in_whoever_waits_although_it_refuses_many,
    a_counter_fades_the_previous_window,
    a_bucket_holds_no_more_than_its_burst,
    a_bucket_does_not_fill_up_at_once,
    a_bucket_has_a_rate_apart_from_its_burst,
    a_refused_cost_leaves_a_bucket_as_it_was,
    token_bucket_and_gcra_decide_alike,
    what_can_never_pass_has_no_wait,
    waiting_for_retry_after_suffices,
    a_clock_that_steps_back_mints_nothing,
];

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn admitted(h: &Harness, key: &str, limit: Limit, calls: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..calls {
        admitted += u32::from(h.take(key, limit, 1).await.allowed);
    }
    admitted
}

async fn fixed_windows_are_aligned_to_the_epoch(h: Harness) {
    let day = limit(FixedWindow, 2, Duration::from_secs(86_400));
    for hours in [0, 1, 6, 23] {
        h.at(hours * 60 * MINUTE);
        let reset = h.one("k", day, Hits::Look).await.reset;
        assert_eq!(reset, (24 - u64::from(hours)) * 3_600_000_000);
    }
    assert_eq!(admitted(&h, "k", day, 3).await, 2);
    h.at(24 * 60 * MINUTE);
    assert_eq!(admitted(&h, "k", day, 3).await, 2);
}

async fn fixed_windows_let_twice_the_limit_through_at_a_boundary(h: Harness) {
    for (algorithm, more) in [(FixedWindow, 60), (SlidingWindowLog, 0), (SlidingWindowCounter, 0)] {
        let limit = limit(algorithm, 60, MINUTE);
        h.at(59 * SECOND);
        assert_eq!(admitted(&h, algorithm.name(), limit, 70).await, 60);
        h.at(60 * SECOND);
        assert_eq!(admitted(&h, algorithm.name(), limit, 70).await, more, "{algorithm:?}");
    }
}

async fn calendar_windows_follow_their_bounds(h: Harness) {
    let day = |days: i64| {
        let seconds = MIDNIGHT.as_secs().saturating_add_signed(days * 86_400);
        tollgate::model::Timestamp::from_secs(seconds)
    };
    let window = Window::Calendar([day(-31), day(0), day(28), day(59)]);
    let limit = Limit { window, ..limit(FixedWindow, 1, SECOND) };
    let at_day = |days: u32| h.at(days * 24 * 60 * MINUTE);
    at_day(27);
    assert_eq!(h.take("k", limit, 1).await.reset, 86_400_000_000);
    assert!(!h.take("k", limit, 1).await.allowed);
    at_day(28);
    let verdict = h.take("k", limit, 1).await;
    assert_eq!((verdict.allowed, verdict.reset), (true, 31 * 86_400_000_000));
}

async fn a_log_never_admits_more_than_the_limit(h: Harness) {
    let limit = limit(SlidingWindowLog, 5, SECOND);
    let mut admitted = Vec::new();
    for tick in 0..200 {
        h.at(millis(50 * tick));
        if h.take("k", limit, 1).await.allowed {
            admitted.push(50 * tick);
        }
    }
    assert_eq!(admitted.len(), 50);
    for start in &admitted {
        let inside = admitted.iter().filter(|at| (*start..start + 1_000).contains(at));
        assert!(inside.count() <= 5, "from {start}");
    }
}

async fn a_log_counts_hits_of_one_instant(h: Harness) {
    let limit = limit(SlidingWindowLog, 20, MINUTE);
    assert!(h.take("k", limit, 7).await.allowed);
    assert_eq!(admitted(&h, "k", limit, 500).await, 13);
    assert_eq!(h.used("k", limit).await, 20);
}

async fn a_log_lets_in_whoever_waits_although_it_refuses_many(h: Harness) {
    let limit = limit(SlidingWindowLog, 5, SECOND);
    for second in 0..20 {
        let mut passed = 0;
        for tick in 0..10 {
            h.at(second * SECOND + millis(100 * tick));
            passed += u32::from(h.take("k", limit, 1).await.allowed);
        }
        assert_eq!(passed, 5, "in second {second}");
    }
}

async fn a_counter_fades_the_previous_window(h: Harness) {
    let limit = limit(SlidingWindowCounter, 10, 10 * SECOND);
    h.at(9 * SECOND);
    assert!(h.take("k", limit, 10).await.allowed);
    h.at(10 * SECOND);
    let refused = h.take("k", limit, 1).await;
    assert_eq!((refused.allowed, refused.retry_after), (false, Some(1_000_000)));
    h.at(15 * SECOND);
    assert_eq!(h.used("k", limit).await, 5);
    h.at(30 * SECOND);
    assert_eq!(h.used("k", limit).await, 0);
}

async fn a_bucket_holds_no_more_than_its_burst(h: Harness) {
    for algorithm in [TokenBucket, Gcra] {
        let limit = limit(algorithm, 5, SECOND);
        h.at(Duration::ZERO);
        h.take(algorithm.name(), limit, 1).await;
        h.at(10 * SECOND);
        assert_eq!(admitted(&h, algorithm.name(), limit, 50).await, 5, "{algorithm:?}");
    }
}

async fn a_bucket_does_not_fill_up_at_once(h: Harness) {
    for algorithm in [TokenBucket, Gcra] {
        let limit = limit(algorithm, 3, SECOND);
        let mut passed = Vec::new();
        for tick in 0..300 {
            h.at(millis(100 * tick));
            if h.take(algorithm.name(), limit, 1).await.allowed {
                passed.push(tick);
            }
        }
        assert!((90..=93).contains(&passed.len()), "{algorithm:?}: {}", passed.len());
        let gaps = passed.windows(2).skip(5).map(|pair| pair[1] - pair[0]);
        assert!(gaps.into_iter().all(|gap| (3..=4).contains(&gap)), "{algorithm:?}: {passed:?}");
    }
}

async fn a_bucket_has_a_rate_apart_from_its_burst(h: Harness) {
    for algorithm in [TokenBucket, Gcra] {
        let limit = Limit { burst: 10, ..limit(algorithm, 600, MINUTE) };
        let mut passed = 0;
        for tick in 0..1_200 {
            h.at(millis(50 * tick));
            passed += u32::from(h.take(algorithm.name(), limit, 1).await.allowed);
        }
        assert!((600..=610).contains(&passed), "{algorithm:?}: {passed}");
    }
}

async fn a_refused_cost_leaves_a_bucket_as_it_was(h: Harness) {
    for algorithm in [TokenBucket, Gcra] {
        let limit = limit(algorithm, 10, SECOND);
        let key = algorithm.name();
        h.at(Duration::ZERO);
        h.take(key, limit, 8).await;
        assert!(!h.take(key, limit, 5).await.allowed);
        assert!(h.take(key, limit, 2).await.allowed, "{algorithm:?}");
        assert!(!h.take(key, limit, 1_000_000).await.allowed);
        h.at(millis(100));
        assert!(h.take(key, limit, 1).await.allowed, "{algorithm:?}");
    }
}

async fn token_bucket_and_gcra_decide_alike(h: Harness) {
    let mut seed = 7_u64;
    let mut now = 0;
    for _ in 0..300 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        now += (seed >> 40) % 300;
        h.at(millis(now));
        let hits = 1 + (seed >> 33) % 3;
        let of = |algorithm| Limit { burst: 7, ..limit(algorithm, 9, SECOND) };
        let tokens = h.take("tokens", of(TokenBucket), hits).await;
        assert_eq!(tokens, h.take("cells", of(Gcra), hits).await);
    }
}

async fn what_can_never_pass_has_no_wait(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 30, MINUTE);
        let verdict = h.take(algorithm.name(), limit, 150).await;
        assert_eq!((verdict.allowed, verdict.retry_after), (false, None), "{algorithm:?}");
        assert_eq!(verdict.remaining, 30, "{algorithm:?}");
        assert!(h.take(algorithm.name(), limit, 30).await.allowed, "{algorithm:?}");
        let all = h.take(algorithm.name(), limit, 30).await;
        assert!(all.retry_after.is_some(), "{algorithm:?}: all of the limit can pass later");
    }
}

async fn waiting_for_retry_after_suffices(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 7, SECOND);
        let key = algorithm.name();
        let mut now = millis(1_234);
        h.at(now);
        h.take(key, limit, 7).await;
        for _ in 0..5 {
            h.at(now);
            let refused = h.take(key, limit, 3).await;
            let wait = Duration::from_micros(refused.retry_after.unwrap());
            h.at(now + wait - Duration::from_micros(1));
            assert!(!h.take(key, limit, 3).await.allowed, "{algorithm:?} before {wait:?}");
            now += wait;
            h.at(now);
            assert!(h.take(key, limit, 3).await.allowed, "{algorithm:?} after {wait:?}");
            while h.take(key, limit, 1).await.allowed {}
        }
    }
}

async fn a_clock_that_steps_back_mints_nothing(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 4, SECOND);
        h.at(MINUTE);
        assert_eq!(admitted(&h, algorithm.name(), limit, 9).await, 4);
        for seconds in [50, 60, 10, 60, 59] {
            h.at(seconds * SECOND);
            assert_eq!(admitted(&h, algorithm.name(), limit, 9).await, 0, "{algorithm:?}");
        }
    }
}
