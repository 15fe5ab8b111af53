//! What a call charges: everything if it is admitted, and else only what is always charged.

use std::time::Duration;

use tollgate::model::AlgorithmKind::{self, FixedWindow, Gcra, SlidingWindowLog, TokenBucket};
use tollgate::model::{Charge, Check, Effect, Hits, Limit, MAX_HITS};

use super::{Harness, for_each_store};
use crate::support::{call, check, limit};

for_each_store![
    a_denied_call_charges_nothing_anywhere,
    a_denied_call_shows_what_is_left_without_it,
    an_always_charged_check_goes_past_the_limit,
    an_always_charged_check_is_charged_in_a_denied_call,
    a_look_takes_nothing_and_passes_at_the_limit,
    a_refund_gives_back_what_was_used_and_no_more,
    a_refund_counts_in_a_denied_call,
    a_shadowed_check_does_not_deny_and_is_charged,
    one_quota_group_of_two_does_not_deny,
    all_quota_groups_over_deny,
    duplicates_in_a_call_see_each_other,
    a_refused_duplicate_takes_the_first_back,
    calls_of_a_batch_see_each_other,
    counters_are_apart,
    huge_hits_saturate,
    a_limit_of_zero_denies_and_stores_nothing,
    a_raised_limit_keeps_what_was_used,
    a_lowered_limit_denies_at_once,
    debt_is_at_most_one_bucket,
];

const MINUTE: Duration = Duration::from_secs(60);

fn per_minute(amount: u32) -> Limit {
    limit(FixedWindow, amount, MINUTE)
}

fn always(check: Check) -> Check {
    Check { charge: Charge::Always, ..check }
}

fn with_effect(effect: Effect, check: Check) -> Check {
    Check { effect, ..check }
}

async fn a_denied_call_charges_nothing_anywhere(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        for hits in [1, 2] {
            for swapped in [false, true] {
                let name = |part: &str| format!("{part} {algorithm:?} {hits} {swapped}");
                let (special, group) = (name("special"), name("group"));
                let (few, many) = (limit(algorithm, 6, MINUTE), limit(algorithm, 20, MINUTE));
                let mut both =
                    [check(&special, few, Hits::Take(hits)), check(&group, many, Hits::Take(hits))];
                if swapped {
                    both.reverse();
                }
                let mut admitted = 0;
                for _ in 0..9 {
                    let allowed = h.allowed(&both).await;
                    admitted += u64::from(allowed.iter().all(|allowed| *allowed));
                }
                assert_eq!(admitted, 6 / hits, "{special}");
                assert_eq!(h.used(&group, many).await, 6, "{group}");
            }
        }
    }
}

async fn a_denied_call_shows_what_is_left_without_it(h: Harness) {
    let (wide, narrow) = (per_minute(10), per_minute(3));
    h.take("narrow", narrow, 2).await;
    let verdicts =
        h.call(&[check("wide", wide, Hits::Take(2)), check("narrow", narrow, Hits::Take(2))]).await;
    assert_eq!((verdicts[0].allowed, verdicts[0].remaining), (true, 8), "as if admitted");
    assert_eq!((verdicts[1].allowed, verdicts[1].remaining), (false, 1), "what is really left");
    assert_eq!(h.used("wide", wide).await, 0);
}

async fn an_always_charged_check_goes_past_the_limit(h: Harness) {
    let limit = per_minute(100);
    assert_eq!(h.one("k", limit, Hits::Look).await.remaining, 100);
    let late = h.call(&[always(check("k", limit, Hits::Take(140)))]).await[0];
    assert_eq!((late.allowed, late.remaining, late.retry_after), (false, 0, None));
    let look = h.one("k", limit, Hits::Look).await;
    assert_eq!((look.allowed, look.used, look.remaining), (false, 140, 0));
}

async fn an_always_charged_check_is_charged_in_a_denied_call(h: Harness) {
    let (none, limit) = (per_minute(0), per_minute(10));
    let checks = [
        always(check("always", limit, Hits::Take(3))),
        check("admitted", limit, Hits::Take(3)),
        check("none", none, Hits::Take(1)),
    ];
    assert_eq!(h.allowed(&checks).await, [true, true, false]);
    assert_eq!((h.used("always", limit).await, h.used("admitted", limit).await), (3, 0));
}

async fn a_look_takes_nothing_and_passes_at_the_limit(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 5, MINUTE);
        let key = algorithm.name();
        h.take(key, limit, 5).await;
        for _ in 0..3 {
            let look = h.one(key, limit, Hits::Look).await;
            assert_eq!((look.allowed, look.used, look.remaining), (true, 5, 0), "{algorithm:?}");
        }
        assert!(!h.take(key, limit, 1).await.allowed);
    }
}

async fn a_refund_gives_back_what_was_used_and_no_more(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 5, MINUTE);
        let key = algorithm.name();
        let unused = h.one(key, limit, Hits::Refund(3)).await;
        assert_eq!((unused.allowed, unused.used, unused.remaining), (true, 0, 5), "{algorithm:?}");
        h.take(key, limit, 5).await;
        let refund = h.one(key, limit, Hits::Refund(2)).await;
        assert_eq!((refund.used, refund.remaining), (5, 2), "{algorithm:?}");
        let refund = h.one(key, limit, Hits::Refund(MAX_HITS)).await;
        assert_eq!((refund.used, refund.remaining), (3, 5), "{algorithm:?}");
        assert!(h.take(key, limit, 5).await.allowed);
        assert!(!h.take(key, limit, 1).await.allowed, "{algorithm:?}: no more than the limit");
    }
}

async fn a_refund_counts_in_a_denied_call(h: Harness) {
    let limit = per_minute(5);
    h.take("k", limit, 4).await;
    let checks = [check("k", limit, Hits::Refund(3)), check("none", per_minute(0), Hits::Take(1))];
    assert_eq!(h.allowed(&checks).await, [true, false]);
    assert_eq!(h.used("k", limit).await, 1);
}

async fn a_shadowed_check_does_not_deny_and_is_charged(h: Harness) {
    let (narrow, wide) = (per_minute(1), per_minute(10));
    let checks = [
        with_effect(Effect::Observe, check("shadow", narrow, Hits::Take(1))),
        check("wide", wide, Hits::Take(1)),
    ];
    assert_eq!(h.allowed(&checks).await, [true, true]);
    assert_eq!(h.allowed(&checks).await, [false, true]);
    assert_eq!((h.used("shadow", narrow).await, h.used("wide", wide).await), (2, 2));
    let alone = [with_effect(Effect::Observe, check("shadow", narrow, Hits::Take(1)))];
    assert_eq!(h.allowed(&alone).await, [false]);
    assert_eq!(h.used("shadow", narrow).await, 3);
}

async fn one_quota_group_of_two_does_not_deny(h: Harness) {
    let (narrow, wide) = (per_minute(1), per_minute(10));
    let checks = [
        with_effect(Effect::Quota(0), check("a", narrow, Hits::Take(1))),
        with_effect(Effect::Quota(1), check("b", wide, Hits::Take(1))),
    ];
    assert_eq!(h.allowed(&checks).await, [true, true]);
    assert_eq!(h.allowed(&checks).await, [false, true]);
    assert_eq!((h.used("a", narrow).await, h.used("b", wide).await), (2, 2), "all are charged");
}

async fn all_quota_groups_over_deny(h: Harness) {
    let narrow = per_minute(1);
    let quota = |group, key| with_effect(Effect::Quota(group), check(key, narrow, Hits::Take(1)));
    let checks = [quota(0, "a"), quota(0, "c"), quota(1, "b")];
    assert_eq!(h.allowed(&checks).await, [true; 3]);
    assert_eq!(h.allowed(&checks).await, [false; 3]);
    assert_eq!((h.used("a", narrow).await, h.used("b", narrow).await), (1, 1));
    // One refused check is enough for its group.
    let other = [quota(0, "a"), quota(0, "d"), quota(1, "b")];
    assert_eq!(h.allowed(&other).await, [false, true, false]);
    assert_eq!(h.used("d", narrow).await, 0);
    assert_eq!(h.allowed(&[quota(0, "a")]).await, [false], "a group alone denies");
    assert_eq!(h.used("a", narrow).await, 1);
}

async fn duplicates_in_a_call_see_each_other(h: Harness) {
    let limit = per_minute(3);
    let pair = [check("k", limit, Hits::Take(1)), check("k", limit, Hits::Take(1))];
    let verdicts = h.call(&pair).await;
    assert_eq!((verdicts[0].used, verdicts[1].used), (0, 1));
    assert_eq!((verdicts[0].remaining, verdicts[1].remaining), (2, 1));
}

async fn a_refused_duplicate_takes_the_first_back(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 3, MINUTE);
        let key = algorithm.name();
        h.take(key, limit, 2).await;
        let pair = [check(key, limit, Hits::Take(1)), check(key, limit, Hits::Take(1))];
        assert_eq!(h.allowed(&pair).await, [true, false], "{algorithm:?}");
        assert_eq!(h.used(key, limit).await, 2, "{algorithm:?}");
    }
}

async fn calls_of_a_batch_see_each_other(h: Harness) {
    let limit = per_minute(1);
    let one = || call([check("k", limit, Hits::Take(1))]);
    let both = call([check("k", limit, Hits::Take(1)), check("l", limit, Hits::Take(1))]);
    let verdicts = h.batch(&[one(), both, one(), call([])]).await;
    let allowed: Vec<bool> = verdicts.iter().map(|verdict| verdict.allowed).collect();
    assert_eq!(allowed, [true, false, true, false]);
    assert_eq!((h.used("k", limit).await, h.used("l", limit).await), (1, 0));
}

async fn counters_are_apart(h: Harness) {
    let limit = per_minute(2);
    h.take("1", limit, 2).await;
    assert!(!h.take("1", limit, 1).await.allowed);
    assert!(h.take("2", limit, 1).await.allowed);
}

async fn huge_hits_saturate(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let limit = limit(algorithm, 10, MINUTE);
        let huge = always(check(algorithm.name(), limit, Hits::Take(MAX_HITS)));
        for _ in 0..3 {
            let verdict = h.call(std::slice::from_ref(&huge)).await[0];
            assert_eq!((verdict.allowed, verdict.remaining), (false, 0), "{algorithm:?}");
            assert!(verdict.used <= MAX_HITS, "{algorithm:?}");
        }
        assert!(!h.one(algorithm.name(), limit, Hits::Look).await.allowed, "{algorithm:?}");
    }
}

async fn a_limit_of_zero_denies_and_stores_nothing(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let none = limit(algorithm, 0, MINUTE);
        let key = algorithm.name();
        let refused = h.take(key, none, 1).await;
        assert_eq!((refused.allowed, refused.retry_after), (false, None), "{algorithm:?}");
        h.call(&[always(check(key, none, Hits::Take(5)))]).await;
        assert_eq!(h.used(key, limit(algorithm, 9, MINUTE)).await, 0, "{algorithm:?}");
    }
}

async fn a_raised_limit_keeps_what_was_used(h: Harness) {
    for algorithm in AlgorithmKind::ALL {
        let (old, new) = (limit(algorithm, 10, MINUTE), limit(algorithm, 20, MINUTE));
        let mut admitted = [0, 0];
        for _ in 0..50 {
            admitted[0] += u32::from(h.take(algorithm.name(), old, 1).await.allowed);
        }
        for _ in 0..50 {
            admitted[1] += u32::from(h.take(algorithm.name(), new, 1).await.allowed);
        }
        assert_eq!(admitted, [10, 10], "{algorithm:?}");
    }
}

async fn a_lowered_limit_denies_at_once(h: Harness) {
    for algorithm in [FixedWindow, SlidingWindowLog] {
        h.take(algorithm.name(), limit(algorithm, 20, MINUTE), 15).await;
        let low = limit(algorithm, 10, MINUTE);
        let verdict = h.take(algorithm.name(), low, 1).await;
        assert_eq!((verdict.allowed, verdict.used, verdict.remaining), (false, 15, 0));
    }
}

async fn debt_is_at_most_one_bucket(h: Harness) {
    for algorithm in [TokenBucket, Gcra] {
        h.at(Duration::ZERO);
        let limit = limit(algorithm, 10, MINUTE);
        let key = algorithm.name();
        h.call(&[always(check(key, limit, Hits::Take(1_000_000)))]).await;
        // 20 of 10 are used: one bucket of debt drains in a minute, the next hit in a tenth.
        let verdict = h.take(key, limit, 1).await;
        assert_eq!((verdict.used, verdict.retry_after), (20, Some(66_000_000)), "{algorithm:?}");
        h.at(Duration::from_secs(66));
        assert!(h.take(key, limit, 1).await.allowed, "{algorithm:?}");
    }
}
