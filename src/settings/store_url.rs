//! Where counters live, and a URL that does not show its password.

use std::fmt;
use std::str::FromStr;

use redis::IntoConnectionInfo;

/// Where counters live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// `redis://`, `rediss://` or `unix://`, checked to be one that the client library accepts.
    /// Holds a password: print it only through its `Display`, which hides it.
    Redis(RedisUrl),
}

/// A URL of Redis; hides its user info when printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The whole URL with its password, for the store alone.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

const FORMS: &str = "memory, redis://[user:password@]host:port[/db], rediss://… for TLS, or \
                     unix:///path/to/socket";

impl FromStr for StoreUrl {
    type Err = String;

    /// # Errors
    ///
    /// What is expected instead; the password is not in it.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(FORMS.to_owned());
        };
        if !matches!(scheme, "redis" | "rediss" | "unix") {
            return Err(format!("{FORMS}; the scheme is not one of them"));
        }
        if scheme == "unix" && !rest.starts_with('/') {
            return Err("unix:///path/to/socket, with an absolute path".to_owned());
        }
        match text.into_connection_info() {
            Ok(_) => Ok(Self::Redis(RedisUrl(text.to_owned()))),
            Err(error) => Err(format!("{FORMS}; {}", reason(&error))),
        }
    }
}

/// Why the client library refused a URL, without the URL.
fn reason(error: &redis::RedisError) -> &'static str {
    let text = error.to_string();
    let has = |word: &str| text.to_lowercase().contains(word);
    if has("database") {
        "the database is not a number"
    } else if has("host") {
        "the host is missing"
    } else {
        "host, port or user info cannot be read (special characters in a password are written as \
         %XX)"
    }
}

/// A store URL as it may be shown: user info and passwords replaced by dots.
pub(super) fn redact(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (&text[..scheme.len() + 3], rest),
        None => ("", text),
    };
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => rest.to_owned(),
    };
    match rest.split_once('?') {
        Some((path, query)) => {
            let query: Vec<_> = query
                .split('&')
                .map(|pair| match pair.split_once('=') {
                    Some((name, _)) if name != "db" => format!("{name}=***"),
                    _ => pair.to_owned(),
                })
                .collect();
            format!("{scheme}{path}?{}", query.join("&"))
        }
        None => format!("{scheme}{rest}"),
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(url) => url.fmt(f),
        }
    }
}
