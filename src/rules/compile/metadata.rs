//! A `metadata` block to the values of `google.protobuf.Struct`.

use super::Faults;
use crate::model::{Metadata, MetadataValue};
use crate::rules::yaml::{Value, Yaml};

/// `node` is a map.
pub(super) fn convert(node: &Yaml<'_>, faults: &mut Faults<'_>) -> Metadata {
    let Value::Map(entries) = &node.value else { return Metadata::default() };
    let mut out = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        match key.as_text() {
            Some(name) => out.push((name.to_owned(), convert_value(value, faults))),
            None => {
                let message = format!("a key of `metadata` can not be {}", key.kind());
                faults.add(key.span, message).help("expected a text");
            }
        }
    }
    Metadata(out)
}

fn convert_value(node: &Yaml<'_>, faults: &mut Faults<'_>) -> MetadataValue {
    match &node.value {
        _ if node.is_null() => MetadataValue::Null,
        Value::Scalar { text, plain: true } => match text.as_ref() {
            "true" | "True" | "TRUE" => MetadataValue::Bool(true),
            "false" | "False" | "FALSE" => MetadataValue::Bool(false),
            text => match number(text) {
                Some(number) => MetadataValue::Number(number),
                None => MetadataValue::String(text.to_owned()),
            },
        },
        Value::Scalar { text, plain: false } => MetadataValue::String(text.to_string()),
        Value::List(items) => {
            MetadataValue::List(items.iter().map(|item| convert_value(item, faults)).collect())
        }
        Value::Map(_) => MetadataValue::Map(convert(node, faults)),
    }
}

/// The numbers of YAML; those that are not finite stay text.
fn number(text: &str) -> Option<f64> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let begins = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if !unsigned.bytes().next().is_some_and(begins) || unsigned.ends_with('_') {
        return None;
    }
    let radix = |prefix: &str, radix| {
        u32::from_str_radix(unsigned.strip_prefix(prefix)?, radix).ok().map(f64::from)
    };
    if let Some(value) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(if text.starts_with('-') { -value } else { value });
    }
    text.replace('_', "").parse().ok().filter(|number: &f64| number.is_finite())
}
