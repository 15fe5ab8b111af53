//! Answers as lines of a table, or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::Tally;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};

const NONE: &str = "-";

pub(super) fn head() -> String {
    line(["call", "code", "limit", "remaining", "reset", "took"])
}

/// A line for each descriptor; the call's number and time stand on the first.
pub(super) fn rows(number: u64, response: &RateLimitResponse, elapsed: Duration) -> String {
    let mut text = String::new();
    for (place, status) in response.statuses.iter().enumerate() {
        let (number, took) = if place == 0 {
            (number.to_string(), millis(elapsed))
        } else {
            (String::new(), String::new())
        };
        let remaining = match status.limit_remaining {
            0 if status.current_limit.is_none() => NONE.to_owned(),
            u32::MAX => "unlimited".to_owned(),
            remaining => remaining.to_string(),
        };
        let limit = limit(status).unwrap_or_else(|| NONE.to_owned());
        let reset = reset(status).map_or_else(|| NONE.to_owned(), |seconds| format!("{seconds}s"));
        text += &line([&number, name(status.code), &limit, &remaining, &reset, &took]);
        text.push('\n');
    }
    text
}

pub(super) fn summary(tally: Tally, elapsed: Duration) -> String {
    let Tally { ok, over_limit } = tally;
    let calls = ok + over_limit;
    let noun = if calls == 1 { "call" } else { "calls" };
    format!("{calls} {noun}: {ok} OK, {over_limit} over limit, in {}", millis(elapsed))
}

pub(super) fn object(number: u64, response: &RateLimitResponse, elapsed: Duration) -> Value {
    let statuses: Vec<_> = response
        .statuses
        .iter()
        .map(|status| {
            json!({
                "code": name(status.code),
                "limit": limit(status),
                "remaining": status.current_limit.as_ref().map(|_| status.limit_remaining),
                "reset": reset(status),
            })
        })
        .collect();
    json!({
        "call": number,
        "code": name(response.overall_code),
        "statuses": statuses,
        "took_ms": elapsed.as_secs_f64() * 1_000.0,
    })
}

pub(super) fn is_over(code: i32) -> bool {
    code == i32::from(Code::OverLimit)
}

fn line(cells: [&str; 6]) -> String {
    let [number, code, limit, remaining, reset, took] = cells;
    format!("{number:>6}  {code:<10}  {limit:<16}  {remaining:>10}  {reset:>9}  {took:>10}")
        .trim_end()
        .to_owned()
}

fn name(code: i32) -> &'static str {
    Code::try_from(code).unwrap_or_default().as_str_name()
}

fn limit(status: &DescriptorStatus) -> Option<String> {
    let limit = status.current_limit.as_ref()?;
    let amount = limit.requests_per_unit;
    let unit = limit.unit().as_str_name().to_ascii_lowercase();
    Some(match limit.unit_multiplier {
        Some(multiplier) if multiplier > 1 => format!("{amount}/{multiplier}{unit}"),
        _ if limit.unit == 0 => amount.to_string(),
        _ => format!("{amount}/{unit}"),
    })
}

/// Seconds.
fn reset(status: &DescriptorStatus) -> Option<f64> {
    let reset = status.duration_until_reset.as_ref()?;
    Some(reset.seconds as f64 + f64::from(reset.nanos) / 1e9)
}

fn millis(elapsed: Duration) -> String {
    format!("{:.1}ms", elapsed.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{RateLimit, rate_limit};

    fn answer() -> RateLimitResponse {
        let limited = DescriptorStatus {
            code: Code::OverLimit.into(),
            current_limit: Some(RateLimit {
                requests_per_unit: 5,
                unit: rate_limit::Unit::Minute.into(),
                unit_multiplier: Some(15),
                ..Default::default()
            }),
            duration_until_reset: Some(prost_types::Duration { seconds: 42, nanos: 0 }),
            ..Default::default()
        };
        let unmatched = DescriptorStatus { code: Code::Ok.into(), ..Default::default() };
        RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![limited, unmatched],
            ..Default::default()
        }
    }

    #[test]
    fn columns_are_aligned() {
        let text = format!("{}\n{}", head(), rows(7, &answer(), Duration::from_micros(1_250)));
        let want = [
            "  call  code        limit              remaining      reset        took",
            "     7  OVER_LIMIT  5/15minute                 0        42s       1.2ms",
            "        OK          -                          -          -",
            "",
        ]
        .join("\n");
        assert_eq!(text, want);
    }

    #[test]
    fn json_has_the_same_answers() {
        let want = json!({
            "call": 7,
            "code": "OVER_LIMIT",
            "statuses": [
                {"code": "OVER_LIMIT", "limit": "5/15minute", "remaining": 0, "reset": 42.0},
                {"code": "OK", "limit": null, "remaining": null, "reset": null},
            ],
            "took_ms": 1.25,
        });
        assert_eq!(object(7, &answer(), Duration::from_micros(1_250)), want);
    }

    #[test]
    fn the_summary_counts_calls() {
        let elapsed = Duration::from_millis(3);
        let tally = Tally { ok: 3, over_limit: 2 };
        assert_eq!(summary(tally, elapsed), "5 calls: 3 OK, 2 over limit, in 3.0ms");
        assert_eq!(
            summary(Tally { ok: 1, over_limit: 0 }, elapsed),
            "1 call: 1 OK, 0 over limit, in 3.0ms"
        );
    }
}
