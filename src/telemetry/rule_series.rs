//! The counters of each rule, shared by all rule sets that have the rule.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Most series whose names hold callers' values (`detailed_metric`, `value_to_metric`); further
/// values share one series per domain.
const MAX_DETAILED: usize = 10_000;
/// The level that stands for detailed series beyond [`MAX_DETAILED`].
const OTHER: &str = "other";
/// The level that stands for limits that callers bring along.
const OVERRIDE: &str = "override";

/// Hits by outcome.
#[derive(Debug, Default)]
pub struct RuleMetrics {
    counts: [AtomicU64; RuleCount::ALL.len()],
}

/// One count of a rule. The first five are statistics of the reference and mean what they mean
/// there; the last two tell whether the whole call was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleCount {
    TotalHits,
    WithinLimit,
    NearLimit,
    OverLimit,
    ShadowMode,
    Admitted,
    Denied,
}

impl RuleCount {
    pub const ALL: [Self; 7] = [
        Self::TotalHits,
        Self::WithinLimit,
        Self::NearLimit,
        Self::OverLimit,
        Self::ShadowMode,
        Self::Admitted,
        Self::Denied,
    ];
}

/// What a rule said of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Within,
    Over,
    /// Over, and let pass since the rule is in shadow mode.
    Shadowed,
}

/// The hits of one descriptor, split by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleHits([u64; RuleCount::ALL.len()]);

impl RuleHits {
    /// `used`: hits counted before these; `capacity`: the most that the counter takes; `ratio`:
    /// the share of it from which hits are near the limit; `admitted`: the whole call was.
    pub fn new(
        hits: u64,
        used: u64,
        capacity: u64,
        ratio: f32,
        outcome: Outcome,
        admitted: bool,
    ) -> Self {
        let near_from = near_threshold(capacity, ratio);
        let after = used.saturating_add(hits);
        let mut split = Self::default();
        split.set(RuleCount::TotalHits, hits);
        if outcome == Outcome::Within {
            split.set(RuleCount::WithinLimit, hits);
            split.set(RuleCount::NearLimit, after.saturating_sub(near_from.max(used)));
        } else {
            let over = after.saturating_sub(capacity.max(used));
            split.set(RuleCount::NearLimit, capacity.saturating_sub(near_from.max(used)));
            split.set(RuleCount::OverLimit, over);
            if outcome == Outcome::Shadowed {
                split.set(RuleCount::ShadowMode, over);
            }
        }
        split.set(if admitted { RuleCount::Admitted } else { RuleCount::Denied }, hits);
        split
    }

    /// Hits of a rule that has no limit.
    pub fn unlimited(hits: u64, admitted: bool) -> Self {
        let mut split = Self::default();
        split.set(RuleCount::TotalHits, hits);
        split.set(RuleCount::WithinLimit, hits);
        split.set(if admitted { RuleCount::Admitted } else { RuleCount::Denied }, hits);
        split
    }

    fn set(&mut self, count: RuleCount, hits: u64) {
        self.0[count as usize] = hits;
    }
}

/// ⌊capacity·ratio⌋ in single precision, as the reference computes it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a statistic that must match the reference's single-precision arithmetic"
)]
fn near_threshold(capacity: u64, ratio: f32) -> u64 {
    (capacity as f32 * ratio) as u64
}

impl RuleMetrics {
    pub fn add(&self, hits: RuleHits) {
        for (count, hits) in self.counts.iter().zip(hits.0) {
            if hits > 0 {
                count.fetch_add(hits, Ordering::Relaxed);
            }
        }
    }

    pub fn get(&self, count: RuleCount) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }
}

/// A domain and the composites of its levels.
pub(super) type SeriesPath = (String, Vec<String>);

/// Hands out one [`RuleMetrics`] per domain and path, so that counts outlive a reload.
#[derive(Debug, Default)]
pub struct RuleSeries {
    by_path: Mutex<HashMap<SeriesPath, Arc<RuleMetrics>>>,
    detailed: Mutex<HashMap<SeriesPath, Arc<RuleMetrics>>>,
}

impl RuleSeries {
    /// `levels`: the composite (`key` or `key_value`) of each level, outermost first.
    pub fn get(&self, domain: &str, levels: &[String]) -> Arc<RuleMetrics> {
        let path = (domain.to_owned(), levels.to_vec());
        Arc::clone(self.by_path.lock().entry(path).or_default())
    }

    /// Series named by callers' values, up to a cap.
    pub fn detailed(&self, domain: &str, levels: &[String]) -> Arc<RuleMetrics> {
        let path = (domain.to_owned(), levels.to_vec());
        let mut detailed = self.detailed.lock();
        if let Some(metrics) = detailed.get(&path) {
            return Arc::clone(metrics);
        }
        let path = if detailed.len() < MAX_DETAILED {
            path
        } else {
            (domain.to_owned(), vec![OTHER.to_owned()])
        };
        Arc::clone(detailed.entry(path).or_default())
    }

    /// The series of limits that callers bring along in `domain`, which must have rules.
    pub fn overrides(&self, domain: &str) -> Arc<RuleMetrics> {
        self.detailed(domain, &[OVERRIDE.to_owned()])
    }

    /// Forgets the series of rules that no longer exist.
    pub fn forget_unused(&self) {
        self.by_path.lock().retain(|_, metrics| Arc::strong_count(metrics) > 1);
    }

    /// Visits every series.
    pub fn for_each(&self, mut visit: impl FnMut(&SeriesPath, &RuleMetrics)) {
        for series in [&self.by_path, &self.detailed] {
            for (path, metrics) in &*series.lock() {
                visit(path, metrics);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 10, near from 8: near, over, within, shadowed.
    #[track_caller]
    fn check(hits: u64, used: u64, outcome: Outcome, want: [u64; 4]) {
        let split = RuleHits::new(hits, used, 10, 0.8, outcome, true).0;
        let got = [
            split[RuleCount::NearLimit as usize],
            split[RuleCount::OverLimit as usize],
            split[RuleCount::WithinLimit as usize],
            split[RuleCount::ShadowMode as usize],
        ];
        assert_eq!(got, want);
        assert_eq!(split[RuleCount::TotalHits as usize], hits);
    }

    #[test]
    fn hits_are_split_as_in_the_reference() {
        check(3, 5, Outcome::Within, [0, 0, 3, 0]);
        check(3, 7, Outcome::Within, [2, 0, 3, 0]);
        check(2, 8, Outcome::Within, [2, 0, 2, 0]);
        check(1, 10, Outcome::Over, [0, 1, 0, 0]);
        check(1, 12, Outcome::Shadowed, [0, 1, 0, 1]);
        check(5, 7, Outcome::Over, [2, 2, 0, 0]);
        check(5, 9, Outcome::Shadowed, [1, 4, 0, 4]);
    }

    #[test]
    fn detailed_series_are_capped() {
        let series = RuleSeries::default();
        for value in 0..MAX_DETAILED + 10 {
            series.detailed("shop", &[format!("user_{value}")]);
        }
        assert_eq!(series.detailed.lock().len(), MAX_DETAILED + 1);
    }
}
