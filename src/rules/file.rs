//! A map of a rules file with its fields checked one by one: known, of the right type, in range.
//!
//! What fields mean together is for `compile`.

use super::diagnostic::Faults;
use super::field::{Field, Kind, Level};
use super::yaml::{Span, Value, Yaml, shorten};

/// One map of the file. A field that is null is absent; one that is faulty or misspelt is reported
/// here and is present without a value, so that nobody misses it.
#[derive(Debug)]
pub(super) struct Record<'a, 't> {
    /// Of the map.
    pub(super) span: Span,
    found: Vec<(&'static str, Found<'a, 't>)>,
}

#[derive(Debug, Clone, Copy)]
struct Found<'a, 't> {
    key: Span,
    node: &'a Yaml<'t>,
    typed: Option<Typed>,
}

/// The value of a field that is more than its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typed {
    Bool(bool),
    Count(u32),
    Word(&'static str),
    /// See the node.
    Other,
}

/// A value and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed<T> {
    pub(super) span: Span,
    pub(super) value: T,
}

impl<'a, 't> Record<'a, 't> {
    /// `None` if `node` is no map, which is a fault.
    pub(super) fn read(node: &'a Yaml<'t>, level: Level, faults: &mut Faults<'_>) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            let message =
                format!("expected {}, found {}", Kind::One(level).expected(), node.kind());
            faults.add(node.span, message);
            return None;
        };
        let mut found: Vec<(_, Found<'a, 't>)> = Vec::with_capacity(entries.len());
        let mut misspelt = Vec::new();
        for (key, value) in entries {
            let Some(name) = key.as_text() else {
                faults.add(key.span, format!("expected a field name, found {}", key.kind()));
                continue;
            };
            let Some((_, field)) = level.field(name) else {
                let message = format!("unknown key `{}` in {}", shorten(name), level.name());
                let (help, meant) = level.suggestion(name);
                faults.add(key.span, message).help(help);
                misspelt.extend(meant.map(|name| (name, key.span, value)));
                continue;
            };
            if value.is_null() {
                continue;
            }
            let typed = typed(field, value, faults);
            found.push((field.name, Found { key: key.span, node: value, typed }));
        }
        for (name, key, node) in misspelt {
            if found.iter().all(|(other, _)| *other != name) {
                found.push((name, Found { key, node, typed: None }));
            }
        }
        Some(Self { span: entries.first().map_or(node.span, |(key, _)| key.span), found })
    }

    fn get(&self, name: &str) -> Option<&Found<'a, 't>> {
        self.found.iter().find(|(own, _)| *own == name).map(|(_, found)| found)
    }

    fn typed(&self, name: &str) -> Option<Placed<Typed>> {
        let found = self.get(name)?;
        Some(Placed { span: found.node.span, value: found.typed? })
    }

    /// Where the name of the field stands, also of one without a valid value.
    pub(super) fn key(&self, name: &str) -> Option<Span> {
        self.get(name).map(|found| found.key)
    }

    /// Whether the field is there but has no valid value.
    pub(super) fn is_faulty(&self, name: &str) -> bool {
        self.get(name).is_some_and(|found| found.typed.is_none())
    }

    /// The value of a scalar as it is written.
    pub(super) fn text(&self, name: &str) -> Option<Placed<&'a str>> {
        let found = self.get(name)?;
        found.typed?;
        Some(Placed { span: found.node.span, value: found.node.as_text()? })
    }

    pub(super) fn bool(&self, name: &str) -> Option<bool> {
        match self.typed(name)?.value {
            Typed::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn count(&self, name: &str) -> Option<Placed<u32>> {
        match self.typed(name)? {
            Placed { span, value: Typed::Count(value) } => Some(Placed { span, value }),
            _ => None,
        }
    }

    /// The word as it stands in the table of fields, whatever its case in the file.
    pub(super) fn word(&self, name: &str) -> Option<&'static str> {
        match self.typed(name)?.value {
            Typed::Word(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<&'a Yaml<'t>> {
        let found = self.get(name)?;
        found.typed.map(|_| found.node)
    }

    /// The items of a list; none if the field is absent.
    pub(super) fn items(&self, name: &str) -> &'a [Yaml<'t>] {
        match self.node(name) {
            Some(Yaml { value: Value::List(items), .. }) => items,
            _ => &[],
        }
    }
}

/// `None` where the value does not fit, which is a fault.
fn typed(field: &Field, node: &Yaml<'_>, faults: &mut Faults<'_>) -> Option<Typed> {
    let typed = match (field.kind, &node.value) {
        (Kind::Text, Value::Scalar { .. }) => Some(Typed::Other),
        (Kind::Bool, Value::Scalar { text, plain: true }) => bool(text).map(Typed::Bool),
        (Kind::Count, Value::Scalar { text, plain: true }) => count(text).map(Typed::Count),
        (Kind::Word(words), Value::Scalar { text, .. }) => {
            words.iter().find(|word| **word == text.as_ref()).map(|word| Typed::Word(word))
        }
        (Kind::AnyCaseWord(words), Value::Scalar { text, .. }) => {
            words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| Typed::Word(word))
        }
        (Kind::Duration, Value::Scalar { .. }) => Some(Typed::Other),
        (Kind::Free | Kind::One(_), Value::Map(_)) => Some(Typed::Other),
        (Kind::List(_), Value::List(_)) => Some(Typed::Other),
        _ => None,
    };
    if typed.is_none() {
        let found = match node.as_text() {
            Some(text) if node.kind() == "a quoted text" => format!("\"{}\"", shorten(text)),
            Some(text) => format!("`{}`", shorten(text)),
            None => node.kind().to_owned(),
        };
        let message = format!("`{}` can not be {found}", field.name);
        let mut help = format!("expected {}", field.kind.expected());
        if let (Kind::Word(words) | Kind::AnyCaseWord(words), Some(text)) =
            (field.kind, node.as_text())
        {
            let lower = text.to_lowercase();
            let near = words.iter().map(|word| (strsim::damerau_levenshtein(&lower, word), word));
            if let Some((_, word)) = near.filter(|(far, _)| *far <= 2 && text.len() <= 64).min() {
                help = format!("did you mean `{word}`? {help}");
            }
        }
        faults.add(node.span, message).help(help);
    }
    typed
}

/// The bools of YAML 1.1.
fn bool(text: &str) -> Option<bool> {
    const TRUE: [&str; 4] = ["true", "yes", "on", "y"];
    const FALSE: [&str; 4] = ["false", "no", "off", "n"];
    let is = |words: [&str; 4]| {
        words.iter().any(|word| {
            let capital = word[..1].to_ascii_uppercase() + &word[1..];
            text == *word || text == capital || text == word.to_ascii_uppercase()
        })
    };
    if is(TRUE) { Some(true) } else { is(FALSE).then_some(false) }
}

/// The whole numbers of YAML, but for the octal form `010`, which half of all readers take for
/// ten.
fn count(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+').unwrap_or(text).replace('_', "");
    match digits.as_bytes() {
        [b'0', b'x', ..] => u32::from_str_radix(&digits[2..], 16).ok(),
        [b'0', b'o', ..] => u32::from_str_radix(&digits[2..], 8).ok(),
        [b'0', b'b', ..] => u32::from_str_radix(&digits[2..], 2).ok(),
        [b'0', _, ..] | [b'+', ..] => None,
        _ => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bools_are_those_of_yaml_1_1() {
        for (text, want) in [
            ("true", Some(true)),
            ("Yes", Some(true)),
            ("ON", Some(true)),
            ("n", Some(false)),
            ("off", Some(false)),
            ("tRUE", None),
            ("1", None),
            ("", None),
        ] {
            assert_eq!(bool(text), want, "{text}");
        }
    }

    #[test]
    fn counts_are_whole_and_fit() {
        for (text, want) in [
            ("0", Some(0)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("1_000", Some(1_000)),
            ("0x1F", Some(31)),
            ("0o17", Some(15)),
            ("0x", None),
            ("0x+1", Some(1)),
            ("010", None),
            ("+7", Some(7)),
            ("++7", None),
            ("-1", None),
            ("1.5", None),
            ("1e3", None),
            ("", None),
        ] {
            assert_eq!(count(text), want, "{text}");
        }
    }
}
