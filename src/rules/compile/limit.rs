//! `rate_limit` and `rate_limits`: what each field means together with the others.

use std::sync::Arc;

use super::{Defaults, Faults, Fields, Placed, Record, RuleLimit, required, window};
use crate::key::{KeyHead, KeyWindow};
use crate::model::{AlgorithmKind, Consistency, MAX_WINDOW};
use crate::rules::RuleWindow;
use crate::rules::field::LEAKY_BUCKET;
use crate::rules::yaml::shorten;

/// Most hits of a log without `allow_large_log`.
const LARGE_LOG: u32 = 10_000;

/// The limits of one rule.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) list: Vec<RuleLimit>,
    pub(super) unlimited: bool,
    pub(super) replaces: Vec<Arc<str>>,
}

/// `None` for a descriptor without limits.
pub(super) fn limits(
    record: &Record<'_, '_>,
    defaults: Defaults,
    faults: &mut Faults<'_>,
) -> Option<Limits> {
    let several = record.key("rate_limits");
    if let (Some(_), Some(span)) = (record.key("rate_limit"), several) {
        faults
            .add(span, "both `rate_limit` and `rate_limits`")
            .help("keep one: `rate_limits` takes any number of limits");
    }
    let single = record.node("rate_limit");
    let items = record.items("rate_limits");
    if let (Some(span), []) = (several.filter(|_| record.node("rate_limits").is_some()), items) {
        faults.add(span, "`rate_limits` is empty").help("give a limit, or leave the field out");
    }
    if single.is_none() && several.is_none() {
        return None;
    }
    let mut out = Limits::default();
    let mut names: Vec<&str> = Vec::new();
    let mut replaced: Vec<Placed<&str>> = Vec::new();
    for (place, node) in single.into_iter().chain(items).enumerate() {
        faults.enter(match single {
            Some(_) => "rate_limit".to_owned(),
            None => format!("rate_limits[{place}]"),
        });
        if let Some(record) = Record::read(node, Fields::Limit, faults) {
            let name = record.text("name").filter(|name| !name.value.is_empty());
            if let Some(name) = name {
                if names.contains(&name.value) {
                    let name_text = shorten(name.value);
                    let message = format!("two limits of one rule have the name `{name_text}`");
                    faults.add(name.span, message).help("give each a name of its own");
                }
                names.push(name.value);
            }
            replaced.extend(replaces(&record, faults));
            if record.bool("unlimited").unwrap_or(false) {
                out.unlimited = true;
                refuse_with_unlimited(&record, items.len(), faults);
            } else {
                let found = faults.count();
                let limit = limit(&record, &out.list, name, defaults, faults);
                out.list.extend(limit.filter(|_| faults.count() == found));
            }
        }
        faults.leave();
    }
    for name in replaced {
        if names.contains(&name.value) {
            let message = format!("`{}` replaces a limit of its own rule", shorten(name.value));
            faults.add(name.span, message).help("name limits of other rules");
        }
        if out.replaces.iter().all(|other| **other != *name.value) {
            out.replaces.push(name.value.into());
        }
    }
    Some(out)
}

fn replaces<'a>(record: &Record<'a, '_>, faults: &mut Faults<'_>) -> Vec<Placed<&'a str>> {
    let mut names = Vec::new();
    for item in record.items("replaces") {
        let Some(item) = Record::read(item, Fields::Replaces, faults) else { continue };
        names.extend(required(&item, "name", "an item of `replaces` without a `name`", faults));
    }
    names
}

fn refuse_with_unlimited(record: &Record<'_, '_>, limits: usize, faults: &mut Faults<'_>) {
    const MEANINGLESS: [&str; 8] = [
        "unit",
        "unit_multiplier",
        "window",
        "algorithm",
        "burst",
        "calendar",
        "timezone",
        "allow_large_log",
    ];
    for name in MEANINGLESS {
        if let Some(span) = record.key(name) {
            faults
                .add(span, format!("`{name}` has no meaning with `unlimited`"))
                .help("remove one of them");
        }
    }
    if limits > 1 {
        faults
            .add(record.span, "`unlimited` beside other limits of the same rule")
            .help("keep `unlimited` alone, or the limits");
    }
}

/// Faults may have been found where there is a result.
fn limit(
    record: &Record<'_, '_>,
    earlier: &[RuleLimit],
    name: Option<Placed<&str>>,
    defaults: Defaults,
    faults: &mut Faults<'_>,
) -> Option<RuleLimit> {
    let algorithm = match record.word("algorithm") {
        None => AlgorithmKind::FixedWindow,
        Some(LEAKY_BUCKET) => AlgorithmKind::Gcra,
        Some(word) => AlgorithmKind::ALL.into_iter().find(|kind| kind.name() == word)?,
    };
    let amount = record.count("requests_per_unit").map_or(0, |amount| amount.value);
    let burst = burst(record, algorithm, faults).unwrap_or(amount);
    refuse_large_log(record, algorithm, amount, faults);
    let shape = window::read(record, algorithm, faults)?;
    if let (RuleWindow::Length(length), true) = (&shape.window, algorithm.has_burst()) {
        let refill = u128::from(burst) * u128::from(*length) / u128::from(amount.max(1));
        if refill > u128::from(MAX_WINDOW) {
            let span = record.key("burst").unwrap_or(record.span);
            faults
                .add(span, "the bucket takes more than ten years to refill")
                .help("lower `burst`, shorten the window, or raise `requests_per_unit`");
        }
    }
    let key_window = match &shape.window {
        RuleWindow::Length(length) => KeyWindow::Length(*length),
        RuleWindow::Calendar(calendar) => KeyWindow::Calendar(calendar.name()),
    };
    let head = |place| KeyHead::new(algorithm, key_window, place);
    let is_taken = |place: &usize| earlier.iter().any(|limit| limit.key_head == head(*place));
    let place = (0..).take_while(is_taken).count();
    let Defaults { charge, on_store_failure, consistency } = defaults.overridden(record);
    if consistency == Consistency::Leased {
        refuse_lease(record, algorithm, &shape.window, faults);
    }
    Some(RuleLimit {
        name: name.map(|name| name.value.into()),
        algorithm,
        amount,
        burst,
        key_head: head(place),
        window: shape.window,
        unit: shape.unit,
        unit_multiplier: shape.unit_multiplier,
        charge,
        on_store_failure,
        consistency,
    })
}

/// Hits of a lease are spent later than they are counted, which only a fixed window bears: there,
/// all times until its end are alike. The store alone tells when a calendar's window ends.
fn refuse_lease(
    record: &Record<'_, '_>,
    algorithm: AlgorithmKind,
    window: &RuleWindow,
    faults: &mut Faults<'_>,
) {
    let (field, what) = match window {
        _ if algorithm != AlgorithmKind::FixedWindow => {
            ("algorithm", format!("`{}`", algorithm.name()))
        }
        RuleWindow::Calendar(_) => ("calendar", "a calendar window".to_owned()),
        RuleWindow::Length(_) => return,
    };
    let span = record.key("consistency").or_else(|| record.key(field)).unwrap_or(record.span);
    faults
        .add(
            span,
            format!(
                "{what} cannot be `leased`: hits of a lease may be spent later than they were \
                 counted"
            ),
        )
        .help("expected `consistency: strict`, or a `fixed_window` with a length");
}

fn burst(
    record: &Record<'_, '_>,
    algorithm: AlgorithmKind,
    faults: &mut Faults<'_>,
) -> Option<u32> {
    let burst = record.count("burst")?;
    if !algorithm.has_burst() {
        let message = format!("`{}` has no `burst`", algorithm.name());
        faults.add(burst.span, message).help("remove it, or use `token_bucket` or `gcra`");
        return None;
    }
    if burst.value == 0 {
        faults
            .add(burst.span, "a `burst` of 0 lets nothing pass")
            .help("expected at least 1; to refuse all calls write `requests_per_unit: 0`");
    }
    Some(burst.value)
}

fn refuse_large_log(
    record: &Record<'_, '_>,
    algorithm: AlgorithmKind,
    amount: u32,
    faults: &mut Faults<'_>,
) {
    let is_log = algorithm == AlgorithmKind::SlidingWindowLog;
    match (record.bool("allow_large_log"), record.key("allow_large_log")) {
        (Some(_), Some(span)) if !is_log => {
            faults
                .add(span, format!("`{}` has no log", algorithm.name()))
                .help("remove `allow_large_log`");
        }
        (None | Some(false), _) if is_log && amount > LARGE_LOG => {
            let span = record.count("requests_per_unit").map_or(record.span, |it| it.span);
            faults.add(span, format!("a log of {amount} hits is slow and large")).help(format!(
                "expected at most {LARGE_LOG}; use `sliding_window_counter`, or set \
                     `allow_large_log: true`"
            ));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::{CompileOptions, SourceFile, compile};
    use crate::telemetry::RuleSeries;

    #[test]
    fn the_order_of_limits_is_no_part_of_their_counters() {
        let heads = |limits: &str| {
            let text = format!("domain: d\ndescriptors: [{{key: k, rate_limits: [{limits}]}}]");
            let file = SourceFile { name: "f".to_owned(), text };
            let rules =
                compile(&[file], CompileOptions::default(), &RuleSeries::default()).unwrap();
            let rule = rules.rules().next().unwrap();
            rule.limits.iter().map(|limit| format!("{:?}", limit.key_head)).collect::<Vec<_>>()
        };
        let [second, day] =
            ["{unit: second, requests_per_unit: 1}", "{unit: day, requests_per_unit: 2}"];
        let (one, other) = (heads(&format!("{second}, {day}")), heads(&format!("{day}, {second}")));
        assert_eq!(one, [other[1].clone(), other[0].clone()]);
        assert_eq!(heads(second), one[..1]);
        let twice = heads(&format!("{second}, {second}"));
        assert_ne!(twice[0], twice[1], "two of a kind are told apart");
    }
}
