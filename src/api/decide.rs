//! The way of a request message to its decision, shared by gRPC and HTTP.

use std::sync::Arc;

use crate::api::convert::{self, RequestError};
use crate::clock::{Clock, Stopwatch};
use crate::limiter::{Limiter, LimiterError};
use crate::model::Decision;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::settings::Caps;
use crate::telemetry::{ErrorKind, Method, Metrics, events};

/// Why a call has no decision.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Limiter(#[from] LimiterError),
}

impl CallError {
    /// The kind, and the reason for the log.
    fn kind(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::Request(_) => (ErrorKind::Service, "request"),
            Self::Limiter(LimiterError::NoRules) => (ErrorKind::Service, "no_rules"),
            Self::Limiter(LimiterError::Store(error)) => (ErrorKind::Redis, error.reason()),
        }
    }
}

/// A limiter with the checks before it and the counts around it.
#[derive(Clone)]
pub struct Decider {
    limiter: Limiter,
    metrics: Arc<Metrics>,
    caps: Arc<Caps>,
}

impl Decider {
    pub fn new(limiter: Limiter, metrics: Arc<Metrics>, caps: Arc<Caps>) -> Self {
        Self { limiter, metrics, caps }
    }

    /// Most bytes that a message may have.
    pub fn message_bytes(&self) -> usize {
        self.caps.message_bytes
    }

    /// Decides `message` and counts the call under `method`.
    ///
    /// # Errors
    ///
    /// The request is at fault, or the limiter made no decision.
    pub async fn decide(
        &self,
        method: Method,
        message: &RateLimitRequest,
    ) -> Result<Decision, CallError> {
        let watch = Stopwatch::start();
        let answer = self.answer(message).await;
        if let Err(error) = &answer {
            let (kind, reason) = error.kind();
            events::call_failed(&self.metrics, kind, reason, error, Clock::System.now());
        }
        self.metrics.observe_call(method, watch.elapsed());
        answer
    }

    async fn answer(&self, message: &RateLimitRequest) -> Result<Decision, CallError> {
        let request = convert::to_request(message, &self.caps)?;
        Ok(self.limiter.should_rate_limit(&request).await?)
    }
}
