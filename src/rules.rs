//! The live rules: compiled from files, swapped whole, looked up per descriptor.
//!
//! Invariants:
//! - A `RuleSet` is valid and never changes; a reload makes a new one or keeps the old one.
//! - A lookup allocates nothing and does not grow with the number of exact, prefix and network
//!   rules; only regular expressions and globs with inner stars are tried one by one.

use std::sync::Arc;

use crate::key::KeyHead;
use crate::model::{
    AlgorithmKind, ChargeMode, Consistency, FailureMode, Limit, Metadata, Timestamp, Unit, Window,
};
use crate::telemetry::RuleMetrics;

mod calendar;
mod compile;
mod diagnostic;
mod dump;
mod explain;
mod field;
mod file;
mod handle;
mod pattern;
mod schema;
mod source;
mod tree;
mod watch;
mod yaml;

pub use calendar::Calendar;
pub use compile::{CompileOptions, SourceFile, compile};
pub use diagnostic::{Diagnostic, Place, RulesError};
pub use explain::{Explanation, LevelTrace, LimitTrace, Outcome, Tried, explain};
pub use handle::{RulesHandle, RulesStatus};
pub use schema::schema;
pub use source::load;
pub use tree::{Domain, Match, Node, RuleSet};
pub use watch::{Watcher, watch};

/// A node of the tree that a descriptor can end on.
#[derive(Debug)]
pub struct Rule {
    /// Domain and composites (`key` or `key_value`) joined by dots, as in `/rlconfig`.
    pub path: String,
    /// Empty for a rule that is unlimited, and for one listed only to exempt a value.
    pub limits: Vec<RuleLimit>,
    pub unlimited: bool,
    /// Names of the limits that this rule switches off in a request that matches both.
    pub replaces: Vec<Arc<str>>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    pub metadata: Option<Metadata>,
    /// Absent where every value has a series of its own, see [`Match::metric_levels`].
    pub metrics: Option<Arc<RuleMetrics>>,
}

/// One limit of a rule, with its own counter.
#[derive(Debug)]
pub struct RuleLimit {
    pub name: Option<Arc<str>>,
    pub algorithm: AlgorithmKind,
    pub amount: u32,
    pub burst: u32,
    pub window: RuleWindow,
    /// As configured; absent for a `window` that is no whole number of a unit.
    pub unit: Option<Unit>,
    pub unit_multiplier: u32,
    pub charge: ChargeMode,
    pub on_store_failure: FailureMode,
    pub consistency: Consistency,
    /// The part of the counter key that comes from the limit.
    pub key_head: KeyHead,
}

#[derive(Debug, Clone)]
pub enum RuleWindow {
    /// µs, see [`Window::Length`].
    Length(u64),
    Calendar(Calendar),
}

impl RuleLimit {
    /// The limit as a store evaluates it at about `now`, which only calendars need.
    pub fn at(&self, now: impl FnOnce() -> Timestamp) -> Limit {
        let window = match &self.window {
            RuleWindow::Length(length) => Window::Length(*length),
            RuleWindow::Calendar(calendar) => Window::Calendar(calendar.bounds(now())),
        };
        Limit { algorithm: self.algorithm, amount: self.amount, window, burst: self.burst }
    }
}
