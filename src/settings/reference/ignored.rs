//! The reference's variables that have no effect here.

use super::Reference;

/// Name, and the reference's default: at it, being ignored changes nothing.
#[rustfmt::skip]
const IGNORED: &[(&str, &str)] = &[
    ("GRPC_MAX_CONNECTION_AGE_GRACE", "1h"),
    ("CONFIG_GRPC_XDS_NODE_ID", "default"),
    ("CONFIG_GRPC_XDS_NODE_METADATA", ""),
    ("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s"),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ""),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", ""),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", ""),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ""),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", ""),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s"),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s"),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5"),
    ("XDS_CLIENT_BACKOFF_JITTER", "true"),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0"),
    // On in the reference unless set; whoever sets it to true wants it.
    ("USE_STATSD", "false"),
    ("STATSD_HOST", "localhost"),
    ("STATSD_PORT", "8125"),
    ("STATSD_PROTOCOL", "tcp"),
    ("USE_DOG_STATSD", "false"),
    ("USE_DOG_STATSD_MOGRIFIERS", ""),
    ("PROMETHEUS_MAPPER_YAML", ""),
    ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false"),
    ("EXTRA_TAGS", ""),
    ("STATS_FLUSH_INTERVAL", "10s"),
    ("DISABLE_STATS", "false"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", "0"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false"),
    ("REDIS_TLS_CLIENT_CERT", ""),
    ("REDIS_TLS_CLIENT_KEY", ""),
    ("REDIS_TLS_CACERT", ""),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false"),
    ("REDIS_PIPELINE_WINDOW", "0"),
    ("REDIS_PIPELINE_LIMIT", "0"),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", "1"),
    ("REDIS_PERSECOND_SOCKET_TYPE", "unix"),
    ("REDIS_PERSECOND_TYPE", "SINGLE"),
    ("REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock"),
    ("REDIS_PERSECOND_POOL_SIZE", "10"),
    ("REDIS_PERSECOND_AUTH", ""),
    ("REDIS_PERSECOND_TLS", "false"),
    ("REDIS_PERSECOND_PIPELINE_WINDOW", "0"),
    ("REDIS_PERSECOND_PIPELINE_LIMIT", "0"),
    ("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1"),
    ("REDIS_PERSECOND_TIMEOUT", "10s"),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT"),
    ("REDIS_PERSECOND_SENTINEL_AUTH", ""),
    ("REDIS_SENTINEL_AUTH", ""),
    ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false"),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT"),
    ("REDIS_STARTUP_INITIAL_INTERVAL", "1s"),
    ("REDIS_STARTUP_MAX_INTERVAL", "30s"),
    ("REDIS_STARTUP_MAX_ELAPSED_TIME", "0"),
    ("MEMCACHE_HOST_PORT", ""),
    ("MEMCACHE_SRV", ""),
    ("MEMCACHE_SRV_REFRESH", "0"),
    ("MEMCACHE_MAX_IDLE_CONNS", "2"),
    ("MEMCACHE_TLS", "false"),
    ("MEMCACHE_TLS_CLIENT_CERT", ""),
    ("MEMCACHE_TLS_CLIENT_KEY", ""),
    ("MEMCACHE_TLS_CACERT", ""),
    ("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false"),
    ("TRACING_ENABLED", "false"),
    ("TRACING_EXPORTER_PROTOCOL", "http"),
    ("TRACING_SERVICE_NAME", "RateLimit"),
    ("TRACING_SERVICE_NAMESPACE", ""),
    ("TRACING_SERVICE_INSTANCE_ID", ""),
    ("TRACING_SAMPLING_RATE", "1"),
];

/// Name, the values without which nothing is lost, and why going on would be wrong.
const UNSAFE: &[(&str, &[&str], &str)] = &[
    (
        "GRPC_SERVER_USE_TLS",
        &["false", "0", "f", "F", "False", "FALSE"],
        "false: this version serves gRPC in plaintext only; put a proxy with TLS in front",
    ),
    ("GRPC_CLIENT_TLS_CACERT", &[""], "nothing: this version does not check client certificates"),
    ("GRPC_CLIENT_TLS_SAN", &[""], "nothing: this version does not check client certificates"),
    (
        "GRPC_UDS",
        &[""],
        "nothing: this version serves gRPC on TCP only, see GRPC_HOST and GRPC_PORT",
    ),
    ("BACKEND_TYPE", &["redis", ""], "redis: memcached is not supported"),
    ("CONFIG_TYPE", &["FILE"], "FILE: rules over xDS are not supported"),
];

impl Reference<'_> {
    /// Names the variables that are set without effect, and refuses those where that is unsafe.
    pub(super) fn ignored(&mut self) -> Vec<String> {
        for (variable, harmless, expected) in UNSAFE {
            if let Some(given) = self.env.get(*variable)
                && !harmless.contains(&given.as_str())
            {
                self.fault(variable, variable, given, expected);
            }
        }
        let mut ignored: Vec<_> = IGNORED
            .iter()
            .filter(|(name, default)| self.get(name).is_some_and(|given| !is_same(given, default)))
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let mut mogrifiers: Vec<_> = self
            .env
            .keys()
            .filter(|name| name.starts_with("DOG_STATSD_MOGRIFIER_"))
            .cloned()
            .collect();
        mogrifiers.sort();
        ignored.append(&mut mogrifiers);
        ignored
    }
}

/// Whether two ways of writing mean the same to the reference.
fn is_same(given: &str, default: &str) -> bool {
    use super::super::parse::{go_bool, go_duration};
    given == default
        || go_bool(default).is_ok_and(|value| go_bool(given) == Ok(value))
        || go_duration(default).is_ok_and(|value| go_duration(given) == Ok(value))
}
