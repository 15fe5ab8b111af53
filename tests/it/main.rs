//! The one integration binary.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken test may panic")]

mod compat;
mod http;
mod served;
mod wire;
