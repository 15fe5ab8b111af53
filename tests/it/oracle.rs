//! Each algorithm against a naive account of its definition: every decision is recomputed from
//! the list of all hits admitted before, in exact fractions, and the stated bound must hold over
//! every interval of the window's length.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate::algorithm::{self, Refused};
use tollgate::model::{AlgorithmKind, Hits, Limit, Timestamp};

use crate::support::{MIDNIGHT, limit};

/// Hits and when they were admitted, µs, oldest first.
type History = [(u64, u64)];

/// Whether `hits` may pass at `now`, by the definition.
fn admits(limit: &Limit, history: &History, now: u64, hits: u64) -> bool {
    let window = limit.window.length();
    let in_window = |start: u64| -> u64 {
        history.iter().filter(|(at, _)| at / window == start).map(|(_, hits)| hits).sum()
    };
    let amount = u64::from(limit.amount);
    match limit.algorithm {
        AlgorithmKind::FixedWindow => in_window(now / window) + hits <= amount,
        AlgorithmKind::SlidingWindowLog => {
            let live = history.iter().filter(|(at, _)| at + window > now);
            live.map(|(_, hits)| hits).sum::<u64>() + hits <= amount
        }
        AlgorithmKind::SlidingWindowCounter => {
            let (previous, current) = (in_window(now / window - 1), in_window(now / window));
            // previous·(W − e)/W + current + hits ≤ N, times W
            current + hits <= amount
                && u128::from(previous) * u128::from(window - now % window)
                    <= u128::from(amount - current - hits) * u128::from(window)
        }
        AlgorithmKind::TokenBucket => has_tokens(limit, history, now, hits),
        AlgorithmKind::Gcra => conforms(limit, history, now, hits),
    }
}

/// Tokens, in 1/W of one: N are added per µs, up to B·W.
fn has_tokens(limit: &Limit, history: &History, now: u64, hits: u64) -> bool {
    let window = u128::from(limit.window.length());
    let full = u128::from(limit.burst) * window;
    let (mut tokens, mut last) = (full, 0);
    let mut refill = |tokens: u128, at: u64| {
        let added = u128::from(at - last) * u128::from(limit.amount);
        last = at;
        (tokens + added).min(full)
    };
    for &(at, hits) in history {
        tokens = refill(tokens, at) - u128::from(hits) * window;
    }
    refill(tokens, now) >= u128::from(hits) * window
}

/// The theoretical arrival time, in 1/N of a µs: a hit moves it on by T = W/N, that is by W.
fn conforms(limit: &Limit, history: &History, now: u64, hits: u64) -> bool {
    let increment = u128::from(limit.window.length());
    let scaled = |at: u64| u128::from(at) * u128::from(limit.amount);
    let arrival = history.iter().fold(0, |arrival: u128, &(at, hits)| {
        arrival.max(scaled(at)) + u128::from(hits) * increment
    });
    arrival.max(scaled(now)) + u128::from(hits) * increment
        <= scaled(now) + u128::from(limit.burst) * increment
}

/// The most hits that any interval of the window's length may see.
fn bound(limit: &Limit) -> u64 {
    let amount = u64::from(limit.amount);
    match limit.algorithm {
        AlgorithmKind::SlidingWindowLog => amount,
        AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindowCounter => 2 * amount,
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra => amount + u64::from(limit.burst),
    }
}

fn busiest(history: &History, window: u64) -> u64 {
    let from = |start: u64| -> u64 {
        let inside = history.iter().filter(|(at, _)| (start..start + window).contains(at));
        inside.map(|(_, hits)| hits).sum()
    };
    history.iter().map(|&(at, _)| from(at)).max().unwrap_or(0)
}

fn check(limit: &Limit, arrivals: &[(u64, u64)]) -> Result<(), TestCaseError> {
    let mut history = Vec::new();
    let mut state = None;
    let mut now = MIDNIGHT.as_micros();
    for &(gap, hits) in arrivals {
        now += gap;
        let at = Timestamp::from_micros(now);
        let verdict = algorithm::check(limit, &mut state, Hits::Take(hits), at, Refused::Uncharged);
        prop_assert_eq!(verdict.allowed, admits(limit, &history, now, hits), "at {}", now);
        if verdict.allowed {
            history.push((now, hits));
        }
        if let Some(wait) = verdict.retry_after {
            prop_assert!(admits(limit, &history, now + wait, hits), "{} suffices", wait);
            prop_assert!(!admits(limit, &history, now + wait - 1, hits), "{} is least", wait);
        } else if !verdict.allowed {
            prop_assert!(hits > limit.capacity(), "only what can never pass has no wait");
        }
        if let Some(state) = &state {
            let later = at + Duration::from_micros(verdict.reset);
            prop_assert_eq!(state.used(limit, later), 0, "unused after {}", verdict.reset);
        }
    }
    prop_assert!(busiest(&history, limit.window.length()) <= bound(limit));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn decisions_follow_the_definition_and_keep_the_bound(
        algorithm in select(AlgorithmKind::ALL.to_vec()),
        amount in 1..20_u32,
        burst in 1..30_u32,
        millis in 1..50_u64,
        arrivals in vec(
            (prop_oneof![2 => Just(0), 4 => 0..3_000_u64, 1 => 0..60_000_u64], 1..6_u64),
            1..80,
        ),
    ) {
        let plain = limit(algorithm, amount, Duration::from_millis(millis));
        let limit = if algorithm.has_burst() { Limit { burst, ..plain } } else { plain };
        check(&limit, &arrivals)?;
    }
}

/// The bounds are no wider than they must be.
#[track_caller]
fn check_reached(algorithm: AlgorithmKind, arrivals: &[(u64, u64)], want: u64) {
    let limit = limit(algorithm, 10, Duration::from_secs(1));
    let (mut state, mut history) = (None, Vec::new());
    for &(millis, hits) in arrivals {
        let at = MIDNIGHT + Duration::from_millis(millis);
        let hits_in = Hits::Take(hits);
        if algorithm::check(&limit, &mut state, hits_in, at, Refused::Uncharged).allowed {
            history.push((at.as_micros(), hits));
        }
    }
    assert_eq!(busiest(&history, 1_000_000), want);
    assert!(want <= bound(&limit));
}

#[test]
fn bursts_around_a_boundary_reach_the_bound() {
    check_reached(AlgorithmKind::FixedWindow, &[(999, 10), (1_000, 10), (1_001, 1)], 20);
    check_reached(AlgorithmKind::SlidingWindowLog, &[(999, 10), (1_000, 10), (1_998, 1)], 10);
    let trickle: Vec<(u64, u64)> = (1..1_000).map(|millis| (millis, 1)).collect();
    check_reached(AlgorithmKind::TokenBucket, &[&[(0, 10)], &trickle[..]].concat(), 19);
    check_reached(AlgorithmKind::Gcra, &[&[(0, 10)], &trickle[..]].concat(), 19);
    // All of the previous window came at its end: 9 of 10 hits are forgotten within it.
    let trickle = (1_000..1_999).map(|millis| (millis, 1));
    let late: Vec<(u64, u64)> = [(999, 10)].into_iter().chain(trickle).collect();
    check_reached(AlgorithmKind::SlidingWindowCounter, &late, 19);
}
