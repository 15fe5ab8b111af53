//! The window of a limit: `unit` and `unit_multiplier`, `window`, or `calendar`.

use super::{Faults, Placed, Record};
use crate::model::{AlgorithmKind, MAX_WINDOW, Unit};
use crate::rules::yaml::shorten;
use crate::rules::{Calendar, RuleWindow};

/// A window and how it is reported.
pub(super) struct Shape {
    pub(super) window: RuleWindow,
    /// Absent for a length that is no whole number of a unit.
    pub(super) unit: Option<Unit>,
    pub(super) unit_multiplier: u32,
}

/// `None` where there is no valid window, which is a fault.
pub(super) fn read(
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
        if record.key("unit").is_none() && !record.is_faulty("unlimited") {
            faults
                .add(record.span, "a limit without a `unit`")
                .help("expected `unit`, `window` or `unlimited: true`");
        }
        return None;
    };
    let multiplier = record.count("unit_multiplier");
    if calendar {
        let calendar = calendar_window(record, algorithm, unit, multiplier, faults)?;
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

fn calendar_window(
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
            .add(span, format!("unit `{unit}` has no calendar"))
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
        if !value.is_multiple_of(scale) {
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
