//! What holds of every answer, whatever the rules, the calls and the time.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::model::AlgorithmKind;

const HOUR: u64 = 3_600 * SECOND;
const SECOND: u64 = 1_000_000;

#[derive(Debug, Clone)]
struct LimitText {
    algorithm: AlgorithmKind,
    amount: u32,
    burst: u32,
    unit: Unit,
    multiplier: u32,
    calendar: bool,
    always: bool,
}

#[derive(Debug, Clone)]
struct RuleText {
    limits: Vec<LimitText>,
    shadow: bool,
    quota: bool,
    shared: bool,
}

/// One descriptor: rule, value, hits, negative, override.
type Asked = (usize, u8, Option<u64>, bool, Option<(u32, Unit, u32)>);

#[derive(Debug, Clone)]
struct Step {
    asked: Vec<Asked>,
    hits_addend: u32,
    /// µs, back where negative.
    after: i64,
}

fn unit() -> impl Strategy<Value = Unit> {
    proptest::sample::select(Unit::ALL.to_vec())
}

fn limit() -> impl Strategy<Value = LimitText> {
    let kind = proptest::sample::select(AlgorithmKind::ALL.to_vec());
    (kind, 0..12_u32, 1..20_u32, unit(), 1..4_u32, any::<bool>(), any::<bool>()).prop_map(
        |(algorithm, amount, burst, unit, multiplier, calendar, always)| LimitText {
            algorithm,
            amount,
            // A bucket must refill within ten years.
            burst: if unit == Unit::Year { burst.min(3 * amount.max(1)) } else { burst },
            unit,
            multiplier,
            calendar: calendar
                && algorithm == AlgorithmKind::FixedWindow
                && unit.seconds() >= Unit::Day.seconds(),
            always,
        },
    )
}

fn rule() -> impl Strategy<Value = RuleText> {
    let limits = proptest::collection::vec(limit(), 1..4);
    (limits, 0..8_u8).prop_map(|(limits, flags)| RuleText {
        limits,
        shadow: flags == 1,
        quota: flags == 2 || flags == 3,
        shared: flags == 4,
    })
}

fn asked(rules: usize) -> impl Strategy<Value = Asked> {
    let extreme = proptest::sample::select(vec![0, 1, 1 << 53, (1 << 53) - 1, 1 << 63, u64::MAX]);
    let hits = prop_oneof![
        4 => Just(None),
        3 => (0..6_u64).prop_map(Some),
        1 => extreme.prop_map(Some),
    ];
    let over = prop_oneof![
        5 => Just(None),
        1 => (0..9_u32, unit(), 1..4_u32).prop_map(Some),
        1 => (Just(u32::MAX), unit(), 1..4_u32).prop_map(Some),
    ];
    (0..rules + 1, 0..2_u8, hits, prop::bool::weighted(0.1), over)
}

fn step(rules: usize) -> impl Strategy<Value = Step> {
    let day = 86_400_000_000_i64;
    let after = prop_oneof![
        4 => Just(0),
        3 => 0..2_000_000_i64,
        2 => 0..2 * day,
        1 => 0..800 * day,
        1 => -day..0,
    ];
    let asked = proptest::collection::vec(asked(rules), 1..4);
    let hits_addend = prop_oneof![4 => 0..4_u32, 1 => Just(u32::MAX)];
    (asked, hits_addend, after).prop_map(|(asked, hits_addend, after)| Step {
        asked,
        hits_addend,
        after,
    })
}

fn world() -> impl Strategy<Value = (Vec<RuleText>, Vec<Step>, bool, bool)> {
    let rules = proptest::collection::vec(rule(), 1..4);
    let mode = (prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    (rules, mode).prop_flat_map(|(rules, (shadow, quota))| {
        let steps = proptest::collection::vec(step(rules.len()), 1..40);
        (Just(rules), steps, Just(shadow), Just(quota))
    })
}

fn text(rules: &[RuleText]) -> String {
    let mut out = "domain: shop\ndescriptors:\n".to_owned();
    for (number, rule) in rules.iter().enumerate() {
        writeln!(out, "  - key: k{number}").unwrap();
        if rule.shared {
            out.push_str("    value: 'v*'\n    share_threshold: true\n");
        }
        writeln!(out, "    shadow_mode: {}\n    quota_mode: {}", rule.shadow, rule.quota).unwrap();
        out.push_str("    rate_limits:\n");
        for (place, limit) in rule.limits.iter().enumerate() {
            let LimitText { algorithm, amount, burst, unit, multiplier, .. } = limit;
            let algorithm_name = algorithm.name();
            write!(
                out,
                "      - {{ name: k{number}n{place}, requests_per_unit: {amount}, unit: {unit}, \
                 algorithm: {algorithm_name}"
            )
            .unwrap();
            if limit.calendar {
                out.push_str(", calendar: true");
            } else {
                write!(out, ", unit_multiplier: {multiplier}").unwrap();
            }
            if algorithm.has_burst() && *amount > 0 {
                write!(out, ", burst: {burst}").unwrap();
            }
            if limit.always {
                out.push_str(", charge: always");
            }
            out.push_str(" }\n");
        }
    }
    out
}

/// The longest window that `status` may speak of, in µs.
fn longest(rules: &[RuleText], status: &DescriptorStatus, asked: &Asked) -> u64 {
    let of = |unit: Unit, multiplier: u32| unit.seconds() * u64::from(multiplier) * SECOND;
    if let Some((_, unit, multiplier)) = asked.4 {
        return of(unit, multiplier);
    }
    let name = status.current_limit.as_ref().and_then(|limit| limit.name.as_deref()).unwrap();
    let place: usize = name.rsplit('n').next().unwrap().parse().unwrap();
    let limit = &rules[asked.0].limits[place];
    let length = of(limit.unit, limit.multiplier);
    match limit.algorithm {
        // Up to 31 or 366 days, and an hour of summer time.
        AlgorithmKind::FixedWindow if limit.calendar => of(limit.unit, 1) + 24 * HOUR,
        AlgorithmKind::SlidingWindowCounter => 2 * length,
        // Refused hits wait for the bucket to drain, from a full bucket of debt at most.
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra
            if status.retry_after.is_some() || rules[asked.0].shadow =>
        {
            let wait = length * 2 * u64::from(limit.burst) / u64::from(limit.amount.max(1));
            wait.max(length) + SECOND
        }
        _ => length,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn answers_stay_in_their_bounds_and_waits_suffice((rules, steps, shadow, quota) in world()) {
        let rig = rig_of(&text(&rules), |mode, _| {
            mode.shadow = shadow;
            mode.quota = quota;
        });
        let mut stepped_back = false;
        for step in steps {
            let now = rig.clock.now().as_micros();
            rig.clock.set(Timestamp::from_micros(now.saturating_add_signed(step.after)));
            stepped_back |= step.after < 0;
            let names: Vec<_> = step
                .asked
                .iter()
                .map(|(rule, value, ..)| (format!("k{rule}"), format!("v{value}")))
                .collect();
            let descriptors = step.asked.iter().zip(&names).map(|(asked, (key, value))| {
                let over = asked.4.map(|(requests_per_unit, unit, unit_multiplier)| {
                    LimitOverride { requests_per_unit, unit, unit_multiplier }
                });
                Descriptor {
                    entries: smallvec![Entry { key: key.as_bytes(), value: value.as_bytes() }],
                    limit: over,
                    hits_addend: asked.2,
                    is_negative_hits: asked.3,
                }
            });
            let request = request(descriptors, step.hits_addend);
            let answer = rig.ask(&request);
            prop_assert_eq!(answer.statuses.len(), step.asked.len());
            let mut wait = Some(0);
            for (status, asked) in answer.statuses.iter().zip(&step.asked) {
                let Some(limit) = &status.current_limit else {
                    prop_assert_eq!(status, &DescriptorStatus::default());
                    continue;
                };
                prop_assert!(status.limit_remaining <= limit.requests_per_unit, "{status:?}");
                let reset = status.duration_until_reset.unwrap();
                let most = longest(&rules, status, asked);
                prop_assert!(0 < reset && reset <= most, "{status:?}, at most {most}");
                if status.code == Code::OverLimit {
                    wait = wait.zip(status.retry_after).map(|(a, b): (u64, u64)| a.max(b).max(reset));
                }
            }
            if answer.overall_code == Code::Ok || stepped_back {
                continue;
            }
            // Charges of a refused call may use up what the same call needs elsewhere; so may
            // another descriptor of it with the same counter.
            let alone = step.asked.len() == 1
                && rules.get(step.asked[0].0).is_none_or(|rule| rule.limits.len() == 1);
            if let Some(wait) = wait.filter(|_| alone) {
                let now = rig.clock.now().as_micros();
                rig.clock.set(Timestamp::from_micros(now + wait));
                let again = rig.ask(&request);
                prop_assert_eq!(again.overall_code, Code::Ok, "{:?} then {:?}", answer, again);
            }
        }
    }
}
