//! The reference's Redis variables: one URL out of several parts.

use super::super::layers::variable_origin;
use super::super::parse;
use super::super::store_url::redact;
use super::Reference;

const KEY: &str = "store.url";
const SINGLE_ONLY: &str = "nothing else than a single Redis, which is all that this version speaks \
                           to; Sentinel, Cluster and a second Redis per second are not supported";

impl Reference<'_> {
    pub(super) fn redis(&mut self) {
        if !(self.stronger)(KEY) {
            self.store_url();
        }
        self.convert("REDIS_TIMEOUT", "store.connect_timeout", |text| {
            match parse::go_duration(text)? {
                length if length.is_zero() => Err("a duration above zero".to_owned()),
                _ => Ok(text.to_owned()),
            }
        });
        self.convert("REDIS_POOL_SIZE", "store.connections", |text| {
            parse::count(text).map(|_| text.to_owned())
        });
    }

    fn store_url(&mut self) {
        if let Some(kind) = self.env.get("REDIS_TYPE")
            && !kind.is_empty()
            && !kind.eq_ignore_ascii_case("single")
        {
            self.fault(KEY, "REDIS_TYPE", kind, SINGLE_ONLY);
        }
        if self.flag(KEY, "REDIS_PERSECOND", false) {
            self.fault(KEY, "REDIS_PERSECOND", "true", SINGLE_ONLY);
        }
        let tls = self.flag(KEY, "REDIS_TLS", false);
        let Some(url) = self.env.get("REDIS_URL") else { return };
        let socket = self.env.get("REDIS_SOCKET_TYPE").map(|kind| kind.to_lowercase());
        match self.join_url(url, socket.as_deref(), tls) {
            Ok(url) => {
                let parts = ["REDIS_URL", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS"];
                let given: Vec<_> =
                    parts.into_iter().filter(|name| self.get(name).is_some()).collect();
                self.layer.set(KEY, &variable_origin(&given.join(", $")), url);
            }
            Err((variable, expected)) => {
                let given = self.get(variable).map(redact).unwrap_or_default();
                self.fault(KEY, variable, &given, &expected);
            }
        }
    }

    /// The URL, or the variable that is at fault and what it should be.
    fn join_url(
        &self,
        url: &str,
        socket: Option<&str>,
        tls: bool,
    ) -> Result<String, (&'static str, String)> {
        let auth = self.get("REDIS_AUTH").filter(|auth| !auth.is_empty());
        let (user, password) = match auth.map(|auth| auth.split_once(':').unwrap_or(("", auth))) {
            Some((user, password)) => (encode(user), Some(encode(password))),
            None => (String::new(), None),
        };
        let fault = |expected: &str| Err(("REDIS_URL", expected.to_owned()));
        if !matches!(socket, None | Some("unix" | "tcp" | "")) {
            return Err(("REDIS_SOCKET_TYPE", "unix or tcp".to_owned()));
        }
        if url.is_empty() {
            return fault("host:port or the path of a socket; unset it to keep counters in memory");
        }
        if url.contains(',') {
            return fault("the address of one Redis");
        }
        if let Some((scheme, rest)) = url.split_once("://") {
            let scheme = if tls && scheme == "redis" { "rediss" } else { scheme };
            return Ok(match password {
                Some(password) if scheme != "unix" && !rest.contains('@') => {
                    format!("{scheme}://{user}:{password}@{rest}")
                }
                _ => format!("{scheme}://{rest}"),
            });
        }
        if url.starts_with('/') {
            if socket == Some("tcp") {
                return fault("host:port, as REDIS_SOCKET_TYPE is tcp");
            }
            if tls {
                return Err(("REDIS_TLS", "false for a unix socket".to_owned()));
            }
            let query = match password {
                Some(password) if user.is_empty() => format!("?pass={password}"),
                Some(password) => format!("?user={user}&pass={password}"),
                None => String::new(),
            };
            return Ok(format!("unix://{url}{query}"));
        }
        if socket == Some("unix") {
            return fault("the absolute path of a socket, as REDIS_SOCKET_TYPE is unix");
        }
        if url.rsplit_once(':').is_none_or(|(_, port)| parse::port(port).is_err()) {
            return fault("host:port, such as redis:6379");
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let info = password.map(|password| format!("{user}:{password}@")).unwrap_or_default();
        Ok(format!("{scheme}://{info}{url}"))
    }
}

/// Percent-encodes everything that could mean something in a URL.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
