//! The HTTP port: the rate limit service as JSON, a plain check, and the probes.

mod check;
mod protojson;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use tokio::time::timeout;

use crate::api::decide::Decider;
use crate::api::{convert, status};
use crate::telemetry::Method;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// How long a request may take to arrive and be answered; nearly all of that is for a slow body.
const LONGEST_REQUEST: Duration = Duration::from_secs(10);

/// Tells whether the service answers calls.
pub type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

#[derive(Clone)]
struct Port {
    decider: Decider,
    ready: Ready,
}

/// All endpoints of the port.
pub fn router(decider: Decider, ready: Ready) -> Router {
    let body_limit = DefaultBodyLimit::max(decider.message_bytes());
    Router::new()
        .route("/json", any(json))
        .route("/v1/check", post(check::check).fallback(check::post_only))
        .route("/healthcheck", get(healthcheck))
        .route("/readyz", get(healthcheck))
        .route("/livez", get(async || OK))
        .layer(body_limit)
        .layer(from_fn(in_time))
        .with_state(Port { decider, ready })
}

/// Ends requests whose body does not come.
async fn in_time(request: Request, next: Next) -> Response {
    match timeout(LONGEST_REQUEST, next.run(request)).await {
        Ok(response) => response,
        Err(_) => error_response(status::REQUEST_TIMEOUT, "the request did not arrive in time"),
    }
}

const OK: &str = "OK";

async fn healthcheck(State(port): State<Port>) -> Response {
    let ready = (port.ready)();
    (status::probe(ready), if ready { OK } else { "" }).into_response()
}

/// Any method, as in envoyproxy/ratelimit.
async fn json(State(port): State<Port>, body: Result<Bytes, BytesRejection>) -> Response {
    let Ok(body) = body else { return bad_request() };
    let request = match protojson::read_request(&body) {
        Ok(request) => request,
        Err(error) => {
            tracing::debug!(%error, "body of /json is not a rate limit request");
            return bad_request();
        }
    };
    match port.decider.decide(Method::ShouldRateLimit, &request).await {
        Ok(decision) => {
            let code = decision.overall_code;
            let body = protojson::write_response(&convert::to_response(decision));
            json_response(status::decision(code), &body)
        }
        Err(error) if status::http(&error) == status::BAD_REQUEST => bad_request(),
        Err(error) => text_response(status::http(&error), status::text(&error)),
    }
}

fn bad_request() -> Response {
    text_response(status::BAD_REQUEST, "Bad Request".to_owned())
}

fn text_response(code: http::StatusCode, text: String) -> Response {
    (code, [(CONTENT_TYPE, TEXT)], text).into_response()
}

fn json_response(code: http::StatusCode, body: &serde_json::Value) -> Response {
    (code, [(CONTENT_TYPE, JSON)], Body::from(body.to_string())).into_response()
}

/// An answer of `/v1/check` without a decision.
fn error_response(code: http::StatusCode, text: &str) -> Response {
    json_response(code, &serde_json::json!({ "error": text }))
}

fn wrong_method(allowed: &'static str) -> Response {
    let text = format!("send the request with {allowed}");
    let mut response = error_response(status::METHOD_NOT_ALLOWED, &text);
    response.headers_mut().insert(ALLOW, http::HeaderValue::from_static(allowed));
    response
}
