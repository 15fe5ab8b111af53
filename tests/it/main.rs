//! What the parts do together, over real sockets and with a real Redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod bench;
mod cli;
mod compat;
mod conformance;
mod exactness;
mod fuzz;
mod http;
mod leases;
mod model_check;
mod oracle;
mod redis_store;
mod reload;
mod served;
mod support;
mod wire;
