//! `tollgate bench`: generates load, measures what it costs and how long it takes, and judges
//! the answers.
//!
//! The generator has a thread and a blocking socket for each connection and speaks just enough
//! HTTP/2, so that on the machine it shares with the server it takes little from it.

mod args;
pub mod bare;
mod calls;
mod chart;
mod compare;
mod connection;
mod driver;
mod frame;
mod hpack;
mod interrupt;
mod keys;
mod load;
mod outcome;
mod pace;
mod probes;
mod redis_info;
mod reply;
mod report;
mod request;
mod run;
mod usage;
mod watch;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

pub use args::{ArgsError, BenchArgs};
pub use connection::ConnectError;
pub use redis_info::RedisInfoError;
pub use usage::UsageError;

use args::Output;
use compare::{BareServer, Comparison};
use load::Load;
use probes::Probes;
use redis_info::RedisInfo;
use report::Report;
use usage::Process;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Redis(#[from] RedisInfoError),
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("the load ended in the warm-up: {0}")]
    LostInWarmup(String),
    #[error("cannot start the empty server")]
    Bare(#[source] io::Error),
    #[error("cannot make room for latencies")]
    Histogram(#[from] hdrhistogram::CreationError),
    #[error("a thread of the generator failed")]
    Thread,
    #[error("nothing was measured")]
    Nothing,
    #[error("cannot watch for Ctrl-C")]
    Interrupt(#[source] io::Error),
    #[error("cannot draw the chart to {}", .path.display())]
    Chart { path: PathBuf, source: io::Error },
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

impl BenchError {
    /// 2 for a mistake of the caller's, 3 for trouble with the server or here.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Args(_)
            | Self::Redis(RedisInfoError::Url(_))
            | Self::Connect(ConnectError::TooFewStreams { .. }) => 2,
            _ => 3,
        }
    }
}

/// Runs the command, writing to standard output.
pub(super) fn run_alone(args: &BenchArgs) -> ExitCode {
    match run(args, &mut io::stdout().lock()) {
        Ok(exit_code) => exit_code.into(),
        Err(BenchError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            super::fail(error.exit_code(), &format_args!("{:#}", anyhow::Error::from(error)))
        }
    }
}

/// Runs the load and writes the result to `out`. Returns the exit code: 0, 1 where calls failed
/// or the number admitted is not the one expected, 3 where the server went away.
///
/// Blocks for as long as the load takes; Ctrl-C ends it with the result so far.
///
/// # Errors
///
/// There is no result.
pub fn run(args: &BenchArgs, out: &mut impl Write) -> Result<u8, BenchError> {
    let load = args.load()?;
    let interrupted = interrupt::watch().map_err(BenchError::Interrupt)?;
    let bare =
        if args.compare { Some(BareServer::start().map_err(BenchError::Bare)?) } else { None };
    let bare = bare.as_ref().map(|bare| (bare.addr(), bare.process()));
    measure(args, &load, bare, &interrupted, out)
}

fn measure(
    args: &BenchArgs,
    load: &Load,
    bare: Option<(SocketAddr, Process)>,
    interrupted: &AtomicBool,
    out: &mut impl Write,
) -> Result<u8, BenchError> {
    let mut probes =
        Probes::new(processes(args, load), args.redis.as_deref().map(RedisInfo::open).transpose()?);
    let (outcome, comparison) = match bare {
        Some(bare) => {
            if probes.is_empty() {
                return Err(ArgsError::NothingToCompare.into());
            }
            let comparison = compare::compare(
                load,
                &mut probes,
                bare,
                args.repeats(),
                interrupted,
                &args.label,
            )?;
            (comparison.total().ok_or(BenchError::Nothing)?, Some(comparison))
        }
        None => (run::run(load, &mut probes, interrupted, &args.label)?, None),
    };
    let summary = comparison.as_ref().map(Comparison::summary);
    let report = Report::new(&args.label, load, &outcome, args.expect_admitted, summary);
    match args.output {
        Output::Text => report.write_text(out)?,
        Output::Json => report.write_json(out)?,
        Output::Markdown => report.write_markdown(out)?,
    }
    out.flush()?;
    if let Some(path) = &args.chart {
        let bare = comparison.as_ref().map(|comparison| &comparison.bare[..]);
        std::fs::write(path, chart::draw(&args.label, &outcome, bare.unwrap_or_default()))
            .map_err(|source| BenchError::Chart { path: path.clone(), source })?;
    }
    Ok(report.exit_code())
}

/// The processes named, or those that listen on the addresses.
fn processes(args: &BenchArgs, load: &Load) -> Vec<Process> {
    if !args.pid.is_empty() {
        return args.pid.iter().map(|pid| pid.0.clone()).collect();
    }
    let mut found: Vec<Process> = Vec::new();
    for process in load.targets.iter().flat_map(|target| usage::listeners(target.addr)) {
        if !found.contains(&process) {
            found.push(process);
        }
    }
    found
}

#[cfg(test)]
mod tests;
