//! The environment variables of envoyproxy/ratelimit, translated to settings.
//!
//! They are parsed as the reference parses them. What cannot be translated is refused where going
//! on without it would be unsafe, and otherwise reported as ignored.

use std::collections::HashMap;

use config::ValueKind;

use super::error::Fault;
use super::layers::{Layer, variable_origin};
use super::parse;

mod ignored;
mod redis;

/// The reference's variables while they are translated.
pub(super) struct Reference<'a> {
    env: &'a HashMap<String, String>,
    /// Settings that a stronger layer sets: what the reference's variables say does not matter.
    stronger: &'a dyn Fn(&str) -> bool,
    layer: Layer,
    faults: &'a mut Vec<Fault>,
}

/// Translates all variables; the second part names those without effect.
pub(super) fn translate(
    env: &HashMap<String, String>,
    stronger: &dyn Fn(&str) -> bool,
    faults: &mut Vec<Fault>,
) -> (Layer, Vec<String>) {
    let mut reference = Reference { env, stronger, layer: Layer::default(), faults };
    reference.addresses();
    reference.prometheus();
    reference.rules();
    reference.redis();
    for (variable, key) in BOOLS {
        reference.convert(variable, key, parse::go_bool);
    }
    for (variable, key) in TEXTS {
        reference.convert(variable, key, |text| Ok(text.to_owned()));
    }
    reference.convert("NEAR_LIMIT_RATIO", "mode.near_limit_ratio", |text| {
        parse::ratio(text).map(|_| text.to_owned())
    });
    reference.convert("EXPIRATION_JITTER_MAX_SECONDS", "store.ttl_jitter", |text| {
        let seconds = text.parse::<u32>().map_err(|_| "a whole number of seconds, such as 300")?;
        Ok(format!("{seconds}s"))
    });
    reference.convert("GRPC_MAX_CONNECTION_AGE", "grpc.max_connection_age", |text| {
        let age = parse::go_duration(text)?;
        Ok(if age.is_zero() { "never".to_owned() } else { text.to_owned() })
    });
    let ignored = reference.ignored();
    (reference.layer, ignored)
}

const BOOLS: [(&str, &str); 7] = [
    ("MERGE_DOMAIN_CONFIG", "rules.merge_domains"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "rules.start_without_rules"),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "rules.healthy_needs_domain"),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", "response.headers"),
    ("RESPONSE_DYNAMIC_METADATA", "response.dynamic_metadata"),
    ("SHADOW_MODE", "mode.shadow"),
    ("QUOTA_MODE", "mode.quota"),
];

/// Passed on as they are, and checked with all other settings.
const TEXTS: [(&str, &str); 6] = [
    ("CACHE_KEY_PREFIX", "store.key_prefix"),
    ("LIMIT_LIMIT_HEADER", "response.limit_header"),
    ("LIMIT_REMAINING_HEADER", "response.remaining_header"),
    ("LIMIT_RESET_HEADER", "response.reset_header"),
    ("LOG_LEVEL", "log.level"),
    ("LOG_FORMAT", "log.format"),
];

impl Reference<'_> {
    fn get(&self, variable: &str) -> Option<&str> {
        self.env.get(variable).map(String::as_str)
    }

    fn fault(&mut self, key: &str, variable: &str, given: &str, expected: &str) {
        self.faults.push(Fault::unexpected(key, &variable_origin(variable), given, expected));
    }

    /// Translates one variable to one setting.
    fn convert<T: Into<ValueKind>>(
        &mut self,
        variable: &str,
        key: &'static str,
        translate: impl Fn(&str) -> Result<T, String>,
    ) {
        if (self.stronger)(key) {
            return;
        }
        let Some(text) = self.env.get(variable) else { return };
        match translate(text) {
            Ok(value) => self.layer.set(key, &variable_origin(variable), value),
            Err(expected) => self.fault(key, variable, text, &expected),
        }
    }

    /// A boolean that only steers the translation.
    fn flag(&mut self, key: &str, variable: &str, default: bool) -> bool {
        let Some(text) = self.env.get(variable) else { return default };
        parse::go_bool(text).unwrap_or_else(|expected| {
            self.fault(key, variable, text, &expected);
            default
        })
    }

    fn addresses(&mut self) {
        for (key, host_variable, port_variable, host, port) in [
            ("grpc.addr", "GRPC_HOST", "GRPC_PORT", "", "8081"),
            ("http.addr", "HOST", "PORT", "", "8080"),
            ("admin.addr", "DEBUG_HOST", "DEBUG_PORT", "127.0.0.1", "6070"),
        ] {
            if (self.stronger)(key) {
                continue;
            }
            let given = (self.get(host_variable), self.get(port_variable));
            let origin = match given {
                (None, None) => continue,
                (Some(_), None) => host_variable.to_owned(),
                (None, Some(_)) => port_variable.to_owned(),
                (Some(_), Some(_)) => format!("{host_variable}, ${port_variable}"),
            };
            let (host, port) =
                (given.0.unwrap_or(host).to_owned(), given.1.unwrap_or(port).to_owned());
            if let Err(expected) = parse::port(&port) {
                self.fault(key, port_variable, &port, &expected);
                continue;
            }
            let bare_ipv6 = host.contains(':') && !host.starts_with('[');
            let addr =
                if bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            self.layer.set(key, &variable_origin(&origin), addr);
        }
    }

    fn prometheus(&mut self) {
        let key = "admin.prometheus_addr";
        if !self.flag(key, "USE_PROMETHEUS", false) {
            return;
        }
        match self.get("PROMETHEUS_ADDR") {
            Some(_) => self.convert("PROMETHEUS_ADDR", key, |text| {
                if text.is_empty() {
                    Err("host:port, such as :9090".to_owned())
                } else {
                    Ok(text.to_owned())
                }
            }),
            None if !(self.stronger)(key) => {
                self.layer.set(key, &variable_origin("USE_PROMETHEUS"), ":9090");
            }
            None => {}
        }
        self.convert("PROMETHEUS_PATH", "admin.prometheus_path", |text| Ok(text.to_owned()));
    }

    /// The folder of rules, `ROOT/SUBDIRECTORY/APPDIRECTORY`, and the symlink that is swapped.
    fn rules(&mut self) {
        const VARIABLES: [&str; 5] = [
            "RUNTIME_ROOT",
            "RUNTIME_SUBDIRECTORY",
            "RUNTIME_APPDIRECTORY",
            "RUNTIME_IGNOREDOTFILES",
            "RUNTIME_WATCH_ROOT",
        ];
        let given: Vec<_> = VARIABLES.into_iter().filter(|name| self.get(name).is_some()).collect();
        if given.is_empty() || (self.stronger)("rules.paths") {
            return;
        }
        let root = self.get("RUNTIME_ROOT").unwrap_or("/srv/runtime_data/current").to_owned();
        if root.is_empty() {
            self.fault("rules.paths", "RUNTIME_ROOT", "", "the folder that holds the rules");
            return;
        }
        let mut path = std::path::PathBuf::from(&root);
        for part in [
            self.get("RUNTIME_SUBDIRECTORY").unwrap_or_default(),
            self.get("RUNTIME_APPDIRECTORY").unwrap_or("config"),
        ] {
            // Joined as Go does: a leading slash does not start again at the root.
            path.extend(part.split('/').filter(|part| !part.is_empty()));
        }
        let origin = variable_origin(&given.join(", $"));
        self.layer.set("rules.paths", &origin, vec![path.display().to_string()]);
        let dotfiles = self.flag("rules.ignore_dotfiles", "RUNTIME_IGNOREDOTFILES", false);
        if !(self.stronger)("rules.ignore_dotfiles") {
            self.layer.set("rules.ignore_dotfiles", &origin, dotfiles);
        }
        let watch_root = self.flag("rules.swapped_link", "RUNTIME_WATCH_ROOT", true);
        if watch_root && !(self.stronger)("rules.swapped_link") {
            self.layer.set("rules.swapped_link", &origin, root);
        }
    }
}
