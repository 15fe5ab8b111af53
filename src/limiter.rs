//! One request in, one decision out.

mod error;

pub use error::LimiterError;

use crate::model::{Decision, Request};

/// Decides requests. One per worker thread; a clone shares rules, metrics and counters.
#[derive(Clone)]
pub struct Limiter {}

impl Limiter {
    /// Finds the rules of `request`, asks the store once, and reports.
    ///
    /// # Errors
    ///
    /// No decision was made; hits may have been counted if the store failed.
    pub async fn should_rate_limit(&self, request: &Request<'_>) -> Result<Decision, LimiterError> {
        let _ = request;
        Err(LimiterError::NoRules)
    }
}
