//! `tollgate hit`: asks a running server and shows what it answers.

mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::runtime::Builder;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::api::convert;
use crate::clock::Stopwatch;
use crate::model::Unit;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Stands between two descriptors on the command line.
const SEPARATOR: &str = "+";

/// Ask a running server whether a call is within its limits.
#[derive(Debug, Clone, Args)]
#[command(after_help = "A dash in the table means that no limit applied.\n\n\
    Examples:\n  \
    tollgate hit shop user_id=42 --repeat 7\n  \
    tollgate hit shop path=/api + plan=free user_id=7")]
pub struct HitArgs {
    /// Domain of the rules
    domain: String,
    /// Entries as `key=value` (or `key` alone), and `+` between descriptors
    #[arg(required = true, value_name = "KEY=VALUE")]
    entries: Vec<String>,
    /// Hits of each call; 0 looks without counting
    #[arg(long, value_name = "N")]
    hits: Option<u64>,
    /// How many calls to send, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Time between the starts of two calls, such as 100ms or 2s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    every: Option<Duration>,
    /// Address of the server's gRPC port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    addr: String,
    /// Limit that takes the place of the configured one, such as 5/minute or 5/15minute
    #[arg(long, value_name = "LIMIT")]
    limit: Option<LimitArg>,
    /// How to print the answers
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people
    #[default]
    Text,
    /// One JSON object per call and line
    Json,
}

/// `amount/unit` or `amount/<n>unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LimitArg {
    requests_per_unit: u32,
    unit: Unit,
    unit_multiplier: u32,
}

impl FromStr for LimitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(amount, window)| {
            let unit_at = window.find(|c: char| !c.is_ascii_digit())?;
            let (multiplier, unit) = window.split_at(unit_at);
            Some(Self {
                requests_per_unit: amount.parse().ok()?,
                unit: Unit::from_name(unit)?,
                unit_multiplier: if multiplier.is_empty() { 1 } else { multiplier.parse().ok()? },
            })
        });
        parsed.ok_or_else(|| {
            format!("`{text}` is no limit, expected one like 5/minute or 5/15minute")
        })
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("`{text}` is no duration, expected one like 100ms or 2s"))?;
    Duration::try_from(span).map_err(|_| format!("`{text}` is negative"))
}

/// Why the answers are not all there.
#[derive(Debug, thiserror::Error)]
pub enum HitError {
    #[error("`{addr}` is no address, expected one like 127.0.0.1:8081")]
    Addr { addr: String },
    #[error("no server at {addr}, is it running and is this its gRPC port?")]
    Unreachable { addr: String, source: tonic::transport::Error },
    #[error("server at {addr} gave no answer: {}{}", .status.message(), hint(.status.code()))]
    Failed { addr: String, status: Box<Status> },
    #[error("a descriptor without entries, expected key=value before and after each `+`")]
    EmptyDescriptor,
    #[error("cannot write the answers")]
    Write(#[from] io::Error),
}

impl HitError {
    /// 2 for a mistake of the caller's, 3 for trouble on the way or in the server.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Addr { .. } | Self::EmptyDescriptor => 2,
            Self::Failed { status, .. } if is_callers_fault(status.code()) => 2,
            Self::Unreachable { .. } | Self::Failed { .. } | Self::Write(_) => 3,
        }
    }
}

/// What a server answers to a request that it will never take.
fn is_callers_fault(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::ResourceExhausted | Code::Unimplemented)
}

fn hint(code: Code) -> &'static str {
    if code == Code::Unimplemented { "; is this its gRPC port?" } else { "" }
}

/// How the calls were answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub ok: u64,
    pub over_limit: u64,
}

impl Tally {
    /// 0 if all calls were within their limits, else 1.
    pub fn exit_code(self) -> u8 {
        u8::from(self.over_limit > 0)
    }
}

/// Runs the command on a runtime of its own, writing to standard output.
pub(super) fn run_alone(args: &HitArgs) -> ExitCode {
    let outcome = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(HitError::Write)
        .and_then(|runtime| runtime.block_on(run(args, &mut io::stdout())));
    match outcome {
        Ok(tally) => ExitCode::from(tally.exit_code()),
        Err(HitError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => super::fail(error.exit_code(), &error),
    }
}

/// Sends the calls and writes each answer to `out` as it comes.
///
/// # Errors
///
/// The first call without an answer ends the run.
pub async fn run(args: &HitArgs, out: &mut impl Write) -> Result<Tally, HitError> {
    let request = args.request();
    if request.descriptors.iter().any(|descriptor| descriptor.entries.is_empty()) {
        return Err(HitError::EmptyDescriptor);
    }
    let mut client = RateLimitServiceClient::new(connect(&args.addr).await?);
    let mut tally = Tally::default();
    let whole = Stopwatch::start();
    let mut ticks = args.every.filter(|every| !every.is_zero()).map(tokio::time::interval);
    if args.output == Output::Text {
        writeln!(out, "{}", table::head())?;
    }
    for number in 1..=args.repeat {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let watch = Stopwatch::start();
        let response = client
            .should_rate_limit(request.clone())
            .await
            .map_err(|status| HitError::Failed {
                addr: args.addr.clone(),
                status: Box::new(status),
            })?
            .into_inner();
        tally.count(&response);
        let elapsed = watch.elapsed();
        match args.output {
            Output::Text => write!(out, "{}", table::rows(number, &response, elapsed))?,
            Output::Json => writeln!(out, "{}", table::object(number, &response, elapsed))?,
        }
        out.flush()?;
    }
    if args.output == Output::Text {
        writeln!(out, "{}", table::summary(tally, whole.elapsed()))?;
    }
    Ok(tally)
}

async fn connect(addr: &str) -> Result<Channel, HitError> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}"))
        .ok()
        .filter(|endpoint| endpoint.uri().port().is_some())
        .ok_or_else(|| HitError::Addr { addr: addr.to_owned() })?;
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(CALL_TIMEOUT)
        .tcp_nodelay(true)
        .connect()
        .await
        .map_err(|source| HitError::Unreachable { addr: addr.to_owned(), source })
}

impl Tally {
    fn count(&mut self, response: &RateLimitResponse) {
        if table::is_over(response.overall_code) {
            self.over_limit += 1;
        } else {
            self.ok += 1;
        }
    }
}

impl HitArgs {
    fn request(&self) -> RateLimitRequest {
        let descriptors = self
            .entries
            .split(|entry| entry == SEPARATOR)
            .map(|entries| RateLimitDescriptor {
                entries: entries.iter().map(|entry| to_entry(entry)).collect(),
                limit: self.limit.map(|limit| RateLimitOverride {
                    requests_per_unit: limit.requests_per_unit,
                    unit: limit.unit.wire(),
                    unit_multiplier: Some(limit.unit_multiplier),
                }),
                ..Default::default()
            })
            .collect();
        convert::with_hits(self.domain.clone(), descriptors, self.hits)
    }
}

fn to_entry(text: &str) -> Entry {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    Entry { key: key.to_owned().into(), value: value.to_owned().into() }
}

#[cfg(test)]
mod tests;
