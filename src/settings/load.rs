//! From what was written to valid settings.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use config::Value;

use super::error::{Fault, SettingsError};
use super::layers::{self, Layer};
use super::parse::{self, Expected};
use super::show::{Shown, Shows};
use super::store_url::redact;
use super::table::{SETTINGS, Shape, Spec};
use super::{
    AdminSettings, Caps, GrpcSettings, HeaderNames, HttpSettings, LogSettings, MemorySettings,
    ModeSettings, ResponseSettings, RulesSettings, RulesSource, Settings, ShutdownSettings,
    StoreSettings, StoreUrl, reference,
};

/// Settings given as flags, by key.
#[derive(Debug, Clone, Default)]
pub struct Flags(Vec<(&'static str, Vec<String>)>);

impl Flags {
    /// Sets the setting whose key is `key`, if anything was given for it.
    pub fn set(&mut self, key: &'static str, values: impl IntoIterator<Item = String>) {
        let values: Vec<_> = values.into_iter().collect();
        if !values.is_empty() {
            self.0.push((key, values));
        }
    }

    fn layer(&self) -> Layer {
        let mut layer = Layer::default();
        for (key, values) in &self.0 {
            let spec = SETTINGS.iter().find(|spec| spec.key == *key);
            let origin = spec.and_then(|spec| spec.flag).unwrap_or("a flag");
            match (spec.map(|spec| spec.shape), values.as_slice()) {
                (Some(Shape::List), _) => layer.set(key, origin, values.clone()),
                (_, [.., last]) => layer.set(key, origin, last.as_str()),
                (_, []) => {}
            }
        }
        layer
    }
}

/// Valid settings, and what else is to be said about how they came to be.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Settings,
    /// Variables that are set and have no effect; worth one warning.
    pub ignored: Vec<String>,
    /// Every setting with its origin, for `--print-settings`.
    pub shown: Shows,
}

impl Settings {
    /// Reads defaults < `file` < `env` < `flags`. Variables that are neither `TOLLGATE_…` nor
    /// known from envoyproxy/ratelimit are not looked at.
    ///
    /// # Errors
    ///
    /// Every fault of every setting, see [`Fault`].
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Loaded, SettingsError> {
        let mut faults = Vec::new();
        let mut env: HashMap<_, _> = env.into_iter().collect();
        let mut ignored = Vec::new();

        let file = file.map(|path| layers::file(path, &mut faults)).unwrap_or_default();
        let own = layers::variables(&mut env, &mut ignored, &mut faults);
        let flags = flags.layer();
        // What the reference assumes about its folder of rules is weaker than what a file says.
        let assumed = [
            ("rules.paths", true),
            ("rules.ignore_dotfiles", !env.contains_key("RUNTIME_IGNOREDOTFILES")),
            ("rules.swapped_link", !env.contains_key("RUNTIME_WATCH_ROOT")),
        ]
        .map(|(key, is_assumed)| (key, is_assumed && file.has(key)));
        let stronger = |key: &str| own.has(key) || flags.has(key) || assumed.contains(&(key, true));
        let (theirs, unused) = reference::translate(&env, &stronger, &mut faults);
        ignored.extend(unused);

        let merged = layers::merge([layers::defaults(), file, theirs, own, flags]);
        let values = merged.unwrap_or_else(|error| {
            faults.push(Fault::new("settings", "all sources", error.to_string()));
            BTreeMap::new()
        });
        let mut reader = Reader { values, faults, shown: Vec::new() };
        let settings = reader.settings();
        match settings {
            Some(settings) if reader.faults.is_empty() => {
                Ok(Loaded { settings, ignored, shown: Shows(reader.shown) })
            }
            _ => Err(SettingsError { faults: reader.faults }),
        }
    }
}

/// Takes the settings out one by one, and gathers what is wrong.
struct Reader {
    values: BTreeMap<String, Value>,
    faults: Vec<Fault>,
    shown: Vec<Shown>,
}

impl Reader {
    fn items(&mut self, key: &str) -> Option<(&'static Spec, Vec<String>, String)> {
        let spec = SETTINGS.iter().find(|spec| spec.key == key)?;
        let value = self.values.remove(key)?;
        let origin = value.origin().unwrap_or("default").to_owned();
        match layers::written(spec.shape, &value.kind) {
            Ok(items) => {
                let text = items.join(",");
                let shown = if spec.shape == Shape::Secret { redact(&text) } else { text };
                let shown = if shown.is_empty() { "-".to_owned() } else { shown };
                self.shown.push(Shown { key: spec.key, value: shown, origin: origin.clone() });
                Some((spec, items, origin))
            }
            Err(expected) => {
                let given = if spec.shape == Shape::Secret {
                    "a value that is no text".to_owned()
                } else {
                    value.kind.to_string()
                };
                self.faults.push(Fault::unexpected(key, &origin, &given, expected));
                None
            }
        }
    }

    fn get<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, Expected>) -> Option<T> {
        let (spec, items, origin) = self.items(key)?;
        let text = items.concat();
        match parse(&text) {
            Ok(value) => Some(value),
            Err(expected) => {
                let given = if spec.shape == Shape::Secret { redact(&text) } else { text };
                self.faults.push(Fault::unexpected(key, &origin, &given, &expected));
                None
            }
        }
    }

    // Every section reads all of its settings before it gives up, so that all faults are found.

    fn settings(&mut self) -> Option<Settings> {
        let grpc = self.grpc();
        let http = self.get("http.addr", parse::addr);
        let admin = self.admin();
        let rules = self.rules();
        let store = self.store();
        let response = self.response();
        let mode = self.mode();
        let caps = self.caps();
        let level = self.get("log.level", parse::level);
        let format = self.get("log.format", parse::log_format);
        let drain_timeout = self.get("shutdown.drain_timeout", parse::duration);
        Some(Settings {
            grpc: grpc?,
            http: HttpSettings { addr: http? },
            admin: admin?,
            rules: rules?,
            store: store?,
            response: response?,
            mode: mode?,
            caps: caps?,
            log: LogSettings { level: level?, format: format? },
            shutdown: ShutdownSettings { drain_timeout: drain_timeout? },
        })
    }

    fn grpc(&mut self) -> Option<GrpcSettings> {
        let addr = self.get("grpc.addr", parse::addr);
        let workers = self.get("grpc.workers", parse::workers);
        let age = self.get("grpc.max_connection_age", parse::age);
        Some(GrpcSettings { addr: addr?, workers: workers?, max_connection_age: age? })
    }

    fn admin(&mut self) -> Option<AdminSettings> {
        let addr = self.get("admin.addr", parse::addr);
        let prometheus_addr = self.get("admin.prometheus_addr", parse::optional_addr);
        let path = self.get("admin.prometheus_path", parse::url_path);
        Some(AdminSettings {
            addr: addr?,
            prometheus_addr: prometheus_addr?,
            prometheus_path: path?,
        })
    }

    fn rules(&mut self) -> Option<RulesSettings> {
        let paths = self.items("rules.paths").map(|(_, paths, _)| paths);
        let ignore_dotfiles = self.get("rules.ignore_dotfiles", parse::boolean);
        let link = self.get("rules.swapped_link", parse::text);
        let merge_domains = self.get("rules.merge_domains", parse::boolean);
        let start_without_rules = self.get("rules.start_without_rules", parse::boolean);
        let healthy_needs_domain = self.get("rules.healthy_needs_domain", parse::boolean);
        let ignore_dotfiles = ignore_dotfiles?;
        let swapped_link = Some(link?).filter(|link| !link.is_empty()).map(PathBuf::from);
        let source = |path: String| RulesSource {
            path: path.into(),
            ignore_dotfiles,
            swapped_link: swapped_link.clone(),
        };
        Some(RulesSettings {
            sources: paths?.into_iter().map(source).collect(),
            merge_domains: merge_domains?,
            start_without_rules: start_without_rules?,
            healthy_needs_domain: healthy_needs_domain?,
        })
    }

    fn store(&mut self) -> Option<StoreSettings> {
        let url = self.get("store.url", |text| text.parse::<StoreUrl>());
        let timeout = self.get("store.timeout", parse::timeout);
        let connect_timeout = self.get("store.connect_timeout", parse::timeout);
        let connections = self.get("store.connections", parse::count);
        let key_prefix = self.get("store.key_prefix", parse::text);
        let ttl_jitter = self.get("store.ttl_jitter", parse::duration);
        let max_keys = self.get("store.memory.max_keys", parse::count);
        let max_bytes = self.get("store.memory.max_bytes", parse::size);
        Some(StoreSettings {
            url: url?,
            timeout: timeout?,
            connect_timeout: connect_timeout?,
            connections: connections?,
            key_prefix: key_prefix?,
            ttl_jitter: ttl_jitter?,
            memory: MemorySettings { max_keys: max_keys?, max_bytes: max_bytes? },
        })
    }

    fn response(&mut self) -> Option<ResponseSettings> {
        let enabled = self.get("response.headers", parse::boolean);
        let limit = self.get("response.limit_header", parse::header_name);
        let remaining = self.get("response.remaining_header", parse::header_name);
        let reset = self.get("response.reset_header", parse::header_name);
        let dynamic_metadata = self.get("response.dynamic_metadata", parse::boolean);
        let names = HeaderNames { limit: limit?, remaining: remaining?, reset: reset? };
        Some(ResponseSettings {
            headers: enabled?.then_some(names),
            dynamic_metadata: dynamic_metadata?,
        })
    }

    fn mode(&mut self) -> Option<ModeSettings> {
        let shadow = self.get("mode.shadow", parse::boolean);
        let quota = self.get("mode.quota", parse::boolean);
        let charge = self.get("mode.charge", parse::charge);
        let on_store_failure = self.get("mode.on_store_failure", parse::failure);
        let near_limit_ratio = self.get("mode.near_limit_ratio", parse::ratio);
        Some(ModeSettings {
            shadow: shadow?,
            quota: quota?,
            charge: charge?,
            on_store_failure: on_store_failure?,
            near_limit_ratio: near_limit_ratio?,
        })
    }

    fn caps(&mut self) -> Option<Caps> {
        let descriptors_per_call = self.get("caps.descriptors_per_call", parse::count);
        let entries_per_descriptor = self.get("caps.entries_per_descriptor", parse::count);
        let key_bytes = self.get("caps.key_bytes", parse::size);
        let value_bytes = self.get("caps.value_bytes", parse::size);
        let message_bytes = self.get("caps.message_bytes", parse::size);
        Some(Caps {
            descriptors_per_call: descriptors_per_call?,
            entries_per_descriptor: entries_per_descriptor?,
            key_bytes: key_bytes?,
            value_bytes: value_bytes?,
            message_bytes: message_bytes?,
        })
    }
}
