//! Messages of the rate limit service as JSON, by the rules of protobuf's own mapping.
//!
//! Reading: field names in camelCase or snake_case, unknown and repeated fields refused, `null`
//! as absent, numbers also as strings, enum values by name or number. Writing: camelCase, enum
//! values by name, fields with their default value left out.

use std::fmt;
use std::marker::PhantomData;

use prost_types::value::Kind;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::{Map, Value, json};

use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::proto::envoy::extensions::common::ratelimit::v3 as descriptor_pb;
use crate::proto::envoy::service::ratelimit::v3 as pb;
use crate::proto::envoy::r#type::v3::RateLimitUnit;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Request {
    domain: Option<String>,
    descriptors: Option<Vec<Descriptor>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Uint<u32>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Descriptor {
    entries: Option<Vec<Entry>>,
    limit: Option<Limit>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Uint<u64>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Limit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Uint<u32>>,
    unit: Option<UnitNumber>,
    #[serde(alias = "unit_multiplier")]
    unit_multiplier: Option<Uint<u32>>,
}

/// An unsigned integer, as a number (also one like `5.0`) or in a string.
#[derive(Clone, Copy)]
pub(super) struct Uint<T>(pub(super) T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Uint<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UintVisitor(PhantomData))
    }
}

struct UintVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for UintVisitor<T> {
    type Value = Uint<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an unsigned integer of at most {} bits", 8 * size_of::<T>())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        let unexpected = de::Unexpected::Unsigned(value);
        T::try_from(value).map(Uint).map_err(|_| E::invalid_value(unexpected, &self))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        // 2^53: beyond it a double no longer tells integers apart.
        if value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value) {
            self.visit_u64(value as u64)
        } else {
            Err(E::invalid_value(de::Unexpected::Float(value), &self))
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text.parse() {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

/// A unit of an override by name, or by any number.
struct UnitNumber(i32);

impl<'de> Deserialize<'de> for UnitNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum NameOrNumber {
            Name(String),
            Number(i32),
        }
        match NameOrNumber::deserialize(deserializer)? {
            NameOrNumber::Number(number) => Ok(Self(number)),
            NameOrNumber::Name(name) => match RateLimitUnit::from_str_name(&name) {
                Some(unit) => Ok(Self(unit.into())),
                None => Err(de::Error::custom(format_args!("unknown unit `{name}`"))),
            },
        }
    }
}

/// Reads a `RateLimitRequest`.
pub(super) fn read_request(body: &[u8]) -> Result<pb::RateLimitRequest, serde_json::Error> {
    let Request { domain, descriptors, hits_addend } = serde_json::from_slice(body)?;
    Ok(pb::RateLimitRequest {
        domain: domain.unwrap_or_default(),
        descriptors: descriptors.unwrap_or_default().into_iter().map(read_descriptor).collect(),
        hits_addend: hits_addend.map_or(0, |hits| hits.0),
    })
}

fn read_descriptor(descriptor: Descriptor) -> descriptor_pb::RateLimitDescriptor {
    let entries = descriptor.entries.unwrap_or_default();
    descriptor_pb::RateLimitDescriptor {
        entries: entries.into_iter().map(|Entry { key, value }| entry(key, value)).collect(),
        limit: descriptor.limit.map(|limit| {
            descriptor_pb::rate_limit_descriptor::RateLimitOverride {
                requests_per_unit: limit.requests_per_unit.map_or(0, |number| number.0),
                unit: limit.unit.map_or(0, |unit| unit.0),
                unit_multiplier: limit.unit_multiplier.map(|number| number.0),
            }
        }),
        hits_addend: descriptor.hits_addend.map(|hits| hits.0),
        is_negative_hits: descriptor.is_negative_hits.unwrap_or_default(),
    }
}

fn entry(
    key: Option<String>,
    value: Option<String>,
) -> descriptor_pb::rate_limit_descriptor::Entry {
    descriptor_pb::rate_limit_descriptor::Entry {
        key: key.unwrap_or_default().into(),
        value: value.unwrap_or_default().into(),
    }
}

/// Writes a `RateLimitResponse`; quotas and the raw body are never filled.
pub(super) fn write_response(response: &pb::RateLimitResponse) -> Value {
    let mut out = Map::new();
    put_code(&mut out, "overallCode", response.overall_code);
    put_list(&mut out, "statuses", response.statuses.iter().map(write_status).collect());
    for (name, headers) in [
        ("responseHeadersToAdd", &response.response_headers_to_add),
        ("requestHeadersToAdd", &response.request_headers_to_add),
    ] {
        put_list(&mut out, name, headers.iter().map(write_header).collect());
    }
    if let Some(metadata) = &response.dynamic_metadata {
        out.insert("dynamicMetadata".to_owned(), write_struct(metadata));
    }
    Value::Object(out)
}

fn write_status(status: &pb::rate_limit_response::DescriptorStatus) -> Value {
    let mut out = Map::new();
    put_code(&mut out, "code", status.code);
    if let Some(limit) = &status.current_limit {
        out.insert("currentLimit".to_owned(), write_limit(limit));
    }
    put_number(&mut out, "limitRemaining", status.limit_remaining);
    if let Some(duration) = &status.duration_until_reset {
        out.insert("durationUntilReset".to_owned(), write_duration(duration));
    }
    Value::Object(out)
}

fn write_limit(limit: &pb::rate_limit_response::RateLimit) -> Value {
    let mut out = Map::new();
    put_number(&mut out, "requestsPerUnit", limit.requests_per_unit);
    if limit.unit != 0 {
        out.insert("unit".to_owned(), limit.unit().as_str_name().into());
    }
    put_text(&mut out, "name", &limit.name);
    if let Some(multiplier) = limit.unit_multiplier {
        out.insert("unitMultiplier".to_owned(), multiplier.into());
    }
    Value::Object(out)
}

fn write_duration(duration: &prost_types::Duration) -> Value {
    let (seconds, nanos) = (duration.seconds, duration.nanos);
    match nanos {
        0 => format!("{seconds}s"),
        _ if nanos % 1_000_000 == 0 => format!("{seconds}.{:03}s", nanos / 1_000_000),
        _ => format!("{seconds}.{:06}s", nanos / 1_000),
    }
    .into()
}

fn write_header(header: &HeaderValue) -> Value {
    let mut out = Map::new();
    put_text(&mut out, "key", &header.key);
    put_text(&mut out, "value", &header.value);
    Value::Object(out)
}

fn write_struct(metadata: &prost_types::Struct) -> Value {
    metadata.fields.iter().map(|(name, value)| (name.clone(), write_value(value))).collect()
}

fn write_value(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::NumberValue(value)) => json!(value),
        Some(Kind::StringValue(value)) => json!(value),
        Some(Kind::ListValue(list)) => list.values.iter().map(write_value).collect(),
        Some(Kind::StructValue(fields)) => write_struct(fields),
    }
}

fn put_code(out: &mut Map<String, Value>, name: &str, code: i32) {
    let known = pb::rate_limit_response::Code::try_from(code).unwrap_or_default();
    if known != pb::rate_limit_response::Code::Unknown {
        out.insert(name.to_owned(), known.as_str_name().into());
    }
}

fn put_list(out: &mut Map<String, Value>, name: &str, values: Vec<Value>) {
    if !values.is_empty() {
        out.insert(name.to_owned(), values.into());
    }
}

fn put_number(out: &mut Map<String, Value>, name: &str, number: u32) {
    if number != 0 {
        out.insert(name.to_owned(), number.into());
    }
}

fn put_text(out: &mut Map<String, Value>, name: &str, text: &str) {
    if !text.is_empty() {
        out.insert(name.to_owned(), text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::convert;
    use crate::model::{
        Code, CurrentLimit, Decision, DescriptorStatus, Header, Metadata, MetadataValue, Unit,
    };

    #[track_caller]
    fn check_same(one: &str, other: &str) {
        let one = read_request(one.as_bytes()).unwrap();
        assert_eq!(one, read_request(other.as_bytes()).unwrap());
    }

    #[test]
    fn spellings_of_one_request_read_the_same() {
        let camel = r#"{"domain":"d","hitsAddend":3,"descriptors":[{"entries":[{"key":"k",
            "value":"v"}],"hitsAddend":"18446744073709551615","isNegativeHits":true,
            "limit":{"requestsPerUnit":7,"unit":"HOUR","unitMultiplier":2}}]}"#;
        let snake = r#"{"domain":"d","hits_addend":"3","descriptors":[{"entries":[{"key":"k",
            "value":"v"}],"hits_addend":18446744073709551615,"is_negative_hits":true,
            "limit":{"requests_per_unit":7.0,"unit":3,"unit_multiplier":"2"}}]}"#;
        check_same(camel, snake);
        check_same(r#"{"domain":null,"descriptors":null,"hitsAddend":null}"#, "{}");
    }

    #[test]
    fn every_field_is_read() {
        let read = read_request(
            br#"{"domain":"d","hitsAddend":3,"descriptors":[{"entries":[{"key":"k","value":"v"}],
            "hitsAddend":0,"isNegativeHits":true,
            "limit":{"requestsPerUnit":7,"unit":99,"unitMultiplier":2}}]}"#,
        )
        .unwrap();
        assert_eq!((read.domain.as_str(), read.hits_addend), ("d", 3));
        let descriptor = &read.descriptors[0];
        assert_eq!(descriptor.entries[0], entry(Some("k".to_owned()), Some("v".to_owned())));
        assert_eq!((descriptor.hits_addend, descriptor.is_negative_hits), (Some(0), true));
        let limit = descriptor.limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit, limit.unit_multiplier), (7, 99, Some(2)));
    }

    #[test]
    fn what_the_mapping_forbids_is_refused() {
        for body in [
            "",
            "}{",
            "[]",
            "{} {}",
            r#"{"domian":"d"}"#,
            r#"{"domain":5}"#,
            r#"{"hitsAddend":-1}"#,
            r#"{"hitsAddend":1.5}"#,
            r#"{"hitsAddend":4294967296}"#,
            r#"{"hitsAddend":1,"hits_addend":1}"#,
            r#"{"descriptors":[{"limit":{"unit":"WEEKS"}}]}"#,
            r#"{"descriptors":[{"entries":[{"key":"k","valeu":"v"}]}]}"#,
        ] {
            assert!(read_request(body.as_bytes()).is_err(), "read {body}");
        }
    }

    #[test]
    fn answers_leave_out_what_is_default() {
        let plain = Decision {
            overall_code: Code::Ok,
            statuses: [DescriptorStatus::default()].into_iter().collect(),
            response_headers: Vec::new(),
            dynamic_metadata: None,
        };
        let written = write_response(&convert::to_response(plain));
        assert_eq!(written, json!({"overallCode": "OK", "statuses": [{"code": "OK"}]}));
    }

    #[test]
    fn answers_show_every_field() {
        let nested = Metadata(vec![(
            "list".to_owned(),
            MetadataValue::List(vec![
                MetadataValue::Null,
                MetadataValue::Bool(true),
                MetadataValue::Number(1.5),
                MetadataValue::String("x".to_owned()),
            ]),
        )]);
        let full = Decision {
            overall_code: Code::OverLimit,
            statuses: [DescriptorStatus {
                code: Code::OverLimit,
                current_limit: Some(CurrentLimit {
                    requests_per_unit: 9,
                    unit: Some(Unit::Week),
                    unit_multiplier: 2,
                    name: Some("n".into()),
                }),
                limit_remaining: 4,
                duration_until_reset: Some(76_000_001),
                retry_after: Some(76_000_001),
            }]
            .into_iter()
            .collect(),
            response_headers: vec![Header { name: "H".into(), value: "1".to_owned() }],
            dynamic_metadata: Some(Metadata(vec![(
                "metadata".to_owned(),
                MetadataValue::Map(nested),
            )])),
        };
        let want = json!({
            "overallCode": "OVER_LIMIT",
            "statuses": [{
                "code": "OVER_LIMIT",
                "currentLimit":
                    {"requestsPerUnit": 9, "unit": "WEEK", "name": "n", "unitMultiplier": 2},
                "limitRemaining": 4,
                "durationUntilReset": "77s",
            }],
            "responseHeadersToAdd": [{"key": "H", "value": "1"}],
            "dynamicMetadata": {"metadata": {"list": [null, true, 1.5, "x"]}},
        });
        assert_eq!(write_response(&convert::to_response(full)), want);
    }

    #[test]
    fn durations_have_three_or_six_decimals_or_none() {
        for (seconds, nanos, want) in
            [(77, 0, "77s"), (0, 250_000_000, "0.250s"), (0, 250_001_000, "0.250001s")]
        {
            assert_eq!(write_duration(&prost_types::Duration { seconds, nanos }), want);
        }
    }
}
