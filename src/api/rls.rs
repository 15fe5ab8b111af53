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
    Refused(Status),
}

impl Answer {
    pub fn new(decider: Arc<Decider>, request: Request<Incoming>) -> Self {
        if let Err(refused) = frame::check_encoding(request.headers()) {
            return Self(State::Refused(refused));
        }
        let reader = Reader::new(request.into_body(), decider.message_bytes());
        Self(State::Reading(decider, reader))
    }
}

impl Future for Answer {
    type Output = Response<ReplyBody>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<ReplyBody>> {
        loop {
            self.0 = match &mut self.0 {
                State::Reading(decider, reader) => match ready!(reader.poll(context)) {
                    Ok(message) => State::Deciding(Box::pin(decide(Arc::clone(decider), message))),
                    Err(refused) => State::Refused(refused),
                },
                State::Deciding(deciding) => return deciding.as_mut().poll(context),
                State::Refused(refused) => return Poll::Ready(refused.clone().into_http()),
            };
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
