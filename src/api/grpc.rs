//! The services of the gRPC port, by path.
//!
//! The rate limit service is reached without a router; all others go through one.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower_service::Service;

use crate::api::decide::Decider;
use crate::api::frame::ReplyBody;
use crate::api::rls::{self, SHOULD_RATE_LIMIT};
use crate::api::status;
use crate::proto;

/// Answers calls of one worker.
#[derive(Clone)]
pub struct GrpcService {
    decider: Arc<Decider>,
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
        Ok(Self { decider: Arc::new(decider), others })
    }
}

impl hyper::service::Service<Request<Incoming>> for GrpcService {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() == SHOULD_RATE_LIMIT {
            return Answer::Rls(rls::Answer::new(Arc::clone(&self.decider), request));
        }
        let answer = self.others.clone().call(request.map(axum::body::Body::new));
        Answer::Other(Box::pin(async move {
            answer.await.map(|answer| answer.map(|body| Body::new(body).into()))
        }))
    }
}

type BoxFuture = Pin<Box<dyn Future<Output = Result<Response<ReplyBody>, Infallible>> + Send>>;

/// An answer on its way.
pub enum Answer {
    Rls(rls::Answer),
    Other(BoxFuture),
}

impl Future for Answer {
    type Output = Result<Response<ReplyBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Rls(answer) => Pin::new(answer).poll(context).map(Ok),
            Self::Other(answer) => answer.as_mut().poll(context),
        }
    }
}
