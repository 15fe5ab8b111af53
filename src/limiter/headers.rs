//! The three rate-limit headers that a proxy may add to its response.

use std::sync::Arc;

use super::plan::{Plan, Role};
use super::report::Outcomes;
use crate::model::{DescriptorStatus, Header};
use crate::settings::HeaderNames;

#[derive(Debug)]
pub(super) struct Names {
    limit: Arc<str>,
    remaining: Arc<str>,
    reset: Arc<str>,
}

impl Names {
    pub(super) fn new(names: &HeaderNames) -> Self {
        Self {
            limit: names.limit.as_str().into(),
            remaining: names.remaining.as_str().into(),
            reset: names.reset.as_str().into(),
        }
    }
}

/// Of the last descriptor that is over a limit, else of the one with the least remaining; none
/// where no limit applied.
pub(super) fn write(names: &Names, plan: &Plan<'_>, outcomes: &[Outcomes]) -> Vec<Header> {
    let over = plan
        .descriptors
        .iter()
        .zip(outcomes)
        .rfind(|(planned, outcome)| outcome.over && planned.role == Role::Enforced)
        .map(|(_, outcome)| &outcome.status);
    let tightest = || {
        outcomes
            .iter()
            .map(|outcome| &outcome.status)
            .filter(|status| status.current_limit.is_some())
            .min_by_key(|status| status.limit_remaining)
    };
    over.or_else(tightest).map_or_else(Vec::new, |status| of(names, status))
}

fn of(names: &Names, status: &DescriptorStatus) -> Vec<Header> {
    let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    let reset = status.duration_until_reset.unwrap_or_default().div_ceil(1_000_000);
    let header = |name: &Arc<str>, value: String| Header { name: Arc::clone(name), value };
    vec![
        header(&names.limit, limit.to_string()),
        header(&names.remaining, status.limit_remaining.to_string()),
        header(&names.reset, reset.to_string()),
    ]
}
