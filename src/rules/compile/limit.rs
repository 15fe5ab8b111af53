//! `rate_limit` and `rate_limits`: what each field means together with the others.

use std::sync::Arc;

use super::{Defaults, Faults, Fields, Placed, Record, RuleLimit, required};
use crate::key::{KeyHead, KeyWindow};
use crate::model::{AlgorithmKind, MAX_WINDOW, Unit};
use crate::rules::field::LEAKY_BUCKET;
use crate::rules::yaml::{Span, shorten};
use crate::rules::{Calendar, RuleWindow};

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
    let mut names: Vec<(&str, Span)> = Vec::new();
    let mut replaced: Vec<Placed<&str>> = Vec::new();
    for (place, node) in single.into_iter().chain(items).enumerate() {
        faults.enter(match single {
            Some(_) => "rate_limit".to_owned(),
            None => format!("rate_limits[{place}]"),
        });
        if let Some(record) = Record::read(node, Fields::Limit, faults) {
            let name = record.text("name").filter(|name| !name.value.is_empty());
            if let Some(name) = name {
                if names.iter().any(|(other, _)| *other == name.value) {
                    let message = format!("two limits of one rule have the name `{}`", name.value);
                    faults.add(name.span, message).help("give each a name of its own");
                }
                names.push((name.value, name.span));
            }
            replaced.extend(replaces(&record, faults));
            if record.bool("unlimited").unwrap_or(false) {
                out.unlimited = true;
                refuse_with_unlimited(&record, items.len(), faults);
            } else {
                let found = faults.count();
                let limit = limit(&record, place, name, defaults, faults);
                out.list.extend(limit.filter(|_| faults.count() == found));
            }
        }
        faults.leave();
    }
    for name in replaced {
        if names.iter().any(|(own, _)| *own == name.value) {
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
    place: usize,
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
    let shape = window(record, algorithm, faults)?;
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
    let Defaults { charge, on_store_failure } = defaults.overridden(record);
    Some(RuleLimit {
        name: name.map(|name| name.value.into()),
        algorithm,
        amount,
        burst,
        key_head: KeyHead::new(algorithm, key_window, place),
        window: shape.window,
        unit: shape.unit,
        unit_multiplier: shape.unit_multiplier,
        charge,
        on_store_failure,
    })
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

/// A window and how it is reported.
struct Shape {
    window: RuleWindow,
    unit: Option<Unit>,
    unit_multiplier: u32,
}

fn window(
    record: &Record<'_, '_>,
    algorithm: AlgorithmKind,
    faults: &mut Faults<'_>,
) -> Option<Shape> {
    let calendar = record.bool("calendar").unwrap_or(false);
    if let (false, Some(span)) = (calendar, record.key("timezone")) {
        faults.add(span, "`timezone` without `calendar`").help("add `calendar: true`");
    }
    if let Some(at_window) = record.key("window") {
        for name in ["unit", "unit_multiplier", "calendar"] {
            if let Some(span) = record.key(name) {
                let span = if name == "unit" { at_window } else { span };
                faults
                    .add(span, format!("both `window` and `{name}`"))
                    .help("keep `window`, or `unit` with its `unit_multiplier`");
            }
        }
        let text = record.text("window")?;
        let length = match length(text.value) {
            Ok(length) => length,
            Err((message, help)) => {
                faults.add(text.span, message).help(help);
                return None;
            }
        };
        let unit =
            Unit::ALL.into_iter().rev().find(|unit| length % (unit.seconds() * 1_000_000) == 0);
        let multiplier = unit.map_or(1, |unit| length / (unit.seconds() * 1_000_000));
        let unit_multiplier = u32::try_from(multiplier).ok()?;
        return Some(Shape { window: RuleWindow::Length(length), unit, unit_multiplier });
    }
    let Some(unit) = record.word("unit").and_then(Unit::from_name) else {
        if record.key("unit").is_none() {
            faults
                .add(record.span, "a limit without a `unit`")
                .help("expected `unit`, `window` or `unlimited: true`");
        }
        return None;
    };
    let multiplier = record.count("unit_multiplier");
    if calendar {
        let calendar = self::calendar(record, algorithm, unit, multiplier, faults)?;
        return Some(Shape {
            window: RuleWindow::Calendar(calendar),
            unit: Some(unit),
            unit_multiplier: 1,
        });
    }
    let unit_multiplier = multiplier.map_or(1, |multiplier| multiplier.value);
    let length = unit.seconds() * 1_000_000 * u64::from(unit_multiplier);
    if let Some(Placed { span, value }) = multiplier {
        if value == 0 {
            faults
                .add(span, "a `unit_multiplier` of 0 makes no window")
                .help("expected at least 1");
            return None;
        }
        if length > MAX_WINDOW {
            faults
                .add(span, format!("a window of {value} {unit}s is longer than ten years"))
                .help("expected at most 3650 days");
            return None;
        }
    }
    Some(Shape { window: RuleWindow::Length(length), unit: Some(unit), unit_multiplier })
}

fn calendar(
    record: &Record<'_, '_>,
    algorithm: AlgorithmKind,
    unit: Unit,
    multiplier: Option<Placed<u32>>,
    faults: &mut Faults<'_>,
) -> Option<Calendar> {
    let span = record.key("calendar").unwrap_or(record.span);
    if algorithm != AlgorithmKind::FixedWindow {
        faults
            .add(span, format!("`{}` has no calendar windows", algorithm.name()))
            .help("remove `calendar`, or use `fixed_window`");
        return None;
    }
    if let Some(multiplier) = multiplier.filter(|multiplier| multiplier.value != 1) {
        faults
            .add(multiplier.span, "a calendar window is one unit long")
            .help("remove `unit_multiplier`, or `calendar`");
    }
    if Calendar::try_new(unit, "UTC").is_none() {
        faults
            .add(span, format!("a {unit} has no calendar"))
            .help("expected `unit` day, week, month or year");
        return None;
    }
    let zone = record.text("timezone");
    let calendar = Calendar::try_new(unit, zone.map_or("UTC", |zone| zone.value));
    if let (None, Some(zone)) = (&calendar, zone) {
        faults
            .add(zone.span, format!("unknown time zone `{}`", shorten(zone.value)))
            .help("expected an IANA name such as `Europe/Paris`");
    }
    calendar
}

/// Reads `1h30m` as µs: a whole number of milliseconds, at most [`MAX_WINDOW`].
fn length(text: &str) -> Result<u64, (String, &'static str)> {
    const HELP: &str = "expected a length with its unit (ms, s, m, h, d, w), such as `500ms`, \
                        `90s` or `1h30m`";
    const RANGE: &str = "expected whole milliseconds, from `1ms` to `3650d`";
    let shown = shorten(text);
    let invalid = || (format!("`{shown}` is not a length of time"), HELP);
    if text.parse::<f64>().is_ok() {
        return Err((format!("`window: {shown}` has no unit"), HELP));
    }
    let mut total: u128 = 0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(invalid)?;
        let whole: u32 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(invalid)?;
            (fraction, rest) = after.split_at(digits);
            if fraction.is_empty() || fraction.len() > 9 {
                return Err(invalid());
            }
        }
        let end = rest.find(|letter: char| !letter.is_alphabetic()).unwrap_or(rest.len());
        let micros: u128 = match &rest[..end] {
            "us" | "µs" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            "w" => 604_800_000_000,
            _ => return Err(invalid()),
        };
        rest = rest[end..].trim_start();
        let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse().unwrap_or(0) };
        let value = (u128::from(whole) * scale + parts) * micros;
        if value % scale != 0 {
            return Err((format!("`{shown}` is not a whole number of milliseconds"), RANGE));
        }
        total += value / scale;
    }
    match total {
        0 => Err((format!("`{shown}` is no time at all"), RANGE)),
        length if length % 1_000 != 0 => {
            Err((format!("`{shown}` is not a whole number of milliseconds"), RANGE))
        }
        length => match u64::try_from(length) {
            Ok(length) if length <= MAX_WINDOW => Ok(length),
            _ => Err((format!("`{shown}` is longer than ten years"), RANGE)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_carry_units() {
        for (text, want) in [
            ("90s", Ok(90_000_000)),
            ("1h30m", Ok(5_400_000_000)),
            ("1h 30m", Ok(5_400_000_000)),
            ("500ms", Ok(500_000)),
            ("1.5s", Ok(1_500_000)),
            ("2000us", Ok(2_000)),
            ("3650d", Ok(MAX_WINDOW)),
            ("3651d", Err("`3651d` is longer than ten years")),
            ("90", Err("`window: 90` has no unit")),
            ("1.5", Err("`window: 1.5` has no unit")),
            ("1500us", Err("`1500us` is not a whole number of milliseconds")),
            ("0.0001ms", Err("`0.0001ms` is not a whole number of milliseconds")),
            ("0s", Err("`0s` is no time at all")),
            ("s", Err("`s` is not a length of time")),
            ("5 s", Err("`5 s` is not a length of time")),
            ("-5s", Err("`-5s` is not a length of time")),
            ("5y", Err("`5y` is not a length of time")),
            ("99999999999s", Err("`99999999999s` is not a length of time")),
        ] {
            let got = length(text).map_err(|(message, _)| message);
            assert_eq!(got, want.map_err(str::to_owned), "{text}");
        }
    }
}
