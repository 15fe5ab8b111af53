//! Tollgate: decides for Envoy, and for anything that speaks gRPC or HTTP, whether a call is
//! within its rate limits.
//!
//! The library exists for the binary, the tests and the benches; it is not published.

pub mod algorithm;
pub mod api;
pub mod cli;
pub mod clock;
pub mod key;
pub mod limiter;
pub mod model;
pub mod proto;
pub mod rules;
pub mod server;
pub mod settings;
pub mod store;
pub mod telemetry;
