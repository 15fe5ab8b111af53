//! `envoy.service.ratelimit.v3.RateLimitService`.

use tonic::{Request, Response, Status};

use crate::api::decide::Decider;
use crate::api::{convert, status};
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::telemetry::Method;

pub struct RlsService {
    decider: Decider,
}

impl RlsService {
    pub fn new(decider: Decider) -> Self {
        Self { decider }
    }
}

#[tonic::async_trait]
impl RateLimitService for RlsService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        match self.decider.decide(Method::ShouldRateLimit, request.get_ref()).await {
            Ok(decision) => Ok(Response::new(convert::to_response(decision))),
            Err(error) => Err(status::grpc(&error)),
        }
    }
}
