//! Rules as text: `/rlconfig` and the one-line form of a limit.

use std::fmt::{self, Write as _};

use super::{Rule, RuleLimit, RuleSet, RuleWindow};
use crate::model::{AlgorithmKind, Consistency};

impl RuleSet {
    /// A line per limit, in the reference's form with our fields after it, sorted.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        for rule in self.rules() {
            if rule.unlimited {
                line(&mut out, rule, "UNKNOWN", 0, "");
            }
            for limit in &rule.limits {
                let unit =
                    limit.unit.map_or("UNKNOWN".to_owned(), |unit| unit.name().to_uppercase());
                line(&mut out, rule, &unit, limit.amount, &extras(rule, limit));
            }
        }
        out
    }
}

fn line(out: &mut String, rule: &Rule, unit: &str, amount: u32, extras: &str) {
    let Rule { path, shadow_mode, quota_mode, .. } = rule;
    // Writing to a string does not fail.
    writeln!(
        out,
        "{path}: unit={unit} requests_per_unit={amount}, shadow_mode: {shadow_mode}, \
         quota_mode: {quota_mode}{extras}"
    )
    .unwrap_or_default();
}

/// What the reference's form has no place for.
fn extras(rule: &Rule, limit: &RuleLimit) -> String {
    let mut out = String::new();
    if limit.algorithm != AlgorithmKind::FixedWindow {
        out += &format!(", algorithm: {}", limit.algorithm.name());
    }
    if limit.algorithm.has_burst() {
        out += &format!(", burst: {}", limit.burst);
    }
    match &limit.window {
        RuleWindow::Calendar(calendar) => out += &format!(", calendar: {}", calendar.name()),
        RuleWindow::Length(length) if limit.unit.is_none() => {
            out += &format!(", window: {}ms", length / 1_000);
        }
        RuleWindow::Length(_) => {}
    }
    if limit.unit_multiplier != 1 {
        out += &format!(", unit_multiplier: {}", limit.unit_multiplier);
    }
    if limit.consistency == Consistency::Leased {
        out += ", consistency: leased";
    }
    if let (Some(name), true) = (&limit.name, rule.limits.len() > 1) {
        out += &format!(", name: {name}");
    }
    out
}

/// Such as `10 per second, token_bucket, burst 50 (name: burst)`.
impl fmt::Display for RuleLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per ", self.amount)?;
        match (&self.window, self.unit, self.unit_multiplier) {
            (RuleWindow::Calendar(calendar), ..) => write!(f, "calendar {}", calendar.name())?,
            (_, Some(unit), 1) => write!(f, "{unit}")?,
            (_, Some(unit), units) => write!(f, "{units} {unit}s")?,
            (RuleWindow::Length(length), None, _) => write!(f, "{} ms", length / 1_000)?,
        }
        if self.algorithm != AlgorithmKind::FixedWindow {
            write!(f, ", {}", self.algorithm.name())?;
        }
        if self.algorithm.has_burst() {
            write!(f, ", burst {}", self.burst)?;
        }
        match &self.name {
            Some(name) => write!(f, " (name: {name})"),
            None => Ok(()),
        }
    }
}
