//! `envoy.service.ratelimit.v3.RateLimitService`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use prost::Message;
use tonic::Status;

use crate::api::decide::Decider;
use crate::api::frame::{self, Reader, ReplyBody};
use crate::api::{convert, status};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::telemetry::Method;

/// Path of the only method.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A call on its way to its answer.
pub struct Answer(State);

enum State {
    Reading(Arc<Decider>, Reader),
    Deciding(Pin<Box<dyn Future<Output = Response<ReplyBody>> + Send>>),
    Refused(Option<Status>),
}

impl Answer {
    pub fn new(decider: Arc<Decider>, request: Request<Incoming>) -> Self {
        if let Err(refused) = frame::check_encoding(request.headers()) {
            return Self(State::Refused(Some(refused)));
        }
        let reader = Reader::new(request.into_body(), decider.message_bytes());
        Self(State::Reading(decider, reader))
    }

    /// Once it is there. Not to be polled again then.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Response<ReplyBody>> {
        if let State::Reading(decider, reader) = &mut self.0 {
            self.0 = match ready!(reader.poll(context)) {
                Ok(message) => State::Deciding(Box::pin(decide(Arc::clone(decider), message))),
                Err(refused) => State::Refused(Some(refused)),
            };
        }
        match &mut self.0 {
            State::Deciding(deciding) => deciding.as_mut().poll(context),
            State::Refused(refused) => {
                let refused = refused.take().unwrap_or_else(status::no_message);
                Poll::Ready(refused.into_http())
            }
            State::Reading(..) => Poll::Pending,
        }
    }
}

async fn decide(decider: Arc<Decider>, message: Bytes) -> Response<ReplyBody> {
    let request = match RateLimitRequest::decode(message) {
        Ok(request) => request,
        Err(error) => return status::malformed(&error).into_http(),
    };
    match decider.decide(Method::ShouldRateLimit, &request).await {
        Ok(decision) => frame::reply(&convert::to_response(decision)),
        Err(error) => status::grpc(&error).into_http(),
    }
}
