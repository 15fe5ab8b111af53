//! The JSON Schema of a rules file, for editors and other checkers.

use serde_json::{Map, Value, json};

use super::field::{Field, Kind, Level};

/// Draft 2020-12, generated from the table that the reader uses.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    for level in [Level::Descriptor, Level::Limit, Level::Replaces] {
        definitions.insert(name(level).to_owned(), map(level));
    }
    let mut root = map(Level::File);
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Tollgate rules");
    root["$defs"] = Value::Object(definitions);
    root
}

const fn name(level: Level) -> &'static str {
    match level {
        Level::File => "file",
        Level::Descriptor => "descriptor",
        Level::Limit => "rate_limit",
        Level::Replaces => "replaces",
    }
}

fn map(level: Level) -> Value {
    let properties: Map<_, _> = level
        .fields()
        .iter()
        .map(|field| (field.name.to_owned(), property(level, field)))
        .collect();
    let mut map =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    match level.required() {
        [only] => map["required"] = json!([only]),
        several => {
            map["anyOf"] = several.iter().map(|name| json!({ "required": [name] })).collect();
        }
    }
    map
}

fn property(level: Level, field: &Field) -> Value {
    let reference = |level| json!({ "$ref": format!("#/$defs/{}", name(level)) });
    let mut schema = match field.kind {
        Kind::Text if level.required() == [field.name] => {
            json!({ "type": ["string", "number", "boolean"], "minLength": 1 })
        }
        Kind::Text => json!({ "type": ["string", "number", "boolean", "null"] }),
        Kind::Bool => json!({ "type": ["boolean", "null"] }),
        Kind::Count => json!({ "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::AnyCaseWord(words) => {
            json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": any_case(words) }] })
        }
        Kind::Duration => json!({
            "type": "string",
            "pattern": r"^([0-9]+(\.[0-9]+)?(us|µs|ms|s|m|h|d|w) ?)+$",
        }),
        Kind::Free => json!({ "type": ["object", "null"] }),
        Kind::One(level) => json!({ "anyOf": [reference(level), { "type": "null" }] }),
        Kind::List(level) => json!({ "type": ["array", "null"], "items": reference(level) }),
    };
    schema["description"] = json!(field.doc);
    schema
}

/// A pattern for the words in any case, in the dialect that has no flags.
fn any_case(words: &[&str]) -> String {
    let letters = |word: &&str| -> String {
        word.chars().map(|letter| format!("[{letter}{}]", letter.to_ascii_uppercase())).collect()
    };
    format!("^({})$", words.iter().map(letters).collect::<Vec<_>>().join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(document: &Value, want: bool) {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let faults: Vec<_> =
            validator.iter_errors(document).map(|fault| fault.to_string()).collect();
        assert_eq!(faults.is_empty(), want, "{document}: {faults:?}");
    }

    #[test]
    fn accepts_what_the_reader_accepts() {
        check(
            &json!({"domain": "shop", "charge": "always", "descriptors": [
                {"key": "user", "value": 42, "match": "exact", "shadow_mode": true,
                 "metadata": {"any": ["thing"]},
                 "rate_limits": [
                    {"unit": "DAY", "requests_per_unit": 5, "name": "a", "replaces": [{"name": "b"}]},
                    {"window": "1h30m", "requests_per_unit": 5, "algorithm": "leaky_bucket"}],
                 "descriptors": [{"key": "path", "rate_limit": {"unlimited": true}}]},
            ]}),
            true,
        );
        check(&json!({"domain": "empty", "descriptors": null}), true);
    }

    #[test]
    fn refuses_typos_and_misplaced_keys() {
        let rule = |rule: Value| json!({"domain": "shop", "descriptors": [rule]});
        check(&json!({"domain": "shop", "descriptor": []}), false);
        check(&json!({"descriptors": []}), false);
        check(&rule(json!({"value": "no key"})), false);
        check(&rule(json!({"key": "k", "rate_limit": {"unlimied": true}})), false);
        check(&rule(json!({"key": "k", "rate_limit": {"unit": "days"}})), false);
        check(
            &rule(json!({"key": "k", "rate_limit": {"unit": "day", "shadow_mode": true}})),
            false,
        );
        check(&rule(json!({"key": "k", "rate_limit": {"window": 90}})), false);
        check(&rule(json!({"key": "k", "shadow_mode": "true"})), false);
    }

    #[test]
    fn every_field_is_described() {
        for level in Level::ALL {
            for field in level.fields() {
                assert!(property(level, field)["description"].as_str().unwrap().ends_with('.'));
            }
        }
    }
}
