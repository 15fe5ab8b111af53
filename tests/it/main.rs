//! What the parts do together, over real sockets and with a real Redis.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod conformance;
mod model_check;
mod oracle;
mod redis_store;
mod support;
