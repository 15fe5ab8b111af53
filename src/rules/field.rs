//! The fields of a rules file: the one table that the reader, its messages and the JSON Schema
//! come from.

use crate::model::{AlgorithmKind, Unit};

/// The maps of a rules file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Level {
    File,
    Descriptor,
    Limit,
    Replaces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) doc: &'static str,
}

/// What a field may hold. A null stands for an absent field everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any scalar, as its source text.
    Text,
    Bool,
    /// A whole number from 0 to 4294967295.
    Count,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// Likewise, in any case.
    AnyCaseWord(&'static [&'static str]),
    /// A length of time with its unit.
    Duration,
    /// A map with any content.
    Free,
    One(Level),
    List(Level),
}

impl Kind {
    /// Completes "expected …".
    pub(super) fn expected(self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Bool => "`true` or `false` without quotes".to_owned(),
            Self::Count => format!("a whole number from 0 to {} without quotes", u32::MAX),
            Self::Word(words) | Self::AnyCaseWord(words) => format!("one of {}", list(words)),
            Self::Duration => {
                "a length with its unit, such as `500ms`, `90s` or `1h30m`".to_owned()
            }
            Self::Free => "a map".to_owned(),
            Self::One(level) => format!("a map with the fields of {}", level.name()),
            Self::List(level) => format!("a list, with a map for each {}", level.item()),
        }
    }
}

/// `a`, `b`, `c`.
fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::File, Self::Descriptor, Self::Limit, Self::Replaces];

    pub(super) const fn fields(self) -> &'static [Field] {
        match self {
            Self::File => FILE,
            Self::Descriptor => DESCRIPTOR,
            Self::Limit => LIMIT,
            Self::Replaces => REPLACES,
        }
    }

    /// Sets of fields of which at least one must be there.
    pub(super) const fn required(self) -> &'static [&'static str] {
        match self {
            Self::File => &["domain"],
            Self::Descriptor => &["key"],
            Self::Limit => &["unit", "window", "unlimited"],
            Self::Replaces => &["name"],
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::File => "the top of a rules file",
            Self::Descriptor => "a descriptor",
            Self::Limit => "a rate limit",
            Self::Replaces => "an item of `replaces`",
        }
    }

    const fn item(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Descriptor => "descriptor",
            Self::Limit => "rate limit",
            Self::Replaces => "name",
        }
    }

    pub(super) fn field(self, name: &str) -> Option<(usize, &'static Field)> {
        self.fields().iter().enumerate().find(|(_, field)| field.name == name)
    }

    /// What to do about a key that the level does not have, and the field that it may stand for.
    pub(super) fn suggestion(self, unknown: &str) -> (String, Option<&'static str>) {
        if let Some(level) = Self::ALL.into_iter().find(|level| level.field(unknown).is_some()) {
            let help = format!("`{unknown}` belongs to {}, not to {}", level.name(), self.name());
            return (help, None);
        }
        let lower = unknown.to_lowercase();
        let distance = |field: &Field| strsim::damerau_levenshtein(&lower, field.name);
        match self.fields().iter().min_by_key(|field| distance(field)) {
            Some(near) if unknown.len() <= 64 && distance(near) <= near.name.len().div_ceil(3) => {
                (format!("did you mean `{}`?", near.name), Some(near.name))
            }
            _ => {
                let names: Vec<_> = self.fields().iter().map(|field| field.name).collect();
                (format!("{} has {}", self.name(), list(&names)), None)
            }
        }
    }
}

const fn field(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field { name, kind, doc }
}

pub(super) const UNITS: &[&str] = &{
    let mut names = [""; Unit::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = Unit::ALL[index].name();
        index += 1;
    }
    names
};

/// Another name of `gcra`.
pub(super) const LEAKY_BUCKET: &str = "leaky_bucket";

const ALGORITHMS: &[&str] = &{
    let mut names = [LEAKY_BUCKET; AlgorithmKind::ALL.len() + 1];
    let mut index = 0;
    while index < AlgorithmKind::ALL.len() {
        names[index] = AlgorithmKind::ALL[index].name();
        index += 1;
    }
    names
};

const CHARGE: Field = field(
    "charge",
    Kind::Word(&["auto", "admitted", "always"]),
    "Who pays for a call: `admitted` charges only calls that pass as a whole, `always` charges \
     refused ones too, `auto` charges refused calls only where a fixed window is given explicit \
     hits. The nearest one holds: limit, descriptor, file, server.",
);
const ON_STORE_FAILURE: Field = field(
    "on_store_failure",
    Kind::Word(&["error", "allow", "deny", "local"]),
    "What a call gets when the store gives no verdict: an error, leave, refusal, or a verdict of \
     this process alone. The nearest one holds: limit, descriptor, file, server. Checked, but not \
     acted on in this version: it is an error whatever this says.",
);
const CONSISTENCY: Field = field(
    "consistency",
    Kind::Word(&["strict", "leased"]),
    "`leased` takes hits of a busy fixed window from Redis in advance, many at once; never more \
     than the limit pass, at times fewer. `strict`, the default, asks for each call. The nearest \
     one holds: limit, descriptor, file.",
);

const FILE: &[Field] = &[
    field("domain", Kind::Text, "The domain that the rules are for, as calls name it."),
    field("descriptors", Kind::List(Level::Descriptor), "The rules for a call's first entry."),
    CHARGE,
    ON_STORE_FAILURE,
    CONSISTENCY,
];

const DESCRIPTOR: &[Field] = &[
    field("key", Kind::Text, "The key of the entry."),
    field(
        "value",
        Kind::Text,
        "The value of the entry; a `*` stands for any characters. Without it every value that no \
         other rule matches has a counter of its own.",
    ),
    field(
        "match",
        Kind::Word(&["exact", "prefix", "glob", "regex", "cidr"]),
        "How `value` is read. Without it, a value with `*` is a glob, any other is exact.",
    ),
    field("rate_limit", Kind::One(Level::Limit), "The limit of a descriptor that ends here."),
    field(
        "rate_limits",
        Kind::List(Level::Limit),
        "Several limits, each with a counter of its own; all of them must admit the call.",
    ),
    field("descriptors", Kind::List(Level::Descriptor), "The rules for the next entry."),
    field("shadow_mode", Kind::Bool, "Count and report, but never refuse."),
    field(
        "quota_mode",
        Kind::Bool,
        "Refuse only if every rule in quota mode that the call matches is over its limit.",
    ),
    field("detailed_metric", Kind::Bool, "A metric series for each value that calls bring."),
    field("value_to_metric", Kind::Bool, "Put the value that calls bring into metric series."),
    field(
        "share_threshold",
        Kind::Bool,
        "All values that match the pattern share one counter instead of having one each.",
    ),
    field("metadata", Kind::Free, "Returned to the proxy as dynamic metadata."),
    CHARGE,
    ON_STORE_FAILURE,
    CONSISTENCY,
];

const LIMIT: &[Field] = &[
    field("unit", Kind::AnyCaseWord(UNITS), "The time that `requests_per_unit` is for."),
    field("requests_per_unit", Kind::Count, "How many hits pass per window; 0 refuses all."),
    field("unlimited", Kind::Bool, "Let everything pass, without a counter."),
    field("name", Kind::Text, "Returned with the answer, and what `replaces` refers to."),
    field(
        "replaces",
        Kind::List(Level::Replaces),
        "Limits that do not apply to calls that match this one too.",
    ),
    field("algorithm", Kind::Word(ALGORITHMS), "How hits are counted; `fixed_window` by default."),
    field("unit_multiplier", Kind::Count, "How many units the window is long; 1 by default."),
    field("window", Kind::Duration, "The length of the window, instead of `unit`."),
    field(
        "burst",
        Kind::Count,
        "Capacity of `token_bucket` and `gcra`; `requests_per_unit` by default.",
    ),
    CHARGE,
    ON_STORE_FAILURE,
    CONSISTENCY,
    field(
        "calendar",
        Kind::Bool,
        "Fixed windows that begin with the calendar's day, week (on Monday), month or year.",
    ),
    field("timezone", Kind::Text, "IANA name of the calendar's time zone; `UTC` by default."),
    field(
        "allow_large_log",
        Kind::Bool,
        "Accept a `sliding_window_log` of more than 10,000 hits, which is slow and large.",
    ),
];

const REPLACES: &[Field] =
    &[field("name", Kind::Text, "Name of a limit that does not apply to the same call.")];
