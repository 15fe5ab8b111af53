//! Requests and answers on their way through the wire types.

use std::time::Duration;

use super::*;
use crate::model::Header;

const CAPS: Caps = Caps {
    descriptors_per_call: 2,
    entries_per_descriptor: 2,
    key_bytes: 4,
    value_bytes: 8,
    message_bytes: 1_000,
};

type Override = descriptor_pb::rate_limit_descriptor::RateLimitOverride;

fn descriptor(entries: &[(&'static [u8], &'static [u8])]) -> descriptor_pb::RateLimitDescriptor {
    descriptor_pb::RateLimitDescriptor {
        entries: entries
            .iter()
            .map(|&(key, value)| descriptor_pb::rate_limit_descriptor::Entry {
                key: key.into(),
                value: value.into(),
            })
            .collect(),
        ..Default::default()
    }
}

fn request(descriptors: Vec<descriptor_pb::RateLimitDescriptor>) -> pb::RateLimitRequest {
    pb::RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend: 0 }
}

fn overriding(unit: i32, unit_multiplier: Option<u32>) -> pb::RateLimitRequest {
    let limit = Some(Override { requests_per_unit: 5, unit, unit_multiplier });
    request(vec![descriptor_pb::RateLimitDescriptor { limit, ..descriptor(&[(b"k", b"v")]) }])
}

#[test]
fn a_request_is_borrowed_whole() {
    let mut message = request(vec![
        descriptor(&[(b"k", b"\xff\xfe"), (b"", b"")]),
        descriptor_pb::RateLimitDescriptor {
            hits_addend: Some(u64::MAX),
            is_negative_hits: true,
            ..descriptor(&[])
        },
    ]);
    message.hits_addend = 7;
    let read = to_request(&message, &CAPS).unwrap();
    assert_eq!((read.domain, read.hits_addend), ("d", 7));
    let entries = &read.descriptors[0].entries;
    assert_eq!(entries[0], Entry { key: b"k", value: b"\xff\xfe" });
    assert_eq!(entries[1], Entry { key: b"", value: b"" });
    assert_eq!(entries[0].value.as_ptr(), message.descriptors[0].entries[0].value.as_ptr());
    let second =
        Descriptor { hits_addend: Some(u64::MAX), is_negative_hits: true, ..Descriptor::default() };
    assert_eq!(read.descriptors[1], second);
}

#[track_caller]
fn check_fault(message: &pb::RateLimitRequest, want: RequestError) {
    assert_eq!(to_request(message, &CAPS), Err(want));
}

#[test]
fn empty_requests_are_refused() {
    check_fault(&pb::RateLimitRequest::default(), RequestError::EmptyDomain);
    check_fault(&request(Vec::new()), RequestError::NoDescriptors);
}

#[test]
fn each_cap_holds_and_one_more_is_refused() {
    let good = descriptor(&[(b"1234", b"12345678"), (b"k", b"v")]);
    assert!(to_request(&request(vec![good.clone(), good.clone()]), &CAPS).is_ok());

    let many = request(vec![good.clone(), good.clone(), good.clone()]);
    check_fault(&many, RequestError::TooManyDescriptors { found: 3, cap: 2 });
    let many = descriptor(&[(b"k", b""), (b"k", b""), (b"k", b"")]);
    let error = RequestError::TooManyEntries { descriptor: 1, found: 3, cap: 2 };
    check_fault(&request(vec![good, many]), error);
    let error = RequestError::LongKey { descriptor: 0, entry: 1, found: 5, cap: 4 };
    check_fault(&request(vec![descriptor(&[(b"k", b"v"), (b"12345", b"")])]), error);
    let error = RequestError::LongValue { descriptor: 0, entry: 0, found: 9, cap: 8 };
    check_fault(&request(vec![descriptor(&[(b"k", b"123456789")])]), error);
}

#[test]
fn overrides_take_every_unit_and_a_multiplier() {
    for unit in Unit::ALL {
        for (sent, unit_multiplier) in [(None, 1), (Some(0), 1), (Some(1), 1), (Some(10), 10)] {
            let message = overriding(unit.wire(), sent);
            let read = to_request(&message, &CAPS).unwrap();
            let want = LimitOverride { requests_per_unit: 5, unit, unit_multiplier };
            assert_eq!(read.descriptors[0].limit, Some(want));
        }
    }
}

#[test]
fn overrides_without_a_known_window_are_refused() {
    for unit in [0, 8, 99, -1, i32::MIN, i32::MAX] {
        check_fault(&overriding(unit, None), RequestError::OverrideUnit { descriptor: 0, unit });
    }
    assert!(to_request(&overriding(Unit::Year.wire(), Some(10)), &CAPS).is_ok());
    for (unit, multiplier) in [(Unit::Year, 11), (Unit::Year, u32::MAX), (Unit::Second, u32::MAX)] {
        let error = RequestError::OverrideWindow { descriptor: 0, unit, multiplier };
        check_fault(&overriding(unit.wire(), Some(multiplier)), error);
    }
}

#[test]
fn hits_of_a_call_stand_where_they_can_be_told() {
    let beyond = u64::from(u32::MAX) + 1;
    for (hits, want) in [
        (None, (0, None)),
        (Some(0), (0, Some(0))),
        (Some(1), (1, None)),
        (Some(5), (5, None)),
        (Some(beyond), (0, Some(beyond))),
    ] {
        let request = with_hits("d".to_owned(), vec![descriptor(&[])], hits);
        assert_eq!((request.hits_addend, request.descriptors[0].hits_addend), want);
    }
}

fn limit(unit: Option<Unit>, unit_multiplier: u32) -> CurrentLimit {
    CurrentLimit { requests_per_unit: 9, unit, unit_multiplier, name: Some("n".into()) }
}

/// The one status of an answer.
fn written(status: DescriptorStatus) -> pb::rate_limit_response::DescriptorStatus {
    let decision = Decision {
        overall_code: Code::Ok,
        statuses: [status].into_iter().collect(),
        response_headers: Vec::new(),
        dynamic_metadata: None,
    };
    to_response(decision).statuses.remove(0)
}

#[test]
fn an_answer_has_everything_that_was_decided() {
    let status = DescriptorStatus {
        code: Code::OverLimit,
        current_limit: Some(limit(Some(Unit::Week), 3)),
        limit_remaining: u32::MAX,
        duration_until_reset: Some(1),
        retry_after: None,
    };
    let nested = Metadata(vec![
        ("null".to_owned(), MetadataValue::Null),
        ("bool".to_owned(), MetadataValue::Bool(true)),
        ("number".to_owned(), MetadataValue::Number(1.5)),
        ("text".to_owned(), MetadataValue::String("t".to_owned())),
        ("list".to_owned(), MetadataValue::List(vec![MetadataValue::Null])),
    ]);
    let response = to_response(Decision {
        overall_code: Code::OverLimit,
        statuses: [status, DescriptorStatus::default()].into_iter().collect(),
        response_headers: vec![Header { name: "H".into(), value: "1".to_owned() }],
        dynamic_metadata: Some(Metadata(vec![("m".to_owned(), MetadataValue::Map(nested))])),
    });

    assert_eq!(response.overall_code(), pb::rate_limit_response::Code::OverLimit);
    let [first, second] = &response.statuses[..] else { panic!("two statuses") };
    assert_eq!(first.code(), pb::rate_limit_response::Code::OverLimit);
    let current = first.current_limit.as_ref().unwrap();
    assert_eq!((current.requests_per_unit, current.unit, current.unit_multiplier), (9, 7, Some(3)));
    assert_eq!((current.name.as_str(), first.limit_remaining), ("n", u32::MAX));
    assert_eq!(second.code(), pb::rate_limit_response::Code::Ok);
    assert_eq!((second.current_limit.as_ref(), second.duration_until_reset), (None, None));
    let header = &response.response_headers_to_add[0];
    assert_eq!((header.key.as_str(), header.value.as_str()), ("H", "1"));
    let metadata = response.dynamic_metadata.as_ref().unwrap();
    let Some(Kind::StructValue(nested)) = &metadata.fields["m"].kind else { panic!("a map") };
    assert_eq!(nested.fields.len(), 5);
    assert_eq!(nested.fields["number"].kind, Some(Kind::NumberValue(1.5)));
}

#[test]
fn a_multiplier_of_one_is_left_out() {
    let status = |limit| DescriptorStatus { current_limit: Some(limit), ..Default::default() };
    let one = written(status(limit(Some(Unit::Hour), 1))).current_limit.unwrap();
    assert_eq!((one.unit, one.unit_multiplier), (3, None));
    let odd = written(status(limit(None, 1))).current_limit.unwrap();
    assert_eq!((odd.unit, odd.unit_multiplier), (0, None));
}

#[test]
fn resets_are_rounded_up_so_that_waiting_suffices() {
    let second = Duration::from_secs(1).as_micros() as u64;
    for (unit, micros, want) in [
        (Some(Unit::Second), 1, (1, 0)),
        (Some(Unit::Second), second, (1, 0)),
        (Some(Unit::Minute), 59 * second + 1, (60, 0)),
        (None, 90 * second, (90, 0)),
        (None, second + 1, (2, 0)),
        (None, 250_001, (0, 250_001_000)),
        (None, 999_999, (0, 999_999_000)),
    ] {
        let status = DescriptorStatus {
            current_limit: Some(limit(unit, 1)),
            duration_until_reset: Some(micros),
            ..Default::default()
        };
        let reset = written(status).duration_until_reset.unwrap();
        assert_eq!((reset.seconds, reset.nanos), want, "{micros} µs of {unit:?}");
    }
}
