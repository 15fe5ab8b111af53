//! Our messages and those of the proxy's own API are the same bytes.
//!
//! The crate with the API's messages does not know `unit_multiplier` yet.

use envoy_types::pb::envoy as theirs;
use proptest::prelude::*;
use prost::Message;
use tollgate::proto::envoy::config::core::v3::HeaderValue;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, Quota, RateLimit, quota, rate_limit,
};
use tollgate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

type TheirRequest = theirs::service::ratelimit::v3::RateLimitRequest;
type TheirResponse = theirs::service::ratelimit::v3::RateLimitResponse;

/// Ours to theirs and back: nothing may get lost on the way.
#[track_caller]
fn check_round_trip<Ours, Theirs>(ours: &Ours) -> Theirs
where
    Ours: Message + Default + PartialEq + std::fmt::Debug,
    Theirs: Message + Default,
{
    let theirs = Theirs::decode(&ours.encode_to_vec()[..]).unwrap();
    let back = Ours::decode(&theirs.encode_to_vec()[..]).unwrap();
    assert_eq!(*ours, back);
    theirs
}

#[test]
fn every_field_of_a_request_is_theirs() {
    let ours = RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key: "k".into(), value: "v".into() }],
            limit: Some(RateLimitOverride { requests_per_unit: 5, unit: 6, unit_multiplier: None }),
            hits_addend: Some(0),
            is_negative_hits: true,
        }],
        hits_addend: 3,
    };
    let theirs: TheirRequest = check_round_trip(&ours);
    assert_eq!((theirs.domain.as_str(), theirs.hits_addend), ("d", 3));
    let descriptor = &theirs.descriptors[0];
    let entry = &descriptor.entries[0];
    assert_eq!((entry.key.as_str(), entry.value.as_str()), ("k", "v"));
    assert_eq!(descriptor.hits_addend.map(|hits| hits.value), Some(0));
    assert!(descriptor.is_negative_hits);
    let limit = descriptor.limit.as_ref().unwrap();
    assert_eq!(
        (limit.requests_per_unit, limit.unit),
        (5, theirs::r#type::v3::RateLimitUnit::Year.into())
    );
}

#[test]
fn every_field_of_an_answer_is_theirs() {
    let quota = |id: &str| Quota {
        requests: 4,
        id: id.to_owned(),
        expiration_specifier: Some(quota::ExpirationSpecifier::ValidUntil(
            prost_types::Timestamp { seconds: 9, nanos: 1 },
        )),
    };
    let header = |key: &str| HeaderValue {
        key: key.to_owned(),
        value: "v".to_owned(),
        raw_value: b"\xff"[..].into(),
    };
    let text =
        prost_types::Value { kind: Some(prost_types::value::Kind::StringValue("gold".to_owned())) };
    let ours = RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit {
                requests_per_unit: 5,
                unit: rate_limit::Unit::Week.into(),
                name: "n".to_owned(),
                unit_multiplier: None,
            }),
            limit_remaining: 3,
            duration_until_reset: Some(prost_types::Duration { seconds: 77, nanos: 5 }),
            quota: Some(quota("status")),
        }],
        response_headers_to_add: vec![header("response")],
        request_headers_to_add: vec![header("request")],
        raw_body: b"\xfe"[..].into(),
        dynamic_metadata: Some(prost_types::Struct {
            fields: [("tier".to_owned(), text)].into_iter().collect(),
        }),
        quota: Some(quota("whole")),
    };
    let theirs: TheirResponse = check_round_trip(&ours);
    use theirs::service::ratelimit::v3::rate_limit_response as their;
    assert_eq!(theirs.overall_code(), their::Code::OverLimit);
    let status = &theirs.statuses[0];
    assert_eq!(status.code(), their::Code::Ok);
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!(limit.unit(), their::rate_limit::Unit::Week);
    assert_eq!((limit.requests_per_unit, limit.name.as_str()), (5, "n"));
    assert_eq!(status.limit_remaining, 3);
    let reset = status.duration_until_reset.as_ref().unwrap();
    assert_eq!((reset.seconds, reset.nanos), (77, 5));
    assert_eq!(status.quota.as_ref().unwrap().id, "status");
    let whole = theirs.quota.as_ref().unwrap();
    assert_eq!((whole.requests, whole.id.as_str()), (4, "whole"));
    let their::quota::ExpirationSpecifier::ValidUntil(until) =
        whole.expiration_specifier.as_ref().unwrap();
    assert_eq!((until.seconds, until.nanos), (9, 1));
    for (headers, key) in
        [(&theirs.response_headers_to_add, "response"), (&theirs.request_headers_to_add, "request")]
    {
        let header = &headers[0];
        assert_eq!((header.key.as_str(), header.value.as_str()), (key, "v"));
        assert_eq!(header.raw_value, b"\xff");
    }
    assert_eq!(theirs.raw_body, b"\xfe");
    assert!(theirs.dynamic_metadata.as_ref().unwrap().fields.contains_key("tier"));
}

#[test]
fn units_have_their_numbers() {
    use theirs::service::ratelimit::v3::rate_limit_response::rate_limit::Unit as TheirUnit;
    use theirs::r#type::v3::RateLimitUnit as TheirOverrideUnit;
    use tollgate::proto::envoy::r#type::v3::RateLimitUnit;
    for number in -1..=9 {
        let name = rate_limit::Unit::try_from(number).ok().map(|unit| unit.as_str_name());
        let theirs = TheirUnit::try_from(number).ok().map(|unit| unit.as_str_name());
        assert_eq!(name, theirs);
        let name = RateLimitUnit::try_from(number).ok().map(|unit| unit.as_str_name());
        let theirs = TheirOverrideUnit::try_from(number).ok().map(|unit| unit.as_str_name());
        assert_eq!(name, theirs);
    }
}

/// Newer than the messages to compare with, so by the bytes: a wrapped number, as field 3 of an
/// override and field 4 of a limit.
#[test]
fn multipliers_have_their_field_numbers() {
    let multiplied = RateLimitOverride { unit_multiplier: Some(15), ..Default::default() };
    assert_eq!(multiplied.encode_to_vec(), [0x1a, 2, 0x08, 15]);
    let multiplied = RateLimit { unit_multiplier: Some(15), ..Default::default() };
    assert_eq!(multiplied.encode_to_vec(), [0x22, 2, 0x08, 15]);
}

#[test]
fn bytes_that_are_not_text_are_taken() {
    let ours = RateLimitDescriptor {
        entries: vec![Entry { key: b"k"[..].into(), value: b"caf\xe9"[..].into() }],
        ..Default::default()
    };
    let bytes = ours.encode_to_vec();
    assert_eq!(RateLimitDescriptor::decode(&bytes[..]).unwrap(), ours);
    let theirs = theirs::extensions::common::ratelimit::v3::RateLimitDescriptor::decode(&bytes[..]);
    assert!(theirs.is_err(), "theirs are text");
}

fn any_request() -> impl Strategy<Value = RateLimitRequest> {
    let entry = (".{0,9}", ".{0,9}")
        .prop_map(|(key, value)| Entry { key: key.into(), value: value.into() });
    let limit = (any::<u32>(), any::<i32>()).prop_map(|(requests_per_unit, unit)| {
        RateLimitOverride { requests_per_unit, unit, unit_multiplier: None }
    });
    let descriptor =
        (
            prop::collection::vec(entry, 0..4),
            prop::option::of(limit),
            any::<Option<u64>>(),
            any::<bool>(),
        )
            .prop_map(|(entries, limit, hits_addend, is_negative_hits)| {
                RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
            });
    (".{0,9}", prop::collection::vec(descriptor, 0..4), any::<u32>()).prop_map(
        |(domain, descriptors, hits_addend)| RateLimitRequest { domain, descriptors, hits_addend },
    )
}

fn any_response() -> impl Strategy<Value = RateLimitResponse> {
    let limit =
        (any::<u32>(), any::<i32>(), ".{0,9}").prop_map(|(requests_per_unit, unit, name)| {
            RateLimit { requests_per_unit, unit, name, unit_multiplier: None }
        });
    let duration = (any::<i64>(), any::<i32>())
        .prop_map(|(seconds, nanos)| prost_types::Duration { seconds, nanos });
    let status = (any::<i32>(), prop::option::of(limit), any::<u32>(), prop::option::of(duration))
        .prop_map(|(code, current_limit, limit_remaining, duration_until_reset)| {
            DescriptorStatus {
                code,
                current_limit,
                limit_remaining,
                duration_until_reset,
                quota: None,
            }
        });
    (any::<i32>(), prop::collection::vec(status, 0..4), any::<Vec<u8>>()).prop_map(
        |(overall_code, statuses, raw_body)| RateLimitResponse {
            overall_code,
            statuses,
            raw_body: raw_body.into(),
            ..Default::default()
        },
    )
}

proptest! {
    #[test]
    fn any_request_survives_the_way(ours in any_request()) {
        check_round_trip::<_, TheirRequest>(&ours);
    }

    #[test]
    fn any_answer_survives_the_way(ours in any_response()) {
        check_round_trip::<_, TheirResponse>(&ours);
    }
}
