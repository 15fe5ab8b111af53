//! Runs a load on a server and on the empty one in turn, and sets one against the other.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::BenchError;
use super::bare;
use super::keys::MAX_KEYS;
use super::load::{Load, Target};
use super::outcome::{Ending, Outcome};
use super::probes::Probes;
use super::run;
use super::usage::Process;

/// How long the empty server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The empty server in a process of its own.
pub(super) struct BareServer {
    child: Child,
    addr: SocketAddr,
}

impl BareServer {
    /// Starts this binary once more.
    ///
    /// # Errors
    ///
    /// It does not start, or not in time.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(bare::NAME);
        Self::spawn(&mut command)
    }

    /// In a process group of its own, so that Ctrl-C leaves it to the end of the run.
    fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()?;
        let stdout = child.stdout.take();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
            if matches!(read, Some(Ok(1..))) {
                // Without a receiver the start was given up.
                let _sent = sender.send(line);
            }
        });
        let line = receiver.recv_timeout(PATIENCE).ok();
        let mut server = Self { child, addr: SocketAddr::from(([0; 4], 0)) };
        server.addr = line
            .and_then(|line| line.trim().parse().ok())
            .ok_or_else(|| io::Error::other("it did not say where it listens"))?;
        Ok(server)
    }

    pub(super) fn process(&self) -> Process {
        Process { name: "bare".to_owned(), pid: self.child.id() }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        // Where it has ended already, there is nothing to end.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Runs of both servers, as many of each unless one of them failed.
#[derive(Debug, Clone)]
pub(super) struct Comparison {
    pub(super) server: Vec<Outcome>,
    pub(super) bare: Vec<Outcome>,
}

/// Runs `load` on its targets and on the empty server at `bare`, `repeats` times each and in an
/// order that turns round every time.
///
/// # Errors
///
/// A run could not begin.
pub(super) fn compare(
    load: &Load,
    probes: &mut Probes,
    bare: (SocketAddr, Process),
    repeats: u16,
    interrupted: &AtomicBool,
    label: &str,
) -> Result<Comparison, BenchError> {
    let (addr, process) = bare;
    let mut load = load.clone();
    let mut bare_load = load.clone();
    bare_load.targets = vec![Target { authority: addr.to_string(), addr }];
    let mut bare_probes = Probes::new(vec![process], None);
    let mut comparison = Comparison { server: Vec::new(), bare: Vec::new() };
    for repeat in 0..repeats {
        load.first_key = MAX_KEYS / u64::from(repeats) * u64::from(repeat);
        let order = if repeat % 2 == 0 { [true, false] } else { [false, true] };
        for is_bare in order {
            let outcome = if is_bare {
                run::run(&bare_load, &mut bare_probes, interrupted, "bare")?
            } else {
                run::run(&load, probes, interrupted, label)?
            };
            let has_ended = outcome.ending != Ending::Complete;
            if is_bare {
                comparison.bare.push(outcome);
            } else {
                comparison.server.push(outcome);
            }
            if has_ended {
                return Ok(comparison);
            }
        }
    }
    Ok(comparison)
}

/// Medians of both servers and their ratios; what is not known is `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) repeats: usize,
    pub(super) server: Medians,
    pub(super) bare: Medians,
    /// Median CPU time of a call on the server over that on the empty one.
    pub(super) cpu_ratio: Option<f64>,
    /// The same for the pair of runs in which it was least, and most.
    pub(super) cpu_ratio_least: Option<f64>,
    pub(super) cpu_ratio_most: Option<f64>,
    pub(super) throughput_ratio: Option<f64>,
    pub(super) p50_ratio: Option<f64>,
    pub(super) p99_ratio: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Medians {
    pub(super) cpu_seconds_per_100k_calls: Option<f64>,
    pub(super) calls_per_second: Option<f64>,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

impl Comparison {
    /// All runs of the server as one, ended as the last run of either server did.
    pub(super) fn total(&self) -> Option<Outcome> {
        let (first, rest) = self.server.split_first()?;
        let mut total = first.clone();
        for outcome in rest {
            total.add(outcome);
        }
        if let Some(Outcome { ending: Ending::Lost(reason), .. }) = self.bare.last() {
            total.ending = Ending::Lost(format!("empty server: {reason}"));
        }
        Some(total)
    }

    pub(super) fn summary(&self) -> Summary {
        let (server, bare) = (Medians::of(&self.server), Medians::of(&self.bare));
        let pairs: Vec<f64> = self
            .server
            .iter()
            .zip(&self.bare)
            .filter_map(|(server, bare)| ratio(server.cpu_per_100k(), bare.cpu_per_100k()))
            .collect();
        Summary {
            repeats: self.server.len().min(self.bare.len()),
            server,
            bare,
            cpu_ratio: ratio(server.cpu_seconds_per_100k_calls, bare.cpu_seconds_per_100k_calls),
            cpu_ratio_least: pairs.iter().copied().reduce(f64::min),
            cpu_ratio_most: pairs.iter().copied().reduce(f64::max),
            throughput_ratio: ratio(server.calls_per_second, bare.calls_per_second),
            p50_ratio: ratio(server.p50_us, bare.p50_us),
            p99_ratio: ratio(server.p99_us, bare.p99_us),
        }
    }
}

impl Medians {
    fn of(outcomes: &[Outcome]) -> Self {
        let of = |value: &dyn Fn(&Outcome) -> Option<f64>| {
            median(outcomes.iter().filter_map(value).collect())
        };
        Self {
            cpu_seconds_per_100k_calls: of(&|outcome| outcome.cpu_per_100k()),
            calls_per_second: of(&|outcome| Some(outcome.calls_per_second())),
            p50_us: of(&|outcome| outcome.latency_us(0.5)),
            p99_us: of(&|outcome| outcome.latency_us(0.99)),
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (middle, is_odd) = (values.len() / 2, values.len() % 2 == 1);
    let upper = *values.get(middle)?;
    if is_odd { Some(upper) } else { Some(values[middle - 1].midpoint(upper)) }
}

fn ratio(value: Option<f64>, to: Option<f64>) -> Option<f64> {
    value.zip(to).map(|(value, to)| value / to).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests;
