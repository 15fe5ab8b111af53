//! The server's settings: defaults < file < environment < flags.
//!
//! Values here are valid; [`Settings::load`] is the only way from what was written to them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::model::{ChargeMode, FailureMode};

mod error;
mod layers;
mod load;
mod parse;
mod reference;
mod show;
mod store_url;
mod table;
#[cfg(test)]
mod tests;

pub use error::{Fault, SettingsError};
pub use load::{Flags, Loaded};
pub use show::{Shown, Shows};
pub use store_url::{RedisUrl, StoreUrl};
pub use table::{SETTINGS, Shape, Spec};

/// Everything that `tollgate serve` runs on.
#[derive(Debug, Clone)]
pub struct Settings {
    pub grpc: GrpcSettings,
    pub http: HttpSettings,
    pub admin: AdminSettings,
    pub rules: RulesSettings,
    pub store: StoreSettings,
    pub response: ResponseSettings,
    pub mode: ModeSettings,
    pub caps: Caps,
    pub log: LogSettings,
    pub shutdown: ShutdownSettings,
}

#[derive(Debug, Clone)]
pub struct GrpcSettings {
    /// `[::]:8081` by default: dual stack.
    pub addr: SocketAddr,
    /// Threads that serve gRPC, each with a runtime of its own; one per core by default.
    pub workers: usize,
    /// Longest life of a connection before it is asked to go; 24 h by default.
    pub max_connection_age: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// `[::]:8080` by default.
    pub addr: SocketAddr,
}

#[derive(Debug, Clone)]
pub struct AdminSettings {
    /// `127.0.0.1:6070` by default.
    pub addr: SocketAddr,
    /// A listener of its own for metrics; they are on the admin port too.
    pub prometheus_addr: Option<SocketAddr>,
    /// `/metrics` by default.
    pub prometheus_path: String,
}

#[derive(Debug, Clone)]
pub struct RulesSettings {
    /// Files and folders to load, in order.
    pub sources: Vec<RulesSource>,
    /// Several files may add to one domain.
    pub merge_domains: bool,
    /// Start, and answer every call with an error, before a first good load.
    pub start_without_rules: bool,
    /// `NOT_SERVING` until a set with at least one domain is loaded.
    pub healthy_needs_domain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesSource {
    /// A file, or a folder that is read recursively.
    pub path: PathBuf,
    /// Leaves out files and folders whose name starts with a dot.
    pub ignore_dotfiles: bool,
    /// What to watch for changes besides the path itself: the symlink that a deployment swaps.
    pub swapped_link: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub struct StoreSettings {
    pub url: StoreUrl,
    /// Longest wait for one decision; 15 ms by default, below Envoy's 20 ms.
    pub timeout: Duration,
    /// Longest wait for a new connection, in the background.
    pub connect_timeout: Duration,
    /// Connections to Redis in all; shared by all calls.
    pub connections: usize,
    /// Prepended to every counter key as it is.
    pub key_prefix: String,
    /// Keys live up to this much longer than needed, so that they do not all expire at once.
    pub ttl_jitter: Duration,
    pub memory: MemorySettings,
}

#[derive(Debug, Clone)]
pub struct MemorySettings {
    /// Most counters kept; 10 million by default.
    pub max_keys: usize,
    /// Most bytes kept; 1 GiB by default.
    pub max_bytes: usize,
}

#[derive(Debug, Clone)]
pub struct ResponseSettings {
    /// Names of the three rate-limit headers; `None` sends none.
    pub headers: Option<HeaderNames>,
    /// Fill `dynamic_metadata`.
    pub dynamic_metadata: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNames {
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

#[derive(Debug, Clone)]
pub struct ModeSettings {
    /// Every answer is OK; statuses still tell the truth.
    pub shadow: bool,
    /// Every rule counts as one in quota mode.
    pub quota: bool,
    /// Where neither limit, rule nor domain says.
    pub charge: ChargeMode,
    pub on_store_failure: FailureMode,
    /// Share of the limit from which hits count as near it; 0.8 by default.
    pub near_limit_ratio: f32,
}

/// Bounds of one call; beyond them it is refused with the bound and what was found.
#[derive(Debug, Clone)]
pub struct Caps {
    pub descriptors_per_call: usize,
    pub entries_per_descriptor: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub message_bytes: usize,
}

#[derive(Debug, Clone)]
pub struct LogSettings {
    pub level: tracing::Level,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone)]
pub struct ShutdownSettings {
    /// How long calls in flight may finish after SIGTERM; 10 s by default.
    pub drain_timeout: Duration,
}
