//! The bytes of a counter key, and nothing else knows them.
//!
//! `tg1|fw3600s|shop|user_id=42` is format version, algorithm and window, domain, then the
//! descriptor's entries. Fields are separated by `|`; that, `%`, braces and control bytes inside a
//! field are written as `%XX`, as is `=` inside an entry's key. An entry whose pattern is shared
//! has `~pattern` instead of `=value`. So two different counters never have the same key.
//!
//! A key longer than [`LONGEST`] bytes ends in a digest instead of its tail.

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::model::{AlgorithmKind, CounterKey, Entry};

/// Format version; a change of format or of a stored state changes it.
const VERSION: &[u8] = b"tg1|";
/// Longest key without the prefix, in bytes.
pub const LONGEST: usize = 200;
/// Where a long key is cut, so that it fits with `|#` and 32 hexadecimal digits.
const KEPT: usize = LONGEST - 34;

/// The part of a key that comes from a limit: algorithm, window and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHead(Box<str>);

impl KeyHead {
    /// `window`: a length in µs, or the name of a calendar window. `place`: of the limit among
    /// those of its rule with the same algorithm and window; the first has no mark, so counters
    /// are kept when a rule gets other limits.
    pub fn new(algorithm: AlgorithmKind, window: KeyWindow<'_>, place: usize) -> Self {
        let short = match algorithm {
            AlgorithmKind::FixedWindow => "fw",
            AlgorithmKind::SlidingWindowLog => "sl",
            AlgorithmKind::SlidingWindowCounter => "sc",
            AlgorithmKind::TokenBucket => "tb",
            AlgorithmKind::Gcra => "gc",
        };
        let window = match window {
            KeyWindow::Length(micros) if micros % 1_000_000 == 0 => {
                format!("{}s", micros / 1_000_000)
            }
            KeyWindow::Length(micros) => format!("{}ms", micros / 1_000),
            KeyWindow::Calendar(name) => format!("-{name}"),
        };
        let place = if place == 0 { String::new() } else { format!("#{place}") };
        Self(format!("{short}{window}{place}|").into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyWindow<'a> {
    /// µs.
    Length(u64),
    /// Unit and time zone, such as `month@Europe/Paris`.
    Calendar(&'a str),
}

/// One entry as it stands in a key.
#[derive(Debug, Clone, Copy)]
pub enum KeyEntry<'a> {
    Value(Entry<'a>),
    /// All values that match the pattern share the counter.
    Shared {
        key: &'a [u8],
        pattern: &'a [u8],
    },
}

/// Writes counter keys.
#[derive(Debug, Clone, Default)]
pub struct KeyCodec {
    prefix: Box<[u8]>,
}

impl KeyCodec {
    /// `prefix` stands before every key as it is.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.as_bytes().into() }
    }

    pub fn encode<'a>(
        &self,
        head: &KeyHead,
        domain: &str,
        entries: impl Iterator<Item = KeyEntry<'a>>,
    ) -> CounterKey {
        let mut out: SmallVec<[u8; 64]> = SmallVec::new();
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(VERSION);
        out.extend_from_slice(head.0.as_bytes());
        escape(&mut out, domain.as_bytes(), is_plain);
        for entry in entries {
            out.push(b'|');
            match entry {
                KeyEntry::Value(Entry { key, value }) => {
                    escape(&mut out, key, is_plain_in_key);
                    out.push(b'=');
                    escape(&mut out, value, is_plain);
                }
                KeyEntry::Shared { key, pattern } => {
                    escape(&mut out, key, is_plain_in_key);
                    out.push(b'~');
                    escape(&mut out, pattern, is_plain);
                }
            }
        }
        self.shorten(&mut out);
        CounterKey::from(out)
    }

    fn shorten(&self, out: &mut SmallVec<[u8; 64]>) {
        let start = self.prefix.len();
        if out.len() - start <= LONGEST {
            return;
        }
        let digest = Sha256::digest(&out[start..]);
        out.truncate(start + KEPT);
        out.extend_from_slice(b"|#");
        for byte in &digest[..16] {
            push_hex(out, *byte);
        }
    }
}

fn is_plain(byte: u8) -> bool {
    !matches!(byte, b'|' | b'%' | b'{' | b'}' | 0..=0x1f | 0x7f)
}

fn is_plain_in_key(byte: u8) -> bool {
    is_plain(byte) && !matches!(byte, b'=' | b'~' | b'#')
}

fn escape(out: &mut SmallVec<[u8; 64]>, bytes: &[u8], is_plain: impl Fn(u8) -> bool) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| !is_plain(byte)) {
        out.extend_from_slice(&rest[..at]);
        out.push(b'%');
        push_hex(out, rest[at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn push_hex(out: &mut SmallVec<[u8; 64]>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(domain: &str, entries: &[(&[u8], &[u8])]) -> String {
        let head = KeyHead::new(AlgorithmKind::FixedWindow, KeyWindow::Length(3_600_000_000), 0);
        let entries = entries.iter().map(|&(key, value)| KeyEntry::Value(Entry { key, value }));
        let key = KeyCodec::new("p:").encode(&head, domain, entries);
        String::from_utf8_lossy(key.as_bytes()).into_owned()
    }

    #[test]
    fn keys_are_readable() {
        let entries: &[(&[u8], &[u8])] = &[(b"user_id", b"42"), (b"path", b"/a=b")];
        assert_eq!(encode("shop", entries), "p:tg1|fw3600s|shop|user_id=42|path=/a=b");
    }

    #[test]
    fn separators_and_braces_in_values_are_escaped() {
        assert_eq!(
            encode("s", &[(b"a=b", b"x|y{z}%\n")]),
            "p:tg1|fw3600s|s|a%3db=x%7cy%7bz%7d%25%0a"
        );
        assert_ne!(encode("s", &[(b"a", b"x_b_y")]), encode("s", &[(b"a", b"x"), (b"b", b"y")]));
    }

    #[test]
    fn long_keys_keep_their_head_and_differ_in_their_digest() {
        let long = |last: u8| [vec![b'v'; 5_000], vec![last]].concat();
        let (a, b) = (encode("s", &[(b"k", &long(b'a'))]), encode("s", &[(b"k", &long(b'b'))]));
        assert_eq!(a.len(), "p:".len() + LONGEST);
        assert!(a.starts_with("p:tg1|fw3600s|s|k=vvvv"));
        assert_ne!(a, b);
    }

    #[test]
    fn place_and_window_are_part_of_the_key() {
        let head = |window, place| KeyHead::new(AlgorithmKind::Gcra, window, place);
        assert_eq!(head(KeyWindow::Length(1_500_000), 0).0.as_ref(), "gc1500ms|");
        assert_eq!(head(KeyWindow::Length(1_000_000), 2).0.as_ref(), "gc1s#2|");
        assert_eq!(head(KeyWindow::Calendar("month@UTC"), 0).0.as_ref(), "gc-month@UTC|");
    }

    /// Bytes that are likely to collide if anything is.
    fn tricky() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select(b"ab=|%~#{}_\0\xff7c".to_vec()), 0..6)
    }

    proptest! {
        #[test]
        fn different_descriptors_have_different_keys(
            a in proptest::collection::vec((tricky(), tricky(), any::<bool>()), 0..4),
            b in proptest::collection::vec((tricky(), tricky(), any::<bool>()), 0..4),
        ) {
            let head = KeyHead::new(AlgorithmKind::FixedWindow, KeyWindow::Length(1_000_000), 0);
            let encode = |entries: &[(Vec<u8>, Vec<u8>, bool)]| {
                KeyCodec::default().encode(&head, "d", entries.iter().map(|(key, value, shared)| {
                    if *shared {
                        KeyEntry::Shared { key, pattern: value }
                    } else {
                        KeyEntry::Value(Entry { key, value })
                    }
                }))
            };
            prop_assert_eq!(a == b, encode(&a) == encode(&b));
        }
    }
}
