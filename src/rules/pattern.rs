//! What a rule's key and value stand for, and which values it matches.

use std::net::IpAddr;

use ipnet::IpNet;
use regex::bytes::{Regex, RegexBuilder};

use super::yaml::shorten;
use crate::model::Entry;

/// Compiled size of one regular expression, in bytes.
const REGEX_SIZE: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(super) enum Pattern {
    /// No value given: every value.
    Any,
    Exact(Box<[u8]>),
    /// Also a glob whose only star is the last character.
    Prefix(Box<[u8]>),
    Glob(Glob),
    /// Matches whole values.
    Regex {
        regex: Regex,
        literals: usize,
    },
    Cidr(IpNet),
    /// A star in the key: matched against key and value joined by `_`, as the reference does.
    Joined(Glob),
}

/// How a rules file says to read a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchMode {
    Exact,
    Prefix,
    Glob,
    Regex,
    Cidr,
}

impl MatchMode {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "exact" => Self::Exact,
            "prefix" => Self::Prefix,
            "glob" => Self::Glob,
            "regex" => Self::Regex,
            "cidr" => Self::Cidr,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Glob => "glob",
            Self::Regex => "regex",
            Self::Cidr => "cidr",
        }
    }
}

/// What is wrong with a pattern, and what to do.
pub(super) type PatternFault = (String, String);

impl Pattern {
    /// `value` is not empty.
    pub(super) fn try_new(value: &str, mode: Option<MatchMode>) -> Result<Self, PatternFault> {
        Ok(match mode {
            Some(MatchMode::Exact) => Self::Exact(value.as_bytes().into()),
            None if !value.contains('*') => Self::Exact(value.as_bytes().into()),
            Some(MatchMode::Prefix) => Self::Prefix(value.as_bytes().into()),
            None | Some(MatchMode::Glob) => match Glob::new(value) {
                Glob(parts) if parts.len() == 1 => Self::Exact(value.as_bytes().into()),
                Glob(parts) if parts.len() == 2 && parts[1].is_empty() => {
                    Self::Prefix(parts[0].clone())
                }
                glob => Self::Glob(glob),
            },
            Some(MatchMode::Regex) => {
                Self::Regex { regex: regex(value)?, literals: regex_literals(value) }
            }
            Some(MatchMode::Cidr) => Self::Cidr(network(value)?),
        })
    }

    /// Whether a rule with `key` and this pattern matches the entry. The index of a level finds
    /// the same, faster.
    pub(super) fn matches(&self, key: &str, entry: &Entry<'_>) -> bool {
        let value = entry.value;
        if let Self::Joined(glob) = self {
            return glob.matches(&[entry.key, b"_", value].concat());
        }
        key.as_bytes() == entry.key
            && match self {
                Self::Any | Self::Joined(_) => true,
                Self::Exact(own) => **own == *value,
                Self::Prefix(own) => value.starts_with(own),
                Self::Glob(glob) => glob.matches(value),
                Self::Regex { regex, .. } => regex.is_match(value),
                Self::Cidr(network) => parse_network(value).is_some_and(|it| network.contains(&it)),
            }
    }

    /// Values that the pattern spells out, in bytes: the more, the more specific it is.
    pub(super) fn literals(&self) -> usize {
        match self {
            Self::Any => 0,
            Self::Exact(own) | Self::Prefix(own) => own.len(),
            Self::Glob(glob) | Self::Joined(glob) => glob.0.iter().map(|part| part.len()).sum(),
            Self::Regex { literals, .. } => *literals,
            Self::Cidr(network) => usize::from(network.prefix_len()),
        }
    }

    /// Equal for two patterns that match the same values by the same rule.
    pub(super) fn identity(&self) -> (&'static str, Vec<u8>) {
        match self {
            Self::Any => ("any", Vec::new()),
            Self::Exact(own) => ("exact", own.to_vec()),
            Self::Prefix(own) => ("prefix", own.to_vec()),
            Self::Glob(glob) => ("glob", glob.0.join(&b'*')),
            Self::Regex { regex, .. } => ("regex", regex.as_str().into()),
            Self::Cidr(network) => ("cidr", network.to_string().into_bytes()),
            Self::Joined(glob) => ("joined", glob.0.join(&b'*')),
        }
    }

    /// Whether one rule stands for many values.
    pub(super) fn is_wild(&self) -> bool {
        !matches!(self, Self::Any | Self::Exact(_))
    }

    /// The kind, for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Any => "any value",
            Self::Exact(_) => "exact value",
            Self::Prefix(_) => "prefix",
            Self::Glob(_) => "glob",
            Self::Regex { .. } => "regex",
            Self::Cidr(_) => "cidr",
            Self::Joined(_) => "glob over key and value",
        }
    }
}

/// The literal parts between stars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(Vec<Box<[u8]>>);

impl Glob {
    pub(super) fn new(text: &str) -> Self {
        let mut parts: Vec<Box<[u8]>> =
            text.split('*').map(|part| part.as_bytes().into()).collect();
        let last = parts.len() - 1;
        let mut index = 0;
        // Adjacent stars are one.
        parts.retain(|part| {
            index += 1;
            index == 1 || index == last + 1 || !part.is_empty()
        });
        Self(parts)
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        match self.0.as_slice() {
            [] => false,
            [only] => **only == *text,
            [first, middle @ .., last] => {
                let Some(rest) = text.strip_prefix(&**first) else { return false };
                let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
                for part in middle {
                    match rest.windows(part.len()).position(|window| *window == **part) {
                        Some(at) => rest = &rest[at + part.len()..],
                        None => return false,
                    }
                }
                true
            }
        }
    }
}

fn regex(text: &str) -> Result<Regex, PatternFault> {
    let fault = |error: &regex::Error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        let reason = last.trim().trim_start_matches("error: ").to_owned();
        (
            format!("not a regular expression: {reason}"),
            "expected the syntax of Rust's `regex` crate, without look-around and back references"
                .to_owned(),
        )
    };
    let build = |text: &str| {
        RegexBuilder::new(text).size_limit(REGEX_SIZE).dfa_size_limit(REGEX_SIZE).build()
    };
    // Alone first, so that it can not close the group that anchors it.
    build(text).map_err(|error| fault(&error))?;
    build(&format!(r"\A(?:{text}{})\z", if text.contains('#') { "\n" } else { "" }))
        .map_err(|error| fault(&error))
}

/// Characters of a regular expression that stand for themselves, near enough.
fn regex_literals(text: &str) -> usize {
    let mut count: usize = 0;
    let mut last = 0;
    let mut closes_at = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '*' || letter == '?' {
            count -= last;
        }
        last = match letter {
            '\\' => usize::from(letters.next().is_some_and(|next| !next.is_ascii_alphanumeric())),
            _ if closes_at.is_some() => {
                closes_at = closes_at.filter(|end| *end != letter);
                0
            }
            '[' | '{' => {
                closes_at = Some(if letter == '[' { ']' } else { '}' });
                0
            }
            '.' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '|' => 0,
            _ => 1,
        };
        count += last;
    }
    count
}

fn network(text: &str) -> Result<IpNet, PatternFault> {
    let Some(network) = parse_network(text.as_bytes()) else {
        let help = "expected a network such as `10.0.0.0/8` or `2001:db8::/32`, or an address";
        return Err((format!("`{}` is not a network", shorten(text)), help.to_owned()));
    };
    match network.trunc() {
        whole if whole == network => Ok(whole),
        whole => Err((
            format!("`{text}` has bits set beyond its prefix length"),
            format!("write `{whole}`, or `{}` for the one address", network.addr()),
        )),
    }
}

/// An address (a network of one) or a network; IPv4 in IPv6 form is IPv4.
pub(super) fn parse_network(bytes: &[u8]) -> Option<IpNet> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (address, length) = match text.split_once('/') {
        None => (text, None),
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
    };
    let address: IpAddr = address.parse().ok()?;
    let plain = address.to_canonical();
    match length {
        None => Some(IpNet::from(plain)),
        Some(length) if plain.is_ipv4() && address.is_ipv6() => {
            IpNet::new(plain, length.checked_sub(96)?).ok()
        }
        Some(length) => IpNet::new(plain, length).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, mode: Option<MatchMode>, hits: &[&str], misses: &[&str]) {
        let pattern = Pattern::try_new(pattern, mode).unwrap();
        for (values, want) in [(hits, true), (misses, false)] {
            for value in values {
                let entry = Entry { key: b"k", value: value.as_bytes() };
                assert_eq!(pattern.matches("k", &entry), want, "{pattern:?} and `{value}`");
            }
        }
    }

    #[test]
    fn globs_match_whole_values() {
        check("a*c*e", None, &["ace", "abcde", "acce", "acxcye"], &["ac", "ae", "aced", "acd"]);
        check("*", None, &["", "a", "a/b_c"], &[]);
        check("img/*", None, &["img/", "img/1"], &["img", "ximg/"]);
        check("ab*ba", None, &["abba", "ab-ba"], &["aba"]);
        check("**x**", None, &["x", "axb"], &["", "y"]);
        check("plain", Some(MatchMode::Glob), &["plain"], &["plai", "plain2"]);
    }

    #[test]
    fn modes_change_what_a_star_means() {
        check("a*", Some(MatchMode::Exact), &["a*"], &["a", "ab"]);
        check("a*", Some(MatchMode::Prefix), &["a*", "a*b"], &["ab"]);
        check("a*", Some(MatchMode::Regex), &["", "aa"], &["ab", "a*"]);
    }

    #[test]
    fn regexes_are_anchored_and_see_any_bytes() {
        check("a|b", Some(MatchMode::Regex), &["a", "b"], &["ab", "ba", ""]);
        check("(?x) a # letter", Some(MatchMode::Regex), &["a"], &["b"]);
        let pattern = Pattern::try_new("(?-u:.)+", Some(MatchMode::Regex)).unwrap();
        assert!(pattern.matches("k", &Entry { key: b"k", value: b"\xff\xfe" }));
    }

    #[test]
    fn networks_hold_addresses_and_smaller_networks() {
        check(
            "10.0.0.0/8",
            Some(MatchMode::Cidr),
            &["10.1.2.3", "::ffff:10.1.2.3", "10.1.0.0/16", "10.0.0.0/8"],
            &["11.0.0.0", "10.0.0.0/7", "10.1.2", "", "::a01:203"],
        );
        check(
            "2001:db8::/32",
            Some(MatchMode::Cidr),
            &["2001:DB8::1"],
            &["2001:db9::", "10.0.0.1"],
        );
        check("0.0.0.0/0", Some(MatchMode::Cidr), &["1.2.3.4"], &["::1"]);
    }

    #[test]
    fn more_literal_characters_are_more_specific() {
        for (text, mode, want) in [
            ("a*b*", None, 2),
            ("abc*", None, 3),
            (r"/api/v\d+\.x[a-z]y?", Some(MatchMode::Regex), 8),
            ("ab.*c{2,3}?(d|e)??", Some(MatchMode::Regex), 5),
        ] {
            assert_eq!(Pattern::try_new(text, mode).unwrap().literals(), want, "{text}");
        }
    }

    #[test]
    fn broken_patterns_are_refused() {
        for (text, mode, want) in [
            ("a(", MatchMode::Regex, "not a regular expression: unclosed group"),
            ("a)(b", MatchMode::Regex, "not a regular expression: unopened group"),
            ("10.0.0.1/8", MatchMode::Cidr, "`10.0.0.1/8` has bits set beyond its prefix length"),
            ("10.0.0.0/33", MatchMode::Cidr, "`10.0.0.0/33` is not a network"),
        ] {
            assert_eq!(Pattern::try_new(text, Some(mode)).unwrap_err().0, want, "{text}");
        }
    }
}
