//! Every setting, once: key, default, names elsewhere and what it means.
//!
//! Loading, `--print-settings`, the environment variables and `settings.example.yaml` follow from
//! this table.

/// One setting as it can be written.
#[derive(Debug)]
pub struct Spec {
    /// Section and name, joined by a dot, as in a settings file.
    pub key: &'static str,
    /// As it would be written; valid.
    pub default: &'static str,
    /// Variables of envoyproxy/ratelimit that set it.
    pub reference: &'static [&'static str],
    /// Flag of `tollgate serve`.
    pub flag: Option<&'static str>,
    /// A sentence for people.
    pub doc: &'static str,
    pub shape: Shape,
}

/// How a value is written in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Text, durations, sizes, addresses, words.
    Text,
    Number,
    Bool,
    /// A list, or one text with commas between its items.
    List,
    /// Text with a secret in it.
    Secret,
}

impl Spec {
    /// `TOLLGATE_` and the key.
    pub fn variable(&self) -> String {
        format!("TOLLGATE_{}", self.key.replace('.', "_").to_uppercase())
    }

    const fn new(
        key: &'static str,
        default: &'static str,
        shape: Shape,
        doc: &'static str,
    ) -> Self {
        Self { key, default, reference: &[], flag: None, doc, shape }
    }

    const fn reference(mut self, variables: &'static [&'static str]) -> Self {
        self.reference = variables;
        self
    }

    const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }
}

/// The setting with the key.
pub(super) fn find(key: &str) -> Option<&'static Spec> {
    SETTINGS.iter().find(|spec| spec.key == key)
}

use Shape::{Bool, List, Number, Secret, Text};

/// All settings, in sections.
#[rustfmt::skip]
pub static SETTINGS: &[Spec] = &[
    Spec::new("grpc.addr", "[::]:8081", Text, "Where gRPC listens, host:port; [::] is IPv6 and IPv4")
        .reference(&["GRPC_HOST", "GRPC_PORT"]).flag("--grpc-addr"),
    Spec::new("grpc.workers", "auto", Number, "Threads that serve gRPC; auto is one per core")
        .flag("--workers"),
    Spec::new("grpc.max_connection_age", "24h", Text, "Age at which a connection is asked to go, or never")
        .reference(&["GRPC_MAX_CONNECTION_AGE"]),
    Spec::new("http.addr", "[::]:8080", Text, "Where HTTP listens, host:port")
        .reference(&["HOST", "PORT"]).flag("--http-addr"),
    Spec::new("admin.addr", "127.0.0.1:6070", Text, "Where the admin pages and metrics listen, host:port")
        .reference(&["DEBUG_HOST", "DEBUG_PORT"]).flag("--admin-addr"),
    Spec::new("admin.prometheus_addr", "", Text, "A listener of its own for metrics, host:port; none if empty")
        .reference(&["USE_PROMETHEUS", "PROMETHEUS_ADDR"]),
    Spec::new("admin.prometheus_path", "/metrics", Text, "Path of the metrics")
        .reference(&["PROMETHEUS_PATH"]),
    Spec::new("rules.paths", "", List, "Rules files, and folders that are read recursively")
        .reference(&["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"]).flag("--rules"),
    Spec::new("rules.ignore_dotfiles", "true", Bool, "Leave out files and folders whose name starts with a dot")
        .reference(&["RUNTIME_IGNOREDOTFILES"]),
    Spec::new("rules.swapped_link", "", Text, "A symlink whose swap means new rules; none if empty")
        .reference(&["RUNTIME_WATCH_ROOT"]),
    Spec::new("rules.merge_domains", "false", Bool, "Let several files add to one domain")
        .reference(&["MERGE_DOMAIN_CONFIG"]).flag("--merge-domains"),
    Spec::new("rules.start_without_rules", "false", Bool, "Start, and answer calls with an error, before a first good load")
        .reference(&["FORCE_START_WITHOUT_INITIAL_CONFIG"]),
    Spec::new("rules.healthy_needs_domain", "false", Bool, "Be unhealthy until rules with at least one domain are loaded")
        .reference(&["HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"]),
    Spec::new("store.url", "memory", Secret, "Where counters live: memory, redis://, rediss:// or unix://")
        .reference(&["REDIS_URL", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS"]).flag("--store"),
    Spec::new("store.timeout", "15ms", Text, "Longest wait for one decision; keep it below the caller's timeout"),
    Spec::new("store.connect_timeout", "1s", Text, "Longest wait for a new connection, in the background")
        .reference(&["REDIS_TIMEOUT"]),
    Spec::new("store.connections", "4", Number, "Connections to Redis, shared by all calls")
        .reference(&["REDIS_POOL_SIZE"]),
    Spec::new("store.key_prefix", "", Text, "Stands before every counter key")
        .reference(&["CACHE_KEY_PREFIX"]),
    Spec::new("store.ttl_jitter", "0s", Text, "Keys live up to this much longer, so that they expire apart")
        .reference(&["EXPIRATION_JITTER_MAX_SECONDS"]),
    Spec::new("store.deny_cache_bytes", "4MiB", Text, "Memory for denying at once what Redis has denied; 0 is off")
        .reference(&["LOCAL_CACHE_SIZE_IN_BYTES"]),
    Spec::new("store.memory.max_keys", "10000000", Number, "Most counters that the embedded store keeps"),
    Spec::new("store.memory.max_bytes", "1GiB", Text, "Most memory that the embedded store uses"),
    Spec::new("response.headers", "false", Bool, "Send the three rate-limit headers")
        .reference(&["LIMIT_RESPONSE_HEADERS_ENABLED"]),
    Spec::new("response.limit_header", "RateLimit-Limit", Text, "Name of the header with the limit")
        .reference(&["LIMIT_LIMIT_HEADER"]),
    Spec::new("response.remaining_header", "RateLimit-Remaining", Text, "Name of the header with what remains")
        .reference(&["LIMIT_REMAINING_HEADER"]),
    Spec::new("response.reset_header", "RateLimit-Reset", Text, "Name of the header with the seconds to the reset")
        .reference(&["LIMIT_RESET_HEADER"]),
    Spec::new("response.dynamic_metadata", "false", Bool, "Fill dynamic_metadata in answers")
        .reference(&["RESPONSE_DYNAMIC_METADATA"]),
    Spec::new("mode.shadow", "false", Bool, "Answer OK to every call; statuses still tell the truth")
        .reference(&["SHADOW_MODE"]),
    Spec::new("mode.quota", "false", Bool, "Treat every rule as one in quota mode")
        .reference(&["QUOTA_MODE"]),
    Spec::new("mode.charge", "auto", Text, "Who is charged unless a rule says: auto, admitted or always"),
    Spec::new("mode.on_store_failure", "error", Text, "Answer without a store unless a rule says: error, allow, deny or local; not acted on yet"),
    Spec::new("mode.near_limit_ratio", "0.8", Number, "Share of a limit from which hits count as near it, 0 to 1")
        .reference(&["NEAR_LIMIT_RATIO"]),
    Spec::new("caps.descriptors_per_call", "1000", Number, "Most descriptors in one call"),
    Spec::new("caps.entries_per_descriptor", "64", Number, "Most entries in one descriptor"),
    Spec::new("caps.key_bytes", "4KiB", Text, "Longest key of an entry"),
    Spec::new("caps.value_bytes", "64KiB", Text, "Longest value of an entry"),
    Spec::new("caps.message_bytes", "4MiB", Text, "Largest request"),
    Spec::new("log.level", "info", Text, "Least severe level that is logged: trace, debug, info, warn or error")
        .reference(&["LOG_LEVEL"]).flag("--log-level"),
    Spec::new("log.format", "text", Text, "text for people or json for machines")
        .reference(&["LOG_FORMAT"]).flag("--log-format"),
    Spec::new("shutdown.drain_timeout", "10s", Text, "How long calls in flight may finish after SIGTERM"),
];
