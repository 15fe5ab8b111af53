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
            Self::Redis(_) => "redis",
        }
    }

    pub const REASONS: [&'static str; 4] = ["timeout", "connect", "malformed_reply", "redis"];
}
