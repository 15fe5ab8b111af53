//! Text to values. Each parser's error says what would have been right.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::LogFormat;
use crate::model::{ChargeMode, FailureMode};

/// What would have been right, to follow "expected".
pub(super) type Expected = String;

const DURATION: &str = "a duration with a unit, such as 20ms, 5s or 1m30s";
const ADDR: &str = "host:port, such as 0.0.0.0:8081, [::1]:8081 or localhost:8081";

/// Durations as Go writes them: numbers with a unit, one after the other.
pub(super) fn duration(text: &str) -> Result<Duration, Expected> {
    let fault = || DURATION.to_owned();
    let mut total = 0_f64;
    let mut rest = text;
    if rest.is_empty() {
        return Err(fault());
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fault)?;
        let (number, after) = rest.split_at(unit_at);
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_len);
        let nanos = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3_600e9,
            _ => return Err(fault()),
        };
        total += number.parse::<f64>().map_err(|_| fault())? * nanos;
        rest = next;
    }
    // A century keeps all arithmetic with it far from its bounds.
    if total > 3.2e18 {
        return Err("a duration below a hundred years".to_owned());
    }
    Duration::try_from_secs_f64(total / 1e9).map_err(|_| fault())
}

/// A duration that is long enough to wait for.
pub(super) fn timeout(text: &str) -> Result<Duration, Expected> {
    match duration(text)? {
        length if length.is_zero() => Err("a duration above zero".to_owned()),
        length => Ok(length),
    }
}

/// A duration above zero, or `never`.
pub(super) fn age(text: &str) -> Result<Option<Duration>, Expected> {
    if text == "never" {
        return Ok(None);
    }
    timeout(text).map(Some).map_err(|expected| format!("{expected}, or never"))
}

/// A whole number of at least one.
pub(super) fn count(text: &str) -> Result<usize, Expected> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a whole number above zero".to_owned()),
    }
}

/// A number of threads; `auto` is one per core.
pub(super) fn workers(text: &str) -> Result<usize, Expected> {
    const MOST: usize = 1_024;
    if text == "auto" {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    }
    match count(text) {
        Ok(number) if number <= MOST => Ok(number),
        _ => Err(format!("a whole number from 1 to {MOST}, or auto")),
    }
}

/// Bytes, with an optional binary unit.
pub(super) fn size(text: &str) -> Result<usize, Expected> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    number
        .parse::<usize>()
        .ok()
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "a number of bytes above zero, such as 4096, 64KiB or 1GiB".to_owned())
}

pub(super) fn boolean(text: &str) -> Result<bool, Expected> {
    text.parse().map_err(|_| "true or false".to_owned())
}

pub(super) fn ratio(text: &str) -> Result<f32, Expected> {
    match text.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("a number from 0 to 1, such as 0.8".to_owned()),
    }
}

/// `host:port`; an empty host is all of them, a name is looked up and IPv4 preferred, as Go does.
pub(super) fn addr(text: &str) -> Result<SocketAddr, Expected> {
    let (host, port) = text.rsplit_once(':').ok_or_else(|| ADDR.to_owned())?;
    let port = self::port(port).map_err(|_| ADDR.to_owned())?;
    host_addr(host, port)
}

pub(super) fn optional_addr(text: &str) -> Result<Option<SocketAddr>, Expected> {
    if text.is_empty() { Ok(None) } else { addr(text).map(Some) }
}

pub(super) fn port(text: &str) -> Result<u16, Expected> {
    text.parse().map_err(|_| "a port from 0 to 65535".to_owned())
}

fn host_addr(host: &str, port: u16) -> Result<SocketAddr, Expected> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() {
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok((ip, port).into());
    }
    let found: Vec<_> = (bare, port)
        .to_socket_addrs()
        .map_err(|_| format!("{ADDR}; this host has no address"))?
        .collect();
    found
        .iter()
        .find(|addr| addr.is_ipv4())
        .or(found.first())
        .copied()
        .ok_or_else(|| format!("{ADDR}; this host has no address"))
}

/// A path of a URL.
pub(super) fn url_path(text: &str) -> Result<String, Expected> {
    if text.starts_with('/') && !text.contains(|c: char| c.is_whitespace() || "?#{}".contains(c)) {
        return Ok(text.to_owned());
    }
    Err("a path that starts with a slash, such as /metrics".to_owned())
}

pub(super) fn header_name(text: &str) -> Result<String, Expected> {
    match http::HeaderName::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("a header name, such as RateLimit-Limit".to_owned()),
    }
}

pub(super) fn text(text: &str) -> Result<String, Expected> {
    Ok(text.to_owned())
}

/// One of the words, in any case.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Expected> {
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|&(_, value)| value).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        format!("one of {}", words.join(", "))
    })
}

pub(super) fn level(text: &str) -> Result<tracing::Level, Expected> {
    word(
        text,
        &[
            ("trace", tracing::Level::TRACE),
            ("debug", tracing::Level::DEBUG),
            ("info", tracing::Level::INFO),
            ("warn", tracing::Level::WARN),
            ("warning", tracing::Level::WARN),
            ("error", tracing::Level::ERROR),
            ("fatal", tracing::Level::ERROR),
            ("panic", tracing::Level::ERROR),
        ],
    )
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, Expected> {
    word(text, &[("text", LogFormat::Text), ("json", LogFormat::Json)])
}

pub(super) fn charge(text: &str) -> Result<ChargeMode, Expected> {
    word(
        text,
        &[
            ("auto", ChargeMode::Auto),
            ("admitted", ChargeMode::Admitted),
            ("always", ChargeMode::Always),
        ],
    )
}

pub(super) fn failure(text: &str) -> Result<FailureMode, Expected> {
    word(
        text,
        &[
            ("error", FailureMode::Error),
            ("allow", FailureMode::Allow),
            ("deny", FailureMode::Deny),
            ("local", FailureMode::Local),
        ],
    )
}

/// Booleans as Go's `strconv.ParseBool` reads them.
pub(super) fn go_bool(text: &str) -> Result<bool, Expected> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("a boolean: 1, t, T, TRUE, true, True, 0, f, F, FALSE, false or False".to_owned()),
    }
}

/// Durations as Go's `time.ParseDuration` reads them: `0` has no unit.
pub(super) fn go_duration(text: &str) -> Result<Duration, Expected> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}
