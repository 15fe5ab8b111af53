//! Why a store gives no verdict.

use std::sync::Arc;
use std::time::Duration;

use ::redis::RedisError;

/// Cheap to clone: one round trip may serve several callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("no connection to redis")]
    Connect(#[source] Arc<RedisError>),
    #[error("script answered {got} numbers where {want} were due")]
    MalformedReply { want: usize, got: usize },
    #[error("the server is stopping")]
    Stopped,
    #[error("redis command failed")]
    Redis(#[source] Arc<RedisError>),
}

impl StoreError {
    /// The `reason` label of store error metrics: a closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Connect(_) => "connect",
            Self::MalformedReply { .. } => "malformed_reply",
            Self::Stopped => "stopped",
            Self::Redis(_) => "redis",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::STORE_ERRORS;

    #[test]
    fn every_reason_has_its_metric_from_the_start() {
        let redis = || Arc::new(RedisError::from(std::io::Error::other("x")));
        let all = [
            StoreError::Timeout(Duration::ZERO),
            StoreError::Connect(redis()),
            StoreError::MalformedReply { want: 1, got: 0 },
            StoreError::Stopped,
            StoreError::Redis(redis()),
        ];
        assert_eq!(all.each_ref().map(StoreError::reason), STORE_ERRORS);
    }
}
