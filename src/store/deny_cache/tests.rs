//! What the cache answers for, and what it must not.

use std::time::Duration;

use super::*;
use crate::model::Window;

const HOUR: u64 = 3_600_000_000;

fn check(key: &str, algorithm: AlgorithmKind, amount: u32, hits: u64) -> Check {
    Check {
        key: CounterKey::from_bytes(key.as_bytes()),
        limit: Limit { algorithm, amount, window: Window::Length(HOUR), burst: amount },
        hits: Hits::Take(hits),
        charge: Charge::Admitted,
        effect: Effect::Deny,
        consistency: Consistency::Strict,
    }
}

fn fixed(hits: u64) -> Check {
    check("k", AlgorithmKind::FixedWindow, 10, hits)
}

fn refusal(used: u64, remaining: u64) -> Verdict {
    Verdict { allowed: false, used, remaining, reset: HOUR, retry_after: Some(HOUR) }
}

fn cache_with(check: &Check, verdict: Verdict) -> DenyCache {
    let cache = DenyCache::new(1 << 16);
    cache.learn(check, &verdict, cache.before());
    cache
}

#[test]
fn a_refusal_answers_for_as_many_hits_and_more() {
    let cache = cache_with(&fixed(3), refusal(8, 2));
    assert!(cache.find(&fixed(2)).is_none(), "these may fit");
    let same = cache.find(&fixed(3)).unwrap();
    assert_eq!((same.allowed, same.used, same.remaining), (false, 8, 2));
    assert!(same.retry_after.unwrap() > HOUR - 1_000_000 && same.retry_after.unwrap() <= HOUR);
    assert!(cache.find(&fixed(10)).unwrap().retry_after.is_some());
    assert_eq!(cache.find(&fixed(11)).unwrap().retry_after, None, "never passes");
    assert_eq!(cache.hits(), 3);
}

#[test]
fn only_the_same_counter_and_limit_are_answered_for() {
    let cache = cache_with(&fixed(1), refusal(10, 0));
    assert!(cache.find(&check("other", AlgorithmKind::FixedWindow, 10, 1)).is_none());
    assert!(cache.find(&check("k", AlgorithmKind::FixedWindow, 11, 1)).is_none(), "raised");
    assert!(cache.find(&check("k", AlgorithmKind::FixedWindow, 9, 1)).is_none(), "lowered");
}

#[test]
fn what_is_charged_or_denies_nothing_is_never_answered_for() {
    let cache = cache_with(&fixed(1), refusal(10, 0));
    for other in [
        Check { charge: Charge::Always, ..fixed(1) },
        Check { effect: Effect::Observe, ..fixed(1) },
        Check { effect: Effect::Quota(0), ..fixed(1) },
        Check { consistency: Consistency::Leased, ..fixed(1) },
        Check { hits: Hits::Look, ..fixed(1) },
        Check { hits: Hits::Refund(1), ..fixed(1) },
    ] {
        assert!(cache.find(&other).is_none(), "{other:?}");
        let learnt = cache_with(&other, refusal(10, 0));
        assert!(learnt.find(&fixed(1)).is_none(), "{other:?}");
    }
}

#[test]
fn other_algorithms_answer_for_single_hits_alone() {
    for algorithm in AlgorithmKind::ALL.into_iter().skip(1) {
        let one = |hits| check("k", algorithm, 10, hits);
        assert!(cache_with(&one(1), refusal(10, 0)).find(&one(1)).is_some());
        assert!(cache_with(&one(1), refusal(10, 0)).find(&one(2)).is_none());
        assert!(cache_with(&one(2), refusal(9, 1)).find(&one(2)).is_none());
    }
}

#[test]
fn a_refund_drops_what_is_known_and_what_is_under_way() {
    let cache = cache_with(&fixed(1), refusal(10, 0));
    let sent = cache.before();
    cache.forget(&fixed(1).key);
    assert!(cache.find(&fixed(1)).is_none());
    cache.learn(&fixed(1), &refusal(10, 0), sent);
    assert!(cache.find(&fixed(1)).is_none(), "was refused before the refund");
    cache.learn(&fixed(1), &refusal(10, 0), cache.before());
    assert!(cache.find(&fixed(1)).is_some());
}

#[test]
fn an_entry_ends_counted_from_before_the_call_was_sent() {
    let cache = DenyCache::new(1 << 16);
    let sent = cache.before();
    std::thread::sleep(Duration::from_millis(2));
    let short = Verdict { reset: 2_000, retry_after: Some(2_000), ..refusal(10, 0) };
    cache.learn(&fixed(1), &short, sent);
    assert!(cache.find(&fixed(1)).is_none());
}

#[test]
fn verdicts_without_an_end_are_not_kept() {
    let never = Verdict { retry_after: None, ..refusal(0, 10) };
    assert!(cache_with(&fixed(11), never).find(&fixed(11)).is_none());
    let allowed = Verdict { allowed: true, retry_after: None, ..refusal(0, 9) };
    assert!(cache_with(&fixed(1), allowed).find(&fixed(1)).is_none());
}

#[test]
fn memory_is_fixed_and_the_first_to_end_makes_room() {
    let cache = DenyCache::new(size_of::<Mutex<[Entry; WAYS]>>());
    for (key, minutes) in [("a", 5), ("b", 1), ("c", 4), ("d", 3), ("e", 2)] {
        let wait = minutes * 60_000_000;
        let verdict = Verdict { reset: wait, retry_after: Some(wait), ..refusal(10, 0) };
        let one = check(key, AlgorithmKind::FixedWindow, 10, 1);
        cache.learn(&one, &verdict, cache.before());
    }
    let known = |key| cache.find(&check(key, AlgorithmKind::FixedWindow, 10, 1)).is_some();
    assert_eq!(["a", "b", "c", "d", "e"].map(known), [true, false, true, true, true]);
    let off = DenyCache::new(0);
    off.learn(&fixed(1), &refusal(10, 0), off.before());
    off.forget(&fixed(1).key);
    assert!(off.find(&fixed(1)).is_none());
}
