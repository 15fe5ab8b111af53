//! Sums and shares of what runs cost.

use super::*;

fn outcome(ok: u64, server_millis: Option<u64>, redis_millis: u64) -> Outcome {
    let cost = |millis| Cost { cpu: Duration::from_millis(millis), resident_bytes: millis };
    let mut tally = Tally::try_new().unwrap();
    tally.ok = ok;
    for _ in 0..ok {
        tally.latency.record(ok * 1_000).unwrap();
    }
    Outcome {
        tally,
        elapsed: Duration::from_secs(2),
        ending: Ending::Complete,
        processes: vec![(Process { name: "server".to_owned(), pid: 1 }, server_millis.map(cost))],
        redis: Some(RedisCost {
            cost: cost(redis_millis),
            commands: BTreeMap::from([("evalsha".to_owned(), ok)]),
        }),
        client_cpu: Duration::from_millis(10),
        progress: Vec::new(),
    }
}

#[test]
fn a_call_costs_what_server_and_redis_took() {
    let run = outcome(1_000, Some(60), 40);
    assert_eq!(run.server_cpu(), Some(Duration::from_millis(100)));
    assert!((run.cpu_per_100k().unwrap() - 10.0).abs() < 1e-9);
    assert!((run.calls_per_second() - 500.0).abs() < 1e-9);
}

#[test]
fn what_is_unknown_makes_no_sum() {
    assert_eq!(outcome(1_000, None, 40).server_cpu(), None, "the server is gone");
    let mut unwatched = outcome(1_000, Some(60), 40);
    unwatched.processes.clear();
    assert_eq!(unwatched.server_cpu(), None);
    assert_eq!(outcome(0, Some(60), 40).cpu_per_100k(), None, "no calls to share it");
    assert_eq!(outcome(0, Some(60), 40).latency_us(0.5), None);
}

#[test]
fn runs_add_up() {
    let mut sum = outcome(100, Some(60), 40);
    let mut other = outcome(300, Some(20), 10);
    other.ending = Ending::Interrupted;
    sum.add(&other);
    assert_eq!((sum.tally.ok, sum.tally.latency.len()), (400, 400));
    assert_eq!((sum.elapsed, sum.ending), (Duration::from_secs(4), Ending::Interrupted));
    assert_eq!(sum.processes[0].1.unwrap().cpu, Duration::from_millis(80));
    let redis = sum.redis.unwrap();
    assert_eq!((redis.cost.cpu, redis.cost.resident_bytes), (Duration::from_millis(50), 10));
    assert_eq!(redis.commands["evalsha"], 400);
}

#[test]
fn percentiles_are_those_of_all_calls() {
    let mut sum = outcome(90, Some(1), 1); // 90 µs
    sum.add(&outcome(10, Some(1), 1)); // 10 µs
    for (quantile, want) in [(0.1, 10.0), (0.11, 90.0), (0.99, 90.0), (1.0, 90.0)] {
        let got = sum.latency_us(quantile).unwrap();
        assert!((got / want - 1.0).abs() < 1e-3, "{quantile}: {got}");
    }
}
