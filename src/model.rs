//! Values that every layer shares: what is asked, what is allowed, what is answered.
//!
//! Invariants:
//! - No IO, no serde, no protobuf: wire, file and storage formats change without this module.
//! - A value that exists is valid; the layer that makes it has checked it.

mod check;
mod decision;
mod descriptor;
mod limit;
mod metadata;
mod time;

pub use check::{Call, Check, CounterKey, Effect};
pub use decision::{Code, CurrentLimit, Decision, DescriptorStatus, Header, Verdict};
pub use descriptor::{Descriptor, Entry, Hits, LimitOverride, MAX_HITS, Request};
pub use limit::{
    AlgorithmKind, CALENDAR_BOUNDS, Charge, ChargeMode, Consistency, FailureMode, Limit,
    MAX_WINDOW, Unit, Window,
};
pub use metadata::{Metadata, MetadataValue};
pub use time::Timestamp;
