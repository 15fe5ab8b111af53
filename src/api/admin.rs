//! The admin port, and the listener for metrics alone.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;

use crate::telemetry::{self, Metrics};

/// Lists the loaded rules, a line per limit.
pub type RulesText = Arc<dyn Fn() -> String + Send + Sync>;

/// All endpoints of the admin port.
pub fn router(metrics: Arc<Metrics>, rules: RulesText) -> Router {
    const ENDPOINTS: [(&str, &str); 2] =
        [("/metrics", "metrics in the format of Prometheus"), ("/rlconfig", "the loaded rules")];
    let mut list = String::new();
    for (path, about) in ENDPOINTS {
        // Writing to a string cannot fail.
        _ = writeln!(list, "{path}: {about}");
    }
    Router::new()
        .route("/", get(async move || list))
        .route("/rlconfig", get(async move || rules()))
        .merge(metrics_router(metrics, ENDPOINTS[0].0))
}

/// Metrics under `path` and nothing else.
pub fn metrics_router(metrics: Arc<Metrics>, path: &str) -> Router {
    Router::new().route(path, get(encode)).with_state(metrics)
}

async fn encode(State(metrics): State<Arc<Metrics>>) -> Response {
    ([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], metrics.encode()).into_response()
}
