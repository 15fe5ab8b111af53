//! Messages of the rate limit service to the model and back, all of it.
//!
//! A request borrows from its message, so nothing of it is copied. Every size is checked against
//! its cap before it is used; the size of the message itself is checked before it is decoded.

use prost_types::value::Kind;
use smallvec::SmallVec;

use crate::model::{
    Code, CurrentLimit, Decision, Descriptor, DescriptorStatus, Entry, LimitOverride, MAX_WINDOW,
    Metadata, MetadataValue, Request, Unit,
};
use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::proto::envoy::extensions::common::ratelimit::v3 as descriptor_pb;
use crate::proto::envoy::service::ratelimit::v3 as pb;
use crate::settings::Caps;

const MICROS_PER_SEC: u64 = 1_000_000;

/// What is wrong with a request. Descriptors and entries are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error("request has {found} descriptors, at most {cap} are allowed")]
    TooManyDescriptors { found: usize, cap: usize },
    #[error("descriptor {descriptor} has {found} entries, at most {cap} are allowed")]
    TooManyEntries { descriptor: usize, found: usize, cap: usize },
    #[error(
        "key of entry {entry} in descriptor {descriptor} has {found} bytes, at most {cap} are \
         allowed"
    )]
    LongKey { descriptor: usize, entry: usize, found: usize, cap: usize },
    #[error(
        "value of entry {entry} in descriptor {descriptor} has {found} bytes, at most {cap} are \
         allowed"
    )]
    LongValue { descriptor: usize, entry: usize, found: usize, cap: usize },
    #[error(
        "limit of descriptor {descriptor} has unit number {unit}, expected 1 (second) to 7 (week)"
    )]
    OverrideUnit { descriptor: usize, unit: i32 },
    #[error(
        "limit of descriptor {descriptor} has a window of {multiplier} {unit}s, longer than ten \
         years"
    )]
    OverrideWindow { descriptor: usize, unit: Unit, multiplier: u32 },
}

/// Reads a request message.
///
/// # Errors
///
/// The first fault found, in the order of the message.
pub fn to_request<'a>(
    message: &'a pb::RateLimitRequest,
    caps: &Caps,
) -> Result<Request<'a>, RequestError> {
    if message.domain.is_empty() {
        return Err(RequestError::EmptyDomain);
    }
    if message.descriptors.is_empty() {
        return Err(RequestError::NoDescriptors);
    }
    let found = message.descriptors.len();
    if found > caps.descriptors_per_call {
        return Err(RequestError::TooManyDescriptors { found, cap: caps.descriptors_per_call });
    }
    let descriptors = message
        .descriptors
        .iter()
        .enumerate()
        .map(|(place, descriptor)| to_descriptor(place, descriptor, caps))
        .collect::<Result<_, _>>()?;
    Ok(Request { domain: &message.domain, descriptors, hits_addend: message.hits_addend })
}

fn to_descriptor<'a>(
    place: usize,
    message: &'a descriptor_pb::RateLimitDescriptor,
    caps: &Caps,
) -> Result<Descriptor<'a>, RequestError> {
    let found = message.entries.len();
    if found > caps.entries_per_descriptor {
        let cap = caps.entries_per_descriptor;
        return Err(RequestError::TooManyEntries { descriptor: place, found, cap });
    }
    let mut entries = SmallVec::with_capacity(found);
    for (number, entry) in message.entries.iter().enumerate() {
        let (key, value) = (&entry.key[..], &entry.value[..]);
        if key.len() > caps.key_bytes {
            let (found, cap) = (key.len(), caps.key_bytes);
            return Err(RequestError::LongKey { descriptor: place, entry: number, found, cap });
        }
        if value.len() > caps.value_bytes {
            let (found, cap) = (value.len(), caps.value_bytes);
            return Err(RequestError::LongValue { descriptor: place, entry: number, found, cap });
        }
        entries.push(Entry { key, value });
    }
    Ok(Descriptor {
        entries,
        limit: message.limit.as_ref().map(|limit| to_override(place, limit)).transpose()?,
        hits_addend: message.hits_addend,
        is_negative_hits: message.is_negative_hits,
    })
}

fn to_override(
    place: usize,
    message: &descriptor_pb::rate_limit_descriptor::RateLimitOverride,
) -> Result<LimitOverride, RequestError> {
    let unit = Unit::from_wire(message.unit)
        .ok_or(RequestError::OverrideUnit { descriptor: place, unit: message.unit })?;
    let unit_multiplier = message.unit_multiplier.unwrap_or(1).max(1);
    let window = unit.seconds() * u64::from(unit_multiplier);
    if window > MAX_WINDOW / MICROS_PER_SEC {
        let multiplier = unit_multiplier;
        return Err(RequestError::OverrideWindow { descriptor: place, unit, multiplier });
    }
    Ok(LimitOverride { requests_per_unit: message.requests_per_unit, unit, unit_multiplier })
}

/// A request with one number of hits for the whole call. 0 looks without counting, which only
/// descriptors can say.
pub fn with_hits(
    domain: String,
    mut descriptors: Vec<descriptor_pb::RateLimitDescriptor>,
    hits: Option<u64>,
) -> pb::RateLimitRequest {
    let hits_addend = match hits.map(|hits| (hits, u32::try_from(hits))) {
        None => 0,
        Some((1.., Ok(hits))) => hits,
        Some((hits, _)) => {
            for descriptor in &mut descriptors {
                descriptor.hits_addend = Some(hits);
            }
            0
        }
    };
    pb::RateLimitRequest { domain, descriptors, hits_addend }
}

/// Writes an answer message.
pub fn to_response(decision: Decision) -> pb::RateLimitResponse {
    pb::RateLimitResponse {
        overall_code: to_code(decision.overall_code).into(),
        statuses: decision.statuses.into_iter().map(to_status).collect(),
        response_headers_to_add: decision
            .response_headers
            .into_iter()
            .map(|header| HeaderValue {
                key: header.name.as_ref().to_owned(),
                value: header.value,
                raw_value: bytes::Bytes::new(),
            })
            .collect(),
        dynamic_metadata: decision.dynamic_metadata.map(to_struct),
        ..Default::default()
    }
}

fn to_code(code: Code) -> pb::rate_limit_response::Code {
    match code {
        Code::Ok => pb::rate_limit_response::Code::Ok,
        Code::OverLimit => pb::rate_limit_response::Code::OverLimit,
    }
}

fn to_status(status: DescriptorStatus) -> pb::rate_limit_response::DescriptorStatus {
    let whole_seconds = status.current_limit.as_ref().is_some_and(|limit| limit.unit.is_some());
    pb::rate_limit_response::DescriptorStatus {
        code: to_code(status.code).into(),
        current_limit: status.current_limit.map(to_limit),
        limit_remaining: status.limit_remaining,
        duration_until_reset: status
            .duration_until_reset
            .map(|micros| to_duration(micros, whole_seconds)),
        quota: None,
    }
}

fn to_limit(limit: CurrentLimit) -> pb::rate_limit_response::RateLimit {
    pb::rate_limit_response::RateLimit {
        requests_per_unit: limit.requests_per_unit,
        unit: limit.unit.map_or(0, Unit::wire),
        name: limit.name.map(|name| name.as_ref().to_owned()).unwrap_or_default(),
        unit_multiplier: (limit.unit_multiplier > 1).then_some(limit.unit_multiplier),
    }
}

/// Whole seconds rounded up, since callers cut fractions off and waiting must suffice. Only below
/// a second, where no window of whole units is behind it, the µs are kept.
fn to_duration(micros: u64, whole_seconds: bool) -> prost_types::Duration {
    if whole_seconds || micros >= MICROS_PER_SEC {
        prost_types::Duration { seconds: seconds_up(micros).cast_signed(), nanos: 0 }
    } else {
        // Below a second of nanoseconds, which an i32 holds.
        prost_types::Duration { seconds: 0, nanos: (micros * 1_000) as i32 }
    }
}

/// Whole seconds that cover `micros`.
pub fn seconds_up(micros: u64) -> u64 {
    micros.div_ceil(MICROS_PER_SEC)
}

fn to_struct(metadata: Metadata) -> prost_types::Struct {
    let fields = metadata.0.into_iter().map(|(name, value)| (name, to_value(value))).collect();
    prost_types::Struct { fields }
}

fn to_value(value: MetadataValue) -> prost_types::Value {
    let kind = match value {
        MetadataValue::Null => Kind::NullValue(0),
        MetadataValue::Bool(value) => Kind::BoolValue(value),
        MetadataValue::Number(value) => Kind::NumberValue(value),
        MetadataValue::String(value) => Kind::StringValue(value),
        MetadataValue::List(values) => Kind::ListValue(prost_types::ListValue {
            values: values.into_iter().map(to_value).collect(),
        }),
        MetadataValue::Map(fields) => Kind::StructValue(to_struct(fields)),
    };
    prost_types::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests;
