//! Errors and answers as gRPC codes and HTTP statuses, all of it.

use http::StatusCode;
use tonic::{Code as GrpcCode, Status};

use crate::api::convert::RequestError;
use crate::api::decide::CallError;
use crate::limiter::LimiterError;
use crate::model::Code;

pub const BAD_REQUEST: StatusCode = StatusCode::BAD_REQUEST;
pub const NOT_FOUND: StatusCode = StatusCode::NOT_FOUND;
pub const METHOD_NOT_ALLOWED: StatusCode = StatusCode::METHOD_NOT_ALLOWED;
pub const REQUEST_TIMEOUT: StatusCode = StatusCode::REQUEST_TIMEOUT;
pub const TOO_LARGE: StatusCode = StatusCode::PAYLOAD_TOO_LARGE;

/// The gRPC status of a call without a decision. What envoyproxy/ratelimit refuses as well has
/// its code, UNKNOWN.
pub fn grpc(error: &CallError) -> Status {
    match error {
        CallError::Request(fault) => {
            let code = match fault {
                RequestError::EmptyDomain | RequestError::NoDescriptors => GrpcCode::Unknown,
                RequestError::TooManyDescriptors { .. }
                | RequestError::TooManyEntries { .. }
                | RequestError::LongKey { .. }
                | RequestError::LongValue { .. } => GrpcCode::ResourceExhausted,
                RequestError::OverrideUnit { .. } | RequestError::OverrideWindow { .. } => {
                    GrpcCode::InvalidArgument
                }
            };
            Status::new(code, fault.to_string())
        }
        CallError::Limiter(LimiterError::NoRules) => {
            Status::unknown(LimiterError::NoRules.to_string())
        }
        CallError::Limiter(LimiterError::Store(_)) => Status::unavailable(store_text(error)),
    }
}

/// The HTTP status of a call without a decision.
pub fn http(error: &CallError) -> StatusCode {
    match error {
        CallError::Request(_) => StatusCode::BAD_REQUEST,
        CallError::Limiter(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// What a caller may read about `error`.
pub fn text(error: &CallError) -> String {
    match error {
        CallError::Limiter(LimiterError::Store(_)) => store_text(error),
        _ => error.to_string(),
    }
}

/// The closed set of reasons, and nothing of what the store's client says.
fn store_text(error: &CallError) -> String {
    match error {
        CallError::Limiter(LimiterError::Store(store)) => {
            format!("counter store unavailable: {}", store.reason())
        }
        _ => String::new(),
    }
}

/// The HTTP status of a decision.
pub fn decision(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
    }
}

/// The HTTP status of a health or readiness probe.
pub fn probe(healthy: bool) -> StatusCode {
    if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }
}

/// Health of a service name that is not kept.
pub fn unknown_service() -> Status {
    Status::not_found("unknown service")
}

/// A method that no service has.
pub fn unknown_method() -> Status {
    Status::unimplemented("unknown method")
}

/// A message over the cap, as of the other caps.
pub fn long_message(found: usize, cap: usize) -> Status {
    let text = format!("message has {found} bytes, at most {cap} are allowed");
    Status::resource_exhausted(text)
}

/// A message that is no message of the method's type.
pub fn malformed(error: &prost::DecodeError) -> Status {
    Status::internal(format!("message is not a RateLimitRequest: {error}"))
}

/// A call that ended before its message did.
pub fn no_message() -> Status {
    Status::internal("the call has no whole message")
}

/// A unary call with more than one message.
pub fn several_messages() -> Status {
    Status::internal("the call has more than one message")
}

/// A call with compressed messages.
pub fn compressed(encoding: &[u8]) -> Status {
    let encoding = encoding.escape_ascii();
    let mut status = Status::unimplemented(format!(
        "messages with the encoding `{encoding}` are not supported, send them with `identity`"
    ));
    let accepted = tonic::metadata::MetadataValue::from_static("identity");
    status.metadata_mut().insert("grpc-accept-encoding", accepted);
    status
}

/// A call whose stream broke off.
pub fn broken_stream(error: &hyper::Error) -> Status {
    Status::cancelled(format!("the call broke off: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::store::StoreError;

    #[track_caller]
    fn check(error: impl Into<CallError>, grpc_code: GrpcCode, http_status: u16, part: &str) {
        let error = error.into();
        let status = grpc(&error);
        assert_eq!(status.code(), grpc_code);
        assert!(status.message().contains(part), "`{}` lacks `{part}`", status.message());
        assert_eq!(text(&error), status.message());
        assert_eq!(http(&error), http_status);
    }

    #[test]
    fn faults_of_a_request_name_what_is_wrong() {
        check(RequestError::EmptyDomain, GrpcCode::Unknown, 400, "domain");
        check(RequestError::NoDescriptors, GrpcCode::Unknown, 400, "descriptor");
        let exhausted = GrpcCode::ResourceExhausted;
        let many = RequestError::TooManyDescriptors { found: 20, cap: 10 };
        check(many, exhausted, 400, "20 descriptors, at most 10");
        let many = RequestError::TooManyEntries { descriptor: 3, found: 20, cap: 10 };
        check(many, exhausted, 400, "descriptor 3 has 20 entries, at most 10");
        let long = RequestError::LongKey { descriptor: 1, entry: 2, found: 20, cap: 10 };
        check(long, exhausted, 400, "key of entry 2 in descriptor 1 has 20 bytes, at most 10");
        let long = RequestError::LongValue { descriptor: 1, entry: 2, found: 20, cap: 10 };
        check(long, exhausted, 400, "value of entry 2 in descriptor 1 has 20 bytes, at most 10");
        let unit = RequestError::OverrideUnit { descriptor: 0, unit: 99 };
        check(unit, GrpcCode::InvalidArgument, 400, "unit number 99");
    }

    #[test]
    fn trouble_of_the_service_is_told_without_details() {
        check(LimiterError::NoRules, GrpcCode::Unknown, 503, "no rate limit rules");
        let slow = LimiterError::Store(StoreError::Timeout(Duration::from_millis(15)));
        check(slow, GrpcCode::Unavailable, 503, "counter store unavailable: timeout");

        let secret = redis::RedisError::from(std::io::Error::other("redis://:hunter2@cache:6379"));
        let error = LimiterError::Store(StoreError::Redis(Arc::new(secret))).into();
        assert_eq!(grpc(&error).message(), "counter store unavailable: redis");
    }
}
