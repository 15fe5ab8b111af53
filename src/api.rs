//! What callers see: the gRPC services and the HTTP endpoints.
//!
//! Invariants:
//! - Generated message types end here; the limiter sees the model only.
//! - Only `status` names gRPC codes and HTTP statuses.
//! - Texts sent to callers never hold store addresses, keys or driver messages.

pub mod admin;
pub mod convert;
pub mod decide;
pub mod frame;
pub mod grpc;
pub mod http;
pub mod rls;
pub mod status;
