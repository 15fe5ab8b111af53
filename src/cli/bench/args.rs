//! The options of `tollgate bench`, and the load they describe.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::keys::{Keys, MAX_KEYS, Weights};
use super::load::{Length, Load, Target};
use super::pace::Pace;
use super::request::Question;
use super::usage::Process;

const WARMUP: Duration = Duration::from_secs(1);
const DURATION: Duration = Duration::from_secs(5);
/// When a run that counts calls ends in any case.
const LONGEST_COUNTED: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);
const IN_FLIGHT_CLOSED: u32 = 64;
const IN_FLIGHT_OPEN: u32 = 1024;
/// Each weighted key takes 8 bytes here.
const MOST_WEIGHTED_KEYS: u64 = 10_000_000;
const REPEATS: u16 = 3;

/// What to send, how fast, for how long, and what to tell of it.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Speaks envoy.service.ratelimit.v3 without TLS, to this server or any \
    other. Every answer is checked.\n\
    A closed loop keeps --in-flight calls waiting; --rate sends calls on a schedule instead and \
    measures each from the moment it was due.\n\n\
    Exit codes: 0 fine, 1 calls failed or --expect-admitted was missed, 2 usage, 3 server gone\n\n\
    Examples:\n  \
    tollgate bench --domain bench --descriptors 4 --in-flight 256\n  \
    tollgate bench --rate 4000 --dist zipf --redis redis://127.0.0.1 --chart latency.svg\n  \
    tollgate bench --requests 5000 --dist hot --expect-admitted 1000\n  \
    tollgate bench --compare --repeats 5 --output json")]
pub struct BenchArgs {
    /// Address of a gRPC port; connections are dealt to several in turn
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    pub(super) addr: Vec<String>,
    /// Domain of the rules
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub(super) domain: String,
    /// Descriptors of each call, with one entry each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(super) descriptors: u16,
    /// Start of the entries' keys; the descriptor's number from 0 on follows
    #[arg(long, value_name = "TEXT", default_value = "d")]
    pub(super) entry: String,
    /// Start of the entries' values; the key's number in nine digits follows
    #[arg(long, value_name = "TEXT", default_value = "k")]
    pub(super) value: String,
    /// Different values of each entry
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..=MAX_KEYS)
    )]
    pub(super) keys: u64,
    /// How often which value is asked for
    #[arg(long, value_enum, default_value_t)]
    pub(super) dist: Dist,
    /// Exponent of --dist zipf
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(super) zipf_s: f64,
    /// Connections, with a thread each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub(super) connections: u16,
    /// Calls in flight over all connections: 64, or with --rate 1024 at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) in_flight: Option<u32>,
    /// Calls per second, sent at random moments whatever the answers do
    #[arg(long, value_name = "CALLS")]
    pub(super) rate: Option<f64>,
    /// Send the calls of --rate with equal gaps
    #[arg(long, requires = "rate")]
    pub(super) paced: bool,
    /// Load before the measurement [default: 1s, or 0s where calls are counted]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = parse_duration,
        conflicts_with_all = ["requests", "expect_admitted"]
    )]
    pub(super) warmup: Option<Duration>,
    /// Length of the measurement [default: 5s, or at most 60s with --requests]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Calls to send in all, measured from the first on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,
    /// `hits_addend` of each call; 0 leaves it to the server
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) hits: u32,
    /// Process whose CPU time and memory to tell; by default what listens on a local --addr
    #[arg(long, value_name = "NAME=PID")]
    pub(super) pid: Vec<PidArg>,
    /// Redis whose commands and CPU time to tell
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// Run in turn with an empty gRPC server and tell the ratio of CPU time per call
    #[arg(long, conflicts_with = "expect_admitted")]
    pub(super) compare: bool,
    /// Runs of each server with --compare [default: 3]
    #[arg(
        long,
        value_name = "N",
        requires = "compare",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub(super) repeats: Option<u16>,
    /// End with 1 unless exactly so many calls are answered OK
    #[arg(long, value_name = "N")]
    pub(super) expect_admitted: Option<u64>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Output,
    /// Name of the run in the result
    #[arg(long, value_name = "TEXT", default_value = "load")]
    pub(super) label: String,
    /// Draw latency and throughput
    #[arg(long, value_name = "FILE.svg")]
    pub(super) chart: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Dist {
    /// All alike
    #[default]
    Uniform,
    /// The n-th value 1/n^S as often as the first
    Zipf,
    /// One value
    Hot,
    /// Each value once
    Unique,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
    /// One row of a Markdown table
    Markdown,
}

/// `name=pid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PidArg(pub(super) Process);

impl FromStr for PidArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('=')
            .and_then(|(name, pid)| {
                Some(Self(Process { name: name.to_owned(), pid: pid.parse().ok()? }))
            })
            .filter(|pid| !pid.0.name.is_empty())
            .ok_or_else(|| format!("`{text}` is no process, expected one like server=1234"))
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("`{text}` is no duration, expected one like 500ms or 5s"))?;
    Duration::try_from(span)
        .ok()
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| format!("`{text}` is not within 0s and 1h"))
}

/// Options that do not describe a load.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    #[error("--addr `{0}` is no address, expected one like 127.0.0.1:8081")]
    Addr(String),
    #[error("--domain is empty, name the domain of the rules")]
    Domain,
    #[error("--rate is no number of calls within 1 and 10000000")]
    Rate,
    #[error("--zipf-s is no exponent within 0 and 10")]
    Exponent,
    #[error("--dist zipf takes {MOST_WEIGHTED_KEYS} --keys at most")]
    Keys,
    #[error("--duration is 0, give the measurement some time")]
    Duration,
    #[error("--in-flight {in_flight} is less than one for each of {connections} --connections")]
    InFlight { in_flight: u32, connections: u16 },
    #[error("a call has {0} bytes and 16384 fit, use fewer --descriptors or shorter texts")]
    TooLong(usize),
    #[error("no process that listens on --addr is known here, name one with --pid to --compare")]
    NothingToCompare,
}

impl BenchArgs {
    pub(super) fn repeats(&self) -> u16 {
        self.repeats.unwrap_or(REPEATS)
    }

    /// # Errors
    ///
    /// An option is out of range, or options do not fit each other.
    pub(super) fn load(&self) -> Result<Load, ArgsError> {
        if self.domain.is_empty() {
            return Err(ArgsError::Domain);
        }
        let question = Question {
            domain: self.domain.clone(),
            entry: self.entry.clone(),
            value: self.value.clone(),
            descriptors: self.descriptors.into(),
            hits: self.hits,
        };
        if !question.fits_a_frame() {
            return Err(ArgsError::TooLong(question.body_bytes()));
        }
        Ok(Load {
            targets: self.addr.iter().map(|addr| target(addr)).collect::<Result<_, _>>()?,
            question,
            keys: self.keys()?,
            first_key: 0,
            connections: self.connections.into(),
            in_flight: self.in_flight()?,
            pace: self.pace()?,
            warmup: self.warmup.unwrap_or(match (self.requests, self.expect_admitted) {
                (None, None) => WARMUP,
                _ => Duration::ZERO,
            }),
            length: self.length()?,
        })
    }

    fn keys(&self) -> Result<Keys, ArgsError> {
        Ok(match self.dist {
            Dist::Uniform => Keys::Uniform(self.keys),
            Dist::Hot => Keys::Hot,
            Dist::Unique => Keys::Unique,
            Dist::Zipf => {
                if !(0.0..=10.0).contains(&self.zipf_s) {
                    return Err(ArgsError::Exponent);
                }
                let keys = Some(self.keys).filter(|keys| *keys <= MOST_WEIGHTED_KEYS);
                let keys = keys.and_then(|keys| u32::try_from(keys).ok()).ok_or(ArgsError::Keys)?;
                Keys::Weighted(Arc::new(Weights::zipf(keys, self.zipf_s)))
            }
        })
    }

    fn pace(&self) -> Result<Pace, ArgsError> {
        let Some(rate) = self.rate else { return Ok(Pace::OnAnswer) };
        if !(1.0..=1e7).contains(&rate) {
            return Err(ArgsError::Rate);
        }
        Ok(if self.paced { Pace::Even(rate) } else { Pace::Poisson(rate) })
    }

    fn in_flight(&self) -> Result<usize, ArgsError> {
        let default = if self.rate.is_some() { IN_FLIGHT_OPEN } else { IN_FLIGHT_CLOSED };
        // One call in flight each is the least, also where nothing was asked for.
        let in_flight = self.in_flight.unwrap_or(default.max(self.connections.into()));
        if in_flight < self.connections.into() {
            return Err(ArgsError::InFlight { in_flight, connections: self.connections });
        }
        Ok(in_flight as usize)
    }

    fn length(&self) -> Result<Length, ArgsError> {
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err(ArgsError::Duration);
        }
        Ok(match self.requests {
            Some(calls) => Length::Calls(calls, self.duration.unwrap_or(LONGEST_COUNTED)),
            None => Length::Time(self.duration.unwrap_or(DURATION)),
        })
    }
}

fn target(text: &str) -> Result<Target, ArgsError> {
    let addr: Option<SocketAddr> =
        text.to_socket_addrs().ok().and_then(|addrs| addrs.min_by_key(SocketAddr::is_ipv6));
    addr.map(|addr| Target { authority: text.to_owned(), addr })
        .ok_or_else(|| ArgsError::Addr(text.to_owned()))
}

#[cfg(test)]
mod tests;
