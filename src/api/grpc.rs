//! The services of the gRPC port, by path.
//!
//! The rate limit service is reached without a router; all others go through one.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Router;
use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower_service::Service;

use crate::api::decide::Decider;
use crate::api::rls::RlsService;
use crate::api::status;
use crate::proto;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;

type RlsServer = RateLimitServiceServer<RlsService>;

/// Answers calls of one worker.
#[derive(Clone)]
pub struct GrpcService {
    rls: RlsServer,
    others: Router,
}

impl GrpcService {
    /// # Errors
    ///
    /// The compiled-in descriptors are damaged.
    pub fn try_new(
        decider: Decider,
        health: impl Health,
    ) -> Result<Self, tonic_reflection::server::Error> {
        let message_bytes = decider.message_bytes();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::REFLECTION)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let others = Router::new()
            .route_service("/grpc.health.v1.Health/{*method}", HealthServer::new(health))
            .route_service(
                "/grpc.reflection.v1.ServerReflection/{*method}",
                reflection().build_v1()?,
            )
            .route_service(
                "/grpc.reflection.v1alpha.ServerReflection/{*method}",
                reflection().build_v1alpha()?,
            )
            .fallback(async || status::unknown_method().into_http::<axum::body::Body>());
        let rls = RlsServer::new(RlsService::new(decider)).max_decoding_message_size(message_bytes);
        Ok(Self { rls, others })
    }
}

impl hyper::service::Service<Request<Incoming>> for GrpcService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().strip_prefix('/').unwrap_or_default();
        if path.strip_prefix(RlsServer::NAME).is_some_and(|method| method.starts_with('/')) {
            return Answer(self.rls.clone().call(request));
        }
        let answer = self.others.clone().call(request.map(axum::body::Body::new));
        Answer(Box::pin(async move { answer.await.map(|answer| answer.map(Body::new)) }))
    }
}

type BoxFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// An answer on its way.
pub struct Answer(BoxFuture);

impl Future for Answer {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = ready!(self.0.as_mut().poll(context));
        if let Ok(response) = &mut answer {
            status::refine(response.headers_mut());
        }
        Poll::Ready(answer)
    }
}
