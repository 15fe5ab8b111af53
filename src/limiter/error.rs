//! Why there is no decision.

use crate::store::StoreError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum LimiterError {
    #[error("no rate limit rules are loaded yet")]
    NoRules,
    #[error("counter store gave no verdict")]
    Store(#[source] StoreError),
}
