//! `POST /v1/check`: one descriptor in plain JSON, answered like any rate-limited endpoint.
//!
//! `{"domain": "shop", "entries": {"user_id": "42"}, "hits": 1}`; entries also as a list of
//! `{"key", "value"}`, for a key that occurs twice.

use std::fmt;

use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

use super::protojson::Uint;
use super::{Port, error_response, json_response, wrong_method};
use crate::api::{convert, status};
use crate::model::{Code, CurrentLimit, Decision, DescriptorStatus};
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::telemetry::Method;

/// What a fault in the body is answered with, after what is wrong.
const EXPECTED: &str = "expected {\"domain\": \"…\", \"entries\": {\"key\": \"value\"}, \"hits\": \
                        1}, where hits may be left out";
/// The name in `RateLimit` and `RateLimit-Policy` of a limit that has none.
const UNNAMED: &str = "default";

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    domain: String,
    entries: Entries,
    #[serde(default)]
    hits: Option<Uint<u64>>,
}

/// Entries in the order written.
struct Entries(Vec<Entry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of text values or a list of {\"key\", \"value\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            entries.push(Entry { key: key.into(), value: value.into() });
        }
        Ok(Entries(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Pair {
            key: String,
            #[serde(default)]
            value: String,
        }
        let mut entries = Vec::new();
        while let Some(Pair { key, value }) = list.next_element()? {
            entries.push(Entry { key: key.into(), value: value.into() });
        }
        Ok(Entries(entries))
    }
}

pub(super) async fn post_only() -> Response {
    wrong_method("POST")
}

pub(super) async fn check(
    State(port): State<Port>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        let text =
            format!("body is longer than {} bytes or broken off", port.decider.message_bytes());
        return error_response(status::TOO_LARGE, &text);
    };
    let question = match read(&body) {
        Ok(question) => question,
        Err(error) => {
            return error_response(status::BAD_REQUEST, &format!("{error}; {EXPECTED}"));
        }
    };
    match port.decider.decide(Method::Check, &question).await {
        Ok(decision) => answer(&decision),
        Err(error) => error_response(status::http(&error), &status::text(&error)),
    }
}

fn read(body: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
    let Question { domain, entries, hits } = serde_json::from_slice(body)?;
    let descriptor = RateLimitDescriptor { entries: entries.0, ..Default::default() };
    Ok(convert::with_hits(domain, vec![descriptor], hits.map(|hits| hits.0)))
}

fn answer(decision: &Decision) -> Response {
    let unmatched = DescriptorStatus::default();
    let state = decision.statuses.first().unwrap_or(&unmatched);
    let denied = decision.overall_code == Code::OverLimit;
    let reset = state.duration_until_reset.map(convert::seconds_up);
    let retry_after = state.retry_after.filter(|_| denied).map(convert::seconds_up);

    let mut body = json!({
        "allowed": !denied,
        "limit": state.current_limit.as_ref().map(|limit| limit.requests_per_unit),
        "remaining": state.current_limit.as_ref().map(|_| state.limit_remaining),
        "reset": reset,
        "retry_after": retry_after,
    });
    if let Some(name) = state.current_limit.as_ref().and_then(|limit| limit.name.as_deref()) {
        body["name"] = Value::from(name);
    }
    let mut response = json_response(status::decision(decision.overall_code), &body);
    if let Some(limit) = &state.current_limit {
        put_headers(response.headers_mut(), limit, state.limit_remaining, reset.unwrap_or(0));
    }
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// `X-RateLimit-*` in seconds, and the fields of draft-ietf-httpapi-ratelimit-headers (from
/// version 8 on): lists of quoted names with parameters.
fn put_headers(headers: &mut HeaderMap, limit: &CurrentLimit, remaining: u32, reset: u64) {
    const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
    const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
    const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
    const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    const STATE: HeaderName = HeaderName::from_static("ratelimit");

    let amount = limit.requests_per_unit;
    headers.insert(X_LIMIT, HeaderValue::from(amount));
    headers.insert(X_REMAINING, HeaderValue::from(remaining));
    headers.insert(X_RESET, HeaderValue::from(reset));
    let name = quoted(limit.name.as_deref().unwrap_or(UNNAMED));
    let window = limit
        .unit
        .map(|unit| format!(";w={}", unit.seconds() * u64::from(limit.unit_multiplier)))
        .unwrap_or_default();
    for (field, text) in [
        (POLICY, format!("{name};q={amount}{window}")),
        (STATE, format!("{name};r={remaining};t={reset}")),
    ] {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(field, value);
        }
    }
}

/// A structured-field string; a name that cannot be one is left unnamed.
fn quoted(name: &str) -> String {
    let name = if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) { name } else { UNNAMED };
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Unit;

    fn limited(code: Code, retry_after: Option<u64>, name: Option<&str>) -> Decision {
        Decision {
            overall_code: code,
            statuses: [DescriptorStatus {
                code,
                current_limit: Some(CurrentLimit {
                    requests_per_unit: 10,
                    unit: Some(Unit::Minute),
                    unit_multiplier: 15,
                    name: name.map(Into::into),
                }),
                limit_remaining: if code == Code::Ok { 4 } else { 0 },
                duration_until_reset: Some(61_000_001),
                retry_after,
            }]
            .into_iter()
            .collect(),
            response_headers: Vec::new(),
            dynamic_metadata: None,
        }
    }

    #[track_caller]
    fn check(decision: &Decision, want: &Value, headers: &[(&str, Option<&str>)]) {
        let response = answer(decision);
        for (name, want) in headers {
            let got = response.headers().get(*name).map(|value| value.to_str().unwrap());
            assert_eq!(got, *want, "{name}");
        }
        let denied = decision.overall_code == Code::OverLimit;
        assert_eq!(response.status().as_u16(), if denied { 429 } else { 200 });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = runtime.block_on(axum::body::to_bytes(response.into_body(), 1_000)).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), *want);
    }

    #[test]
    fn an_allowed_call_shows_what_is_left() {
        check(
            &limited(Code::Ok, None, Some(r#"per "user""#)),
            &json!({"allowed": true, "limit": 10, "remaining": 4, "reset": 62,
                "retry_after": null, "name": r#"per "user""#}),
            &[
                ("x-ratelimit-limit", Some("10")),
                ("x-ratelimit-remaining", Some("4")),
                ("x-ratelimit-reset", Some("62")),
                ("ratelimit-policy", Some(r#""per \"user\"";q=10;w=900"#)),
                ("ratelimit", Some(r#""per \"user\"";r=4;t=62"#)),
                ("retry-after", None),
            ],
        );
    }

    #[test]
    fn a_denied_call_says_when_to_come_back() {
        check(
            &limited(Code::OverLimit, Some(2_000_001), None),
            &json!({"allowed": false, "limit": 10, "remaining": 0, "reset": 62, "retry_after": 3}),
            &[("ratelimit", Some(r#""default";r=0;t=62"#)), ("retry-after", Some("3"))],
        );
    }

    #[test]
    fn a_call_that_can_never_pass_gets_no_retry_after() {
        check(
            &limited(Code::OverLimit, None, Some("größe")),
            &json!({"allowed": false, "limit": 10, "remaining": 0, "reset": 62,
                "retry_after": null, "name": "größe"}),
            &[("ratelimit-policy", Some(r#""default";q=10;w=900"#)), ("retry-after", None)],
        );
    }

    #[test]
    fn an_unmatched_call_is_allowed_without_a_limit() {
        let unmatched = Decision {
            overall_code: Code::Ok,
            statuses: [DescriptorStatus::default()].into_iter().collect(),
            response_headers: Vec::new(),
            dynamic_metadata: None,
        };
        check(
            &unmatched,
            &json!({"allowed": true, "limit": null, "remaining": null, "reset": null,
                "retry_after": null}),
            &[("x-ratelimit-limit", None), ("ratelimit", None)],
        );
    }

    #[test]
    fn entries_keep_their_order_and_may_be_a_list() {
        let object = read(br#"{"domain":"d","entries":{"b":"1","a":"2"},"hits":"3"}"#).unwrap();
        let list = read(
            br#"{"domain":"d","entries":[{"key":"b","value":"1"},{"key":"a","value":"2"}],"hits":3}"#,
        )
        .unwrap();
        assert_eq!(object, list);
        assert_eq!(object.hits_addend, 3);
        assert_eq!(object.descriptors[0].entries[0].key, "b");
        assert_eq!(
            read(br#"{"domain":"d","entries":{}}"#).unwrap().descriptors[0].hits_addend,
            None
        );
    }

    #[test]
    fn faults_are_named() {
        for (body, part) in [
            ("{", "EOF"),
            (r#"{"entries":{}}"#, "missing field `domain`"),
            (r#"{"domain":"d","entries":{},"hit":1}"#, "unknown field `hit`"),
            (r#"{"domain":"d","entries":"k"}"#, "an object of text values or a list"),
            (r#"{"domain":"d","entries":{},"hits":-1}"#, "an unsigned integer"),
        ] {
            let error = read(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "`{error}` lacks `{part}`");
        }
    }
}
