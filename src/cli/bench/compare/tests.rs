//! Medians, ratios, and the start of the empty server.

use super::super::calls::Tally;
use super::super::outcome::Cost;
use super::*;

/// A run of 1,000 calls of `micros` each that took the server `millis` of CPU time.
fn outcome(millis: u64, micros: u64) -> Outcome {
    let mut tally = Tally::try_new().unwrap();
    tally.ok = 1_000;
    tally.latency.record_n(micros * 1_000, 1_000).unwrap();
    let cost = Cost { cpu: Duration::from_millis(millis), resident_bytes: 0 };
    Outcome {
        tally,
        elapsed: Duration::from_millis(micros),
        ending: Ending::Complete,
        processes: vec![(Process::this(), Some(cost))],
        redis: None,
        client_cpu: Duration::ZERO,
        progress: Vec::new(),
    }
}

#[track_caller]
fn close(got: Option<f64>, want: f64) {
    let got = got.unwrap();
    assert!((got / want - 1.0).abs() < 1e-3, "{got} is not {want}");
}

#[test]
fn a_median_is_the_middle_one() {
    for (values, want) in [
        (vec![], None),
        (vec![3.0], Some(3.0)),
        (vec![9.0, 1.0], Some(5.0)),
        (vec![100.0, 1.0, 2.0], Some(2.0)),
    ] {
        assert_eq!(median(values), want);
    }
}

#[test]
fn ratios_are_of_medians_and_their_range_of_pairs() {
    let comparison = Comparison {
        server: vec![outcome(40, 400), outcome(10, 100), outcome(20, 200)],
        bare: vec![outcome(10, 100), outcome(10, 100), outcome(50, 100)],
    };
    let summary = comparison.summary();
    assert_eq!(summary.repeats, 3);
    close(summary.server.cpu_seconds_per_100k_calls, 2.0);
    close(summary.bare.cpu_seconds_per_100k_calls, 1.0);
    close(summary.cpu_ratio, 2.0);
    close(summary.cpu_ratio_least, 0.4);
    close(summary.cpu_ratio_most, 4.0);
    close(summary.p50_ratio, 2.0);
    close(summary.p99_ratio, 2.0);
    close(summary.throughput_ratio, 0.5);
}

#[test]
fn unknown_costs_make_no_ratio() {
    let mut gone = outcome(10, 100);
    gone.processes[0].1 = None;
    let summary = Comparison { server: vec![gone], bare: vec![outcome(0, 100)] }.summary();
    assert_eq!((summary.cpu_ratio, summary.cpu_ratio_least), (None, None));
    let idle = Comparison { server: vec![outcome(1, 1)], bare: vec![outcome(0, 1)] }.summary();
    assert_eq!(idle.cpu_ratio, None, "nothing to divide by");
}

#[test]
fn the_end_of_either_server_is_told() {
    let mut lost = outcome(10, 100);
    lost.ending = Ending::Lost("gone".to_owned());
    let total = Comparison { server: vec![outcome(10, 100); 2], bare: vec![lost] }.total().unwrap();
    assert_eq!(total.tally.ok, 2_000);
    assert_eq!(total.ending, Ending::Lost("empty server: gone".to_owned()));
}

#[test]
fn the_empty_server_says_where_it_listens() {
    let shell = |script: &str| BareServer::spawn(Command::new("sh").args(["-c", script]));
    let server = shell("echo 127.0.0.1:7; cat").unwrap();
    assert_eq!(server.addr(), "127.0.0.1:7".parse().unwrap());
    assert!(server.process().usage().is_ok());
    for script in ["exit 1", "echo soon"] {
        assert!(shell(script).is_err(), "{script}");
    }
}
