//! What results look like.

use std::time::Duration;

use super::super::calls::Tally;
use super::super::compare::Medians;
use super::super::keys::Keys;
use super::super::load::{Length, Target};
use super::super::outcome::RedisCost;
use super::super::pace::Pace;
use super::super::request::Question;
use super::super::usage::Process;
use super::*;

fn load() -> Load {
    Load {
        targets: vec![Target {
            authority: "localhost:8081".to_owned(),
            addr: "127.0.0.1:8081".parse().unwrap(),
        }],
        question: Question {
            domain: "bench".to_owned(),
            entry: "d".to_owned(),
            value: "k".to_owned(),
            descriptors: 1,
            hits: 0,
        },
        keys: Keys::Hot,
        first_key: 0,
        connections: 4,
        in_flight: 64,
        pace: Pace::OnAnswer,
        warmup: Duration::ZERO,
        length: Length::Time(Duration::from_secs(1)),
    }
}

/// 1,000 calls of 100 µs, with 20 ms of CPU time in the server and 10 ms in Redis.
fn outcome() -> Outcome {
    let mut tally = Tally::try_new().unwrap();
    (tally.ok, tally.over_limit) = (900, 100);
    tally.latency.record_n(100_000, 1_000).unwrap();
    let cost = |millis| Cost { cpu: Duration::from_millis(millis), resident_bytes: 3 << 20 };
    Outcome {
        tally,
        elapsed: Duration::from_secs(2),
        ending: Ending::Complete,
        processes: vec![(Process { name: "tollgate".to_owned(), pid: 7 }, Some(cost(20)))],
        redis: Some(RedisCost {
            cost: cost(10),
            commands: BTreeMap::from([("evalsha".to_owned(), 50), ("incrby".to_owned(), 1_000)]),
        }),
        client_cpu: Duration::from_millis(1),
        progress: Vec::new(),
    }
}

fn summary() -> Summary {
    let medians = |factor: f64| Medians {
        cpu_seconds_per_100k_calls: Some(1.5 * factor),
        calls_per_second: Some(1_000.0),
        p50_us: Some(100.0 * factor),
        p99_us: Some(200.0),
    };
    Summary {
        repeats: 5,
        server: medians(2.0),
        bare: medians(1.0),
        cpu_ratio: Some(2.0),
        cpu_ratio_least: Some(1.75),
        cpu_ratio_most: Some(2.5),
        throughput_ratio: Some(1.0),
        p50_ratio: Some(2.0),
        p99_ratio: None,
    }
}

fn written(write: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn json_has_one_shape() {
    let report = Report::new("load", &load(), &outcome(), Some(900), Some(summary()));
    let text = written(|out| report.write_json(out));
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["latency_us"] = serde_json::Value::Null;
    let want = serde_json::json!({
        "label": "load",
        "addr": ["localhost:8081"],
        "connections": 4,
        "in_flight": 64,
        "descriptors": 1,
        "rate": null,
        "ending": "complete",
        "ending_detail": null,
        "seconds": 2.0,
        "calls": {
            "answered": 1000, "ok": 900, "over_limit": 100, "errors": 0, "first_error": null,
            "unanswered": 0, "unsent": 0,
        },
        "calls_per_second": 500.0,
        "latency_us": null,
        "cpu": {
            "processes": [{
                "name": "tollgate", "pid": 7, "seconds": 0.02, "seconds_per_100k_calls": 2.0,
                "resident_bytes": 3 << 20,
            }],
            "seconds_per_100k_calls": 3.0,
            "client_seconds_per_100k_calls": 0.1,
        },
        "redis": {
            "seconds": 0.01, "seconds_per_100k_calls": 1.0, "resident_bytes": 3 << 20,
            "commands_per_1000_calls": 1050.0,
            "by_command": { "evalsha": 50.0, "incrby": 1000.0 },
        },
        "admitted": { "expected": 900, "got": 900 },
        "compare": {
            "repeats": 5,
            "server": {
                "cpu_seconds_per_100k_calls": 3.0, "calls_per_second": 1000.0,
                "p50_us": 200.0, "p99_us": 200.0,
            },
            "bare": {
                "cpu_seconds_per_100k_calls": 1.5, "calls_per_second": 1000.0,
                "p50_us": 100.0, "p99_us": 200.0,
            },
            "cpu_ratio": 2.0, "cpu_ratio_least": 1.75, "cpu_ratio_most": 2.5,
            "throughput_ratio": 1.0, "p50_ratio": 2.0, "p99_ratio": null,
        },
    });
    assert_eq!(value, want);
    assert_eq!(report.exit_code(), 0);
}

#[test]
fn a_row_has_the_columns_of_its_table() {
    let alone = Report::new("load", &load(), &outcome(), None, None);
    let row = written(|out| alone.write_markdown(out));
    assert_eq!(row, "| load | 3.000 | – | evalsha 50, incrby 1000 | 500 | 100 | 100 | 0 |\n");
    let mut failing = outcome();
    (failing.tally.errors, failing.tally.unanswered) = (2, 1);
    failing.tally.first_error = Some("Unavailable: a|b".to_owned());
    let row = written(|out| Report::new("load", &load(), &failing, None, None).write_markdown(out));
    assert!(row.ends_with(" | 3 (Unavailable: a b) |\n"), "{row}");
    let compared = Report::new("load", &load(), &outcome(), None, Some(summary()));
    let row = written(|out| compared.write_markdown(out));
    let want = "| load | 3.000 | 2.00 (1.75–2.50) | evalsha 50, incrby 1000 | 1000 | 200 (2.00) | 200 | 0 |\n";
    assert_eq!(row, want);
}

#[track_caller]
fn check(change: impl Fn(&mut Outcome), expected: Option<u64>, exit_code: u8, line: &str) {
    let mut outcome = outcome();
    change(&mut outcome);
    let report = Report::new("load", &load(), &outcome, expected, None);
    assert_eq!(report.exit_code(), exit_code);
    let text = written(|out| report.write_text(out));
    assert!(text.lines().any(|found| found.trim() == line), "`{line}` is not in:\n{text}");
}

#[test]
fn what_went_wrong_is_told_and_decides_the_exit_code() {
    check(|_| {}, None, 0, "calls       1000 in 2.00 s (500 a second)");
    check(|_| {}, None, 0, "cpu         tollgate (7): 2.000 s per 100k calls, 3 MiB");
    check(
        |_| {},
        None,
        0,
        "redis       1050.0 commands per 1000 calls: evalsha 50.0, incrby 1000.0",
    );
    check(|_| {}, Some(900), 0, "admitted    900 of 900, as expected");
    check(|_| {}, Some(899), 1, "admitted    900 of 899, NOT as expected");
    check(
        |outcome| outcome.tally.errors = 1,
        None,
        1,
        "answers     900 OK, 100 over limit, 1 errors",
    );
    let unanswered = "unanswered  2 calls had no answer at the end";
    check(|outcome| outcome.tally.unanswered = 2, None, 1, unanswered);
    let lost = |outcome: &mut Outcome| outcome.ending = Ending::Lost("server left".to_owned());
    check(lost, Some(1), 3, "ended early server left");
    let gone = |outcome: &mut Outcome| outcome.processes[0].1 = None;
    check(gone, None, 0, "cpu         sum: – s per 100k calls");
    let no_answers = |outcome: &mut Outcome| outcome.tally = Tally::try_new().unwrap();
    check(no_answers, None, 0, "latency     p50 –, p90 –, p99 –, p99.9 –, max – µs");
}
