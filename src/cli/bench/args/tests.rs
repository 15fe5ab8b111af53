//! What the command line says, and what it may not say.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
    Cli::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()))
        .map(|cli| cli.bench)
}

fn load(line: &str) -> Load {
    parse(line).unwrap().load().unwrap()
}

#[test]
fn a_load_needs_no_options() {
    let load = load("");
    assert_eq!(load.targets[0].addr, "127.0.0.1:8081".parse().unwrap());
    assert_eq!((load.connections, load.in_flight, load.pace), (4, 64, Pace::OnAnswer));
    assert_eq!((load.warmup, load.length), (WARMUP, Length::Time(DURATION)));
    assert!(matches!(load.keys, Keys::Uniform(100_000)));
}

#[test]
fn counted_calls_are_measured_from_the_first() {
    for line in ["--requests 10", "--requests 10 --expect-admitted 5", "--expect-admitted 5"] {
        assert_eq!(load(line).warmup, Duration::ZERO, "{line}");
    }
    assert_eq!(load("--requests 10").length, Length::Calls(10, LONGEST_COUNTED));
    let short = load("--requests 10 --duration 2s");
    assert_eq!(short.length, Length::Calls(10, Duration::from_secs(2)));
}

#[test]
fn a_rate_opens_the_loop() {
    let poisson = load("--rate 4000");
    assert_eq!((poisson.pace, poisson.in_flight), (Pace::Poisson(4000.0), 1024));
    assert_eq!(load("--rate 0.5e3 --paced --in-flight 8").pace, Pace::Even(500.0));
    assert_eq!(load("--connections 100").in_flight, 100);
}

#[test]
fn several_addresses_and_processes_are_taken() {
    let args = parse("--addr 127.0.0.1:1 --addr [::1]:2 --pid server=12 --pid redis=34").unwrap();
    let ports: Vec<_> = args.load().unwrap().targets.iter().map(|t| t.addr.port()).collect();
    assert_eq!(ports, [1, 2]);
    let pids: Vec<_> = args.pid.iter().map(|pid| (pid.0.name.as_str(), pid.0.pid)).collect();
    assert_eq!(pids, [("server", 12), ("redis", 34)]);
}

#[test]
fn mistakes_on_the_command_line_are_refused() {
    for (line, part) in [
        ("--descriptors 0", "1.."),
        ("--keys 0", "1.."),
        ("--keys 1000000001", "1.."),
        ("--connections 0", "1.."),
        ("--requests 0", "1.."),
        ("--in-flight 0", "1.."),
        ("--duration soon", "500ms"),
        ("--duration 2h", "1h"),
        ("--duration=-1s", "1h"),
        ("--pid 12", "server=1234"),
        ("--pid =12", "server=1234"),
        ("--pid server=x", "server=1234"),
        ("--paced", "--rate"),
        ("--repeats 3", "--compare"),
        ("--warmup 1s --requests 5", "cannot be used"),
        ("--warmup 1s --expect-admitted 5", "cannot be used"),
        ("--compare --expect-admitted 5", "cannot be used"),
        ("--dist normal", "uniform"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(part), "`{line}`: `{error}` lacks `{part}`");
    }
}

#[track_caller]
fn check(line: &str, want: ArgsError) {
    assert_eq!(parse(line).unwrap().load().err(), Some(want));
}

#[test]
fn options_that_describe_no_load_are_refused() {
    check("--addr localhost", ArgsError::Addr("localhost".to_owned()));
    check("--addr http://127.0.0.1:8081", ArgsError::Addr("http://127.0.0.1:8081".to_owned()));
    check("--domain=", ArgsError::Domain);
    for rate in ["0", "-1", "NaN", "inf", "2e7"] {
        check(&format!("--rate={rate}"), ArgsError::Rate);
    }
    check("--dist zipf --zipf-s=-1", ArgsError::Exponent);
    check("--dist zipf --zipf-s NaN", ArgsError::Exponent);
    check("--dist zipf --keys 20000000", ArgsError::Keys);
    check("--duration 0s", ArgsError::Duration);
    check("--in-flight 3", ArgsError::InFlight { in_flight: 3, connections: 4 });
    let error = parse("--descriptors 5000").unwrap().load().unwrap_err();
    assert!(matches!(error, ArgsError::TooLong(_)), "{error}");
}
