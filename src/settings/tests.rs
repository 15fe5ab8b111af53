//! Every source, every name, every fault.

use std::path::Path;
use std::time::Duration;

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn load(file: Option<&Path>, env: Pairs<'_>, flags: Pairs<'_>) -> Result<Loaded, SettingsError> {
    let mut all = Flags::default();
    for (key, value) in flags {
        let key = SETTINGS.iter().find(|spec| spec.key == *key).unwrap().key;
        all.set(key, [(*value).to_owned()]);
    }
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::load(file, env, &all)
}

fn shown(loaded: &Loaded, key: &str) -> (String, String) {
    let found = loaded.shown.0.iter().find(|shown| shown.key == key).unwrap();
    (found.value.clone(), found.origin.clone())
}

/// Loads the variables and compares one setting as it is in force.
#[track_caller]
fn check(env: Pairs<'_>, key: &str, value: &str) {
    match load(None, env, &[]) {
        Ok(loaded) => assert_eq!(shown(&loaded, key).0, value, "{env:?}"),
        Err(error) => panic!("{env:?}: {error}"),
    }
}

/// Loads the variables and expects exactly one fault with these words in it.
#[track_caller]
fn check_fault(env: Pairs<'_>, words: &[&str]) {
    match load(None, env, &[]) {
        Ok(_) => panic!("{env:?} was accepted"),
        Err(error) => {
            let text = error.to_string();
            assert_eq!(error.faults.len(), 1, "{text}");
            for word in words {
                assert!(text.contains(word), "{word:?} is missing in: {text}");
            }
        }
    }
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn defaults_are_valid_and_as_documented() {
    let Settings { grpc, http, admin, rules, store, response, .. } =
        load(None, &[], &[]).unwrap().settings;
    assert_eq!(grpc.addr.to_string(), "[::]:8081");
    assert_eq!(grpc.max_connection_age, Some(Duration::from_secs(86_400)));
    assert!(grpc.workers > 0);
    assert_eq!(http.addr.to_string(), "[::]:8080");
    assert_eq!(admin.addr.to_string(), "127.0.0.1:6070");
    assert_eq!(admin.prometheus_addr, None);
    assert_eq!(rules.sources, []);
    assert_eq!(store.url, StoreUrl::Memory);
    assert_eq!(store.timeout, Duration::from_millis(15));
    assert_eq!(store.memory.max_bytes, 1 << 30);
    assert_eq!(response.headers, None);
}

#[test]
fn each_source_is_stronger_than_the_one_before() {
    let (_folder, path) = file("t.toml", "[store]\ntimeout = '1ms'\nconnections = 7");
    let reference = [("CACHE_KEY_PREFIX", "r"), ("LOG_LEVEL", "debug")];
    let own = [reference[0], reference[1], ("TOLLGATE_LOG_LEVEL", "error")];
    let origin = |loaded: &Loaded, key| shown(loaded, key).1;

    let loaded = load(Some(&path), &own, &[("store.timeout", "3ms")]).unwrap();
    assert_eq!(shown(&loaded, "store.timeout").0, "3ms");
    assert_eq!(loaded.settings.store.connections, 7);
    assert_eq!(
        origin(&loaded, "store.connections"),
        format!("{}:store.connections", path.display())
    );
    assert_eq!(origin(&loaded, "store.key_prefix"), "$CACHE_KEY_PREFIX");
    assert_eq!(loaded.settings.log.level, tracing::Level::ERROR);
    assert_eq!(origin(&loaded, "log.level"), "$TOLLGATE_LOG_LEVEL");
    assert_eq!(origin(&loaded, "log.format"), "default");

    let loaded = load(None, &own, &[("log.level", "trace")]).unwrap();
    assert_eq!(origin(&loaded, "log.level"), "--log-level");
    assert_eq!(loaded.settings.log.level, tracing::Level::TRACE);
}

#[test]
fn every_setting_has_a_variable_of_its_own() {
    for spec in SETTINGS {
        let variable = spec.variable();
        let loaded = load(None, &[(&variable, spec.default)], &[]).unwrap();
        assert_eq!(shown(&loaded, spec.key).1, format!("${variable}"));
    }
}

#[test]
fn files_are_toml_or_yaml() {
    let yaml = "store:\n  url: redis://h:1\n  memory: {max_keys: 5}\nrules:\n  paths: [a, b]\n\
                mode:\n  near_limit_ratio: 0.5\n  shadow: true\nlog:\n";
    let toml = "rules.paths = 'a,b'\n[store]\nurl = 'redis://h:1'\nmemory.max_keys = 5\n\
                [mode]\nnear_limit_ratio = 0.5\nshadow = true";
    for (name, text) in [("t.yaml", yaml), ("t.yml", yaml), ("t.toml", toml)] {
        let (_folder, path) = file(name, text);
        let Settings { store, rules, mode, .. } = load(Some(&path), &[], &[]).unwrap().settings;
        assert_eq!(store.url.to_string(), "redis://h:1");
        assert_eq!(store.memory.max_keys, 5);
        let paths: Vec<_> = rules.sources.iter().map(|source| source.path.as_path()).collect();
        assert_eq!(paths, [Path::new("a"), Path::new("b")]);
        assert!(mode.shadow && mode.near_limit_ratio == 0.5);
    }
}

#[test]
fn all_faults_are_told_at_once_with_their_place() {
    let text = "store:\n  timout: 5ms\n  timeout: 20\n  key_prefix: 7\nmode: on\nlogg: {level: info}\n\
                shadow: true\nlog:\n  format: xml\n";
    let (_folder, path) = file("t.yaml", text);
    let env = [
        ("TOLLGATE_STORE_CONECTIONS", "3"),
        ("TOLLGATE_CAPS_KEY_BYTES", "many"),
        ("SHADOW_MODE", "yes"),
        ("NEAR_LIMIT_RATIO", ""),
    ];
    let error = load(Some(&path), &env, &[("grpc.addr", "nowhere")]).unwrap_err();
    let text = error.to_string();
    for expected in [
        "t.yaml:store.timout): there is no such setting; did you mean store.timeout?",
        "t.yaml:store.timeout): \"20\" was given, expected a duration with a unit",
        "t.yaml:logg.level): there is no such setting; did you mean log.level?",
        "t.yaml:shadow): there is no such setting; did you mean mode.shadow?",
        "t.yaml:mode): is a section, not a setting",
        "t.yaml:log.format): \"xml\" was given, expected one of text, json",
        "did you mean TOLLGATE_STORE_CONNECTIONS?",
        "caps.key_bytes (from $TOLLGATE_CAPS_KEY_BYTES): \"many\" was given",
        "mode.shadow (from $SHADOW_MODE): \"yes\" was given, expected a boolean",
        "mode.near_limit_ratio (from $NEAR_LIMIT_RATIO): it is set but empty, expected a number",
        "grpc.addr (from --grpc-addr): \"nowhere\" was given, expected host:port",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in: {text}");
    }
    assert_eq!(error.faults.len(), 11, "{text}");
}

#[test]
fn files_that_cannot_be_read_are_told() {
    for (name, text, word) in [
        ("t.ini", "", "must end in .toml, .yaml or .yml"),
        ("t.toml", "a = ", "t.toml"),
        ("t.yaml", "a: [", "t.yaml"),
    ] {
        let (_folder, path) = file(name, text);
        let error = load(Some(&path), &[], &[]).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(load(Some(Path::new("/does/not/exist.toml")), &[], &[]).is_err());
}

#[test]
fn durations_and_sizes_need_the_right_form() {
    let duration = |text: &str| parse::duration(text).ok().map(|length| length.as_micros());
    for (text, expected) in [
        ("20ms", Some(20_000)),
        ("1m30s", Some(90_000_000)),
        ("1.5h", Some(5_400_000_000)),
        ("150us", Some(150)),
        ("0s", Some(0)),
        ("20", None),
        ("", None),
        ("ms", None),
        ("-1s", None),
        ("5 s", None),
        ("1d", None),
        ("1e9h", None),
        ("99999999999h", None),
    ] {
        assert_eq!(duration(text), expected, "{text:?}");
    }
    for (text, expected) in [
        ("4096", Some(4_096)),
        ("64KiB", Some(65_536)),
        ("2 MiB", Some(2 << 20)),
        ("0", None),
        ("64kb", None),
        ("99999999999GiB", None),
    ] {
        assert_eq!(parse::size(text).ok(), expected, "{text:?}");
    }
}

#[test]
fn addresses_may_be_names_and_ipv6_with_or_without_brackets() {
    for (host, expected) in [
        ("127.0.0.1", "127.0.0.1:99"),
        ("localhost", "127.0.0.1:99"),
        ("::1", "[::1]:99"),
        ("[::1]", "[::1]:99"),
        ("", "[::]:99"),
        ("0.0.0.0", "0.0.0.0:99"),
    ] {
        let env = [("GRPC_HOST", host), ("GRPC_PORT", "99")];
        let loaded = load(None, &env, &[]).unwrap();
        assert_eq!(loaded.settings.grpc.addr.to_string(), expected, "{host:?}");
        assert_eq!(shown(&loaded, "grpc.addr").1, "$GRPC_HOST, $GRPC_PORT");
    }
}

#[test]
fn the_references_variables_set_our_settings() {
    check(&[("HOST", "0.0.0.0")], "http.addr", "0.0.0.0:8080");
    check(&[("PORT", "1")], "http.addr", ":1");
    check(&[("GRPC_PORT", "1")], "grpc.addr", ":1");
    check(&[("DEBUG_PORT", "1")], "admin.addr", "127.0.0.1:1");
    check(&[("DEBUG_HOST", "0.0.0.0")], "admin.addr", "0.0.0.0:6070");
    check(&[("USE_PROMETHEUS", "true")], "admin.prometheus_addr", ":9090");
    let addr = ("PROMETHEUS_ADDR", "127.0.0.1:7");
    check(&[("USE_PROMETHEUS", "1"), addr], "admin.prometheus_addr", "127.0.0.1:7");
    check(&[("USE_PROMETHEUS", "0"), addr], "admin.prometheus_addr", "-");
    check(&[addr], "admin.prometheus_addr", "-");
    let path = ("PROMETHEUS_PATH", "/m");
    check(&[("USE_PROMETHEUS", "T"), path], "admin.prometheus_path", "/m");
    check(&[("GRPC_MAX_CONNECTION_AGE", "1h30m")], "grpc.max_connection_age", "1h30m");
    check(&[("GRPC_MAX_CONNECTION_AGE", "0")], "grpc.max_connection_age", "never");
    check(&[("REDIS_TIMEOUT", "2s")], "store.connect_timeout", "2s");
    check(&[("REDIS_POOL_SIZE", "3")], "store.connections", "3");
    check(&[("EXPIRATION_JITTER_MAX_SECONDS", "300")], "store.ttl_jitter", "300s");
    check(&[("CACHE_KEY_PREFIX", "p:")], "store.key_prefix", "p:");
    check(&[("SHADOW_MODE", "t")], "mode.shadow", "true");
    check(&[("QUOTA_MODE", "True")], "mode.quota", "true");
    check(&[("RESPONSE_DYNAMIC_METADATA", "TRUE")], "response.dynamic_metadata", "true");
    check(&[("MERGE_DOMAIN_CONFIG", "1")], "rules.merge_domains", "true");
    check(&[("NEAR_LIMIT_RATIO", "0.5")], "mode.near_limit_ratio", "0.5");
    check(&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "response.headers", "true");
    check(&[("LIMIT_LIMIT_HEADER", "X-L")], "response.limit_header", "X-L");
    check(&[("LIMIT_REMAINING_HEADER", "X-R")], "response.remaining_header", "X-R");
    check(&[("LIMIT_RESET_HEADER", "X-T")], "response.reset_header", "X-T");
    let healthy = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED";
    check(&[(healthy, "true")], "rules.healthy_needs_domain", "true");
    let forced = "FORCE_START_WITHOUT_INITIAL_CONFIG";
    check(&[(forced, "true")], "rules.start_without_rules", "true");
    check(&[("LOG_FORMAT", "json")], "log.format", "json");
    for (word, level) in [
        ("WARN", tracing::Level::WARN),
        ("warning", tracing::Level::WARN),
        ("fatal", tracing::Level::ERROR),
        ("panic", tracing::Level::ERROR),
        ("trace", tracing::Level::TRACE),
    ] {
        let loaded = load(None, &[("LOG_LEVEL", word)], &[]).unwrap();
        assert_eq!(loaded.settings.log.level, level, "{word}");
    }
}

#[test]
fn the_references_folder_of_rules_is_one_source() {
    let source = |env: Pairs<'_>| {
        let mut sources = load(None, env, &[]).unwrap().settings.rules.sources;
        assert_eq!(sources.len(), 1, "{env:?}");
        sources.remove(0)
    };
    let root = ("RUNTIME_ROOT", "/data/current");
    let sub = ("RUNTIME_SUBDIRECTORY", "rl");
    let expected = |path: &str, ignore_dotfiles, link: Option<&str>| RulesSource {
        path: path.into(),
        ignore_dotfiles,
        swapped_link: link.map(PathBuf::from),
    };
    let link = Some("/data/current");
    assert_eq!(source(&[root]), expected("/data/current/config", false, link));
    assert_eq!(source(&[root, sub]), expected("/data/current/rl/config", false, link));
    let env = [
        root,
        sub,
        ("RUNTIME_APPDIRECTORY", "app"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
    ];
    assert_eq!(source(&env), expected("/data/current/rl/app", true, None));
    let default = "/srv/runtime_data/current";
    assert_eq!(source(&[sub]), expected(&format!("{default}/rl/config"), false, Some(default)));

    let loaded = load(None, &[root, sub], &[("rules.paths", "mine.yaml")]).unwrap();
    assert_eq!(loaded.settings.rules.sources, [expected("mine.yaml", true, None)]);
    let (_folder, path) = file("t.toml", "rules.paths = ['theirs']");
    let loaded = load(Some(&path), &[root], &[]).unwrap();
    assert_eq!(loaded.settings.rules.sources, [expected("theirs", true, None)]);
    let (_folder, path) = file("t.toml", "rules.ignore_dotfiles = true");
    let loaded = load(Some(&path), &[root], &[]).unwrap();
    assert!(loaded.settings.rules.sources[0].ignore_dotfiles);
}

#[test]
fn the_references_redis_variables_become_one_url() {
    #[track_caller]
    fn check(env: Pairs<'_>, expected: &str) {
        match load(None, env, &[]).unwrap().settings.store.url {
            StoreUrl::Redis(url) => assert_eq!(url.expose(), expected, "{env:?}"),
            StoreUrl::Memory => assert_eq!("memory", expected, "{env:?}"),
        }
    }
    let tcp = ("REDIS_SOCKET_TYPE", "tcp");
    let url = ("REDIS_URL", "redis:6379");
    check(&[tcp, url], "redis://redis:6379");
    check(&[url], "redis://redis:6379");
    check(&[tcp, ("REDIS_AUTH", "x")], "memory");
    check(&[tcp, url, ("REDIS_AUTH", "p@s/s")], "redis://:p%40s%2Fs@redis:6379");
    check(&[tcp, url, ("REDIS_AUTH", "me:a:b")], "redis://me:a%3Ab@redis:6379");
    check(&[tcp, url, ("REDIS_TLS", "true")], "rediss://redis:6379");
    check(&[tcp, ("REDIS_URL", "[::1]:6379")], "redis://[::1]:6379");
    check(&[("REDIS_URL", "/run/r.sock")], "unix:///run/r.sock");
    check(&[("REDIS_URL", "/r"), ("REDIS_AUTH", "u:p")], "unix:///r?user=u&pass=p");
    check(&[tcp, ("REDIS_URL", "redis://u:p@h:1/2")], "redis://u:p@h:1/2");
    check(&[("REDIS_URL", "redis://h:1"), ("REDIS_AUTH", "p")], "redis://:p@h:1");
    check(&[url, ("TOLLGATE_STORE_URL", "memory")], "memory");
    check(&[("REDIS_TYPE", "cluster"), ("TOLLGATE_STORE", "memory")], "memory");
    check(&[url, ("REDIS_TYPE", "SINGLE"), ("REDIS_PERSECOND", "false")], "redis://redis:6379");
}

#[test]
fn the_references_faults_are_told() {
    let bools = ["SHADOW_MODE", "USE_PROMETHEUS", "QUOTA_MODE", "REDIS_TLS", "REDIS_PERSECOND"];
    for variable in bools {
        check_fault(&[(variable, "")], &[variable, "set but empty", "boolean"]);
        check_fault(&[(variable, "on")], &[variable, "\"on\"", "boolean"]);
    }
    check_fault(&[("RUNTIME_WATCH_ROOT", "")], &["RUNTIME_WATCH_ROOT", "set but empty"]);
    check_fault(&[("RUNTIME_ROOT", "")], &["RUNTIME_ROOT", "set but empty"]);
    check_fault(&[("GRPC_PORT", "")], &["GRPC_PORT", "set but empty", "a port"]);
    check_fault(&[("PORT", "70000")], &["$PORT", "70000", "a port"]);
    check_fault(&[("REDIS_TIMEOUT", "10")], &["REDIS_TIMEOUT", "\"10\"", "a duration with a unit"]);
    check_fault(&[("REDIS_TIMEOUT", "")], &["REDIS_TIMEOUT", "set but empty"]);
    check_fault(&[("REDIS_POOL_SIZE", "0")], &["REDIS_POOL_SIZE", "above zero"]);
    check_fault(&[("EXPIRATION_JITTER_MAX_SECONDS", "5s")], &["a whole number of seconds"]);
    check_fault(&[("GRPC_MAX_CONNECTION_AGE", "day")], &["GRPC_MAX_CONNECTION_AGE", "a duration"]);
    check_fault(&[("LOG_LEVEL", "loud")], &["LOG_LEVEL", "one of trace, debug"]);
    check_fault(&[("NEAR_LIMIT_RATIO", "8")], &["NEAR_LIMIT_RATIO", "from 0 to 1"]);
    check_fault(&[("LIMIT_RESET_HEADER", "a b")], &["LIMIT_RESET_HEADER", "a header name"]);
    check_fault(&[("REDIS_URL", "")], &["REDIS_URL", "set but empty", "in memory"]);
    check_fault(&[("REDIS_URL", "redis")], &["REDIS_URL", "host:port"]);
    check_fault(&[("REDIS_URL", "a:1,b:2")], &["REDIS_URL", "one Redis"]);
    let unix = ("REDIS_SOCKET_TYPE", "unix");
    check_fault(&[unix, ("REDIS_URL", "a:1")], &["absolute path of a socket"]);
    check_fault(&[("REDIS_SOCKET_TYPE", "udp"), ("REDIS_URL", "a:1")], &["unix or tcp"]);
}

#[test]
fn what_would_be_unsafe_to_ignore_is_refused() {
    for (variable, value, word) in [
        ("REDIS_TYPE", "sentinel", "a single Redis"),
        ("REDIS_TYPE", "CLUSTER", "a single Redis"),
        ("REDIS_PERSECOND", "true", "a single Redis"),
        ("GRPC_SERVER_USE_TLS", "true", "plaintext"),
        ("GRPC_CLIENT_TLS_CACERT", "/ca.pem", "client certificates"),
        ("GRPC_CLIENT_TLS_SAN", "a", "client certificates"),
        ("GRPC_UDS", "/run/rl.sock", "TCP only"),
        ("BACKEND_TYPE", "memcache", "memcached"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "xDS"),
    ] {
        check_fault(&[(variable, value)], &[variable, value, word]);
    }
    let harmless = [("GRPC_SERVER_USE_TLS", "false"), ("CONFIG_TYPE", "FILE"), ("GRPC_UDS", "")];
    assert!(load(None, &harmless, &[]).is_ok());
}

#[test]
fn variables_without_effect_are_named() {
    let ignored = |env: Pairs<'_>| load(None, env, &[]).unwrap().ignored;
    let none: [&str; 0] = [];
    assert_eq!(
        ignored(&[
            ("USE_STATSD", "true"),
            ("LOCAL_CACHE_SIZE_IN_BYTES", "1000"),
            ("DOG_STATSD_MOGRIFIER_A_NAME", "x"),
            ("TOLLGATE_BIN", "/usr/bin/tollgate"),
        ]),
        ["TOLLGATE_BIN", "USE_STATSD", "LOCAL_CACHE_SIZE_IN_BYTES", "DOG_STATSD_MOGRIFIER_A_NAME"]
    );
    let defaults = [
        ("USE_STATSD", "0"),
        ("STATS_FLUSH_INTERVAL", "10000ms"),
        ("MEMCACHE_HOST_PORT", ""),
        ("TRACING_SAMPLING_RATE", "1"),
    ];
    assert_eq!(ignored(&defaults), none);
    // What Kubernetes sets for services, and what is none of our business.
    let foreign = [
        ("TOLLGATE_SERVICE_HOST", "10.0.0.1"),
        ("TOLLGATE_SERVICE_PORT_GRPC", "8081"),
        ("TOLLGATE_PORT", "tcp://10.0.0.1:8081"),
        ("TOLLGATE_PORT_8081_TCP_ADDR", "10.0.0.1"),
        ("PATH", ""),
        ("REDIS_ANYTHING", ""),
    ];
    assert_eq!(ignored(&foreign), none);
}

#[test]
fn store_urls_never_show_their_password() {
    for (url, expected) in [
        ("redis://user:secret@h:6379/1", "redis://***@h:6379/1"),
        ("rediss://:secret@h", "rediss://***@h"),
        ("unix:///run/r.sock?db=1&pass=secret", "unix:///run/r.sock?db=1&pass=***"),
        ("redis://h:6379", "redis://h:6379"),
    ] {
        let parsed: StoreUrl = url.parse().unwrap();
        assert_eq!(parsed.to_string(), expected);
        assert!(!format!("{parsed:?}").contains("secret"));
        let loaded = load(None, &[("TOLLGATE_STORE_URL", url)], &[]).unwrap();
        assert_eq!(shown(&loaded, "store.url").0, expected);
        assert!(!format!("{loaded:?}").contains("secret"));
    }
    for url in [
        "http://user:secret@h",
        "redis://user:secret@h:port",
        "redis://user:se/cr#secret@h:99999",
        "redis://user:secret@h/db",
        "user:secret@h",
        "unix://secret@relative",
        "memroy",
        "",
    ] {
        for name in ["TOLLGATE_STORE_URL", "REDIS_URL"] {
            let text = load(None, &[(name, url)], &[]).unwrap_err().to_string();
            assert!(!text.contains("secret"), "{text}");
            assert!(text.contains("expected") && text.contains(name), "{text}");
        }
    }
}

#[test]
fn the_example_file_lists_every_setting_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("settings.example.yaml");
    let expected = example();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected, "run with UPDATE_GOLDEN=1");
    let from_file = load(Some(&path), &[], &[]).unwrap();
    let defaults = load(None, &[], &[]).unwrap();
    assert_eq!(format!("{:?}", from_file.settings), format!("{:?}", defaults.settings));
}

/// The example file as the table has it.
fn example() -> String {
    let mut out = String::from(
        "# Every setting of `tollgate serve` with its default. Keep what you change.\n\
         # Each has a variable too: TOLLGATE_STORE_TIMEOUT is store.timeout.\n",
    );
    let mut sections: Vec<&str> = Vec::new();
    for spec in SETTINGS {
        let mut path: Vec<_> = spec.key.split('.').collect();
        let name = path.pop().unwrap();
        for (depth, section) in path.iter().enumerate() {
            if sections.get(depth) != Some(section) {
                sections.truncate(depth);
                let gap = if depth == 0 { "\n" } else { "" };
                out += &format!("{gap}{}{section}:\n", "  ".repeat(depth));
                sections.push(section);
            }
        }
        let indent = "  ".repeat(path.len());
        let plain = matches!(spec.shape, Shape::Number | Shape::Bool);
        let value = match spec.default {
            "" if spec.shape == Shape::List => "[]".to_owned(),
            default if plain => default.to_owned(),
            default => format!("{default:?}"),
        };
        out += &format!("{indent}# {}.\n{indent}{name}: {value}\n", spec.doc);
    }
    out
}

#[test]
fn settings_are_printed_in_sections_and_columns() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/print-settings.txt");
    let env = [
        ("REDIS_URL", "redis:6379"),
        ("REDIS_AUTH", "user:secret"),
        ("TOLLGATE_STORE_TIMEOUT", "20ms"),
        ("RUNTIME_ROOT", "/data"),
    ];
    let flags = [("grpc.addr", "127.0.0.1:9"), ("grpc.workers", "2")];
    let printed = load(None, &env, &flags).unwrap().shown.to_string();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &printed).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), printed, "run with UPDATE_GOLDEN=1");
}
