//! What a run has measured.

use std::collections::BTreeMap;
use std::time::Duration;

use super::calls::Tally;
use super::usage::Process;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Complete,
    /// The time was up before all calls were sent.
    OutOfTime,
    Interrupted,
    /// A connection was lost, and why.
    Lost(String),
}

/// What a run has measured.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) elapsed: Duration,
    pub(super) ending: Ending,
    /// CPU time and resident bytes; `None` for a process that is gone.
    pub(super) processes: Vec<(Process, Option<Cost>)>,
    pub(super) redis: Option<RedisCost>,
    pub(super) client_cpu: Duration,
    /// Answers until so long after the start, warm-up included.
    pub(super) progress: Vec<(Duration, u64)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) cpu: Duration,
    pub(super) resident_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisCost {
    pub(super) cost: Cost,
    pub(super) commands: BTreeMap<String, u64>,
}

impl Outcome {
    /// CPU time of all that was watched; `None` if nothing was, or part of it is unknown.
    pub(super) fn server_cpu(&self) -> Option<Duration> {
        let redis = self.redis.as_ref().map_or(Duration::ZERO, |redis| redis.cost.cpu);
        if self.processes.is_empty() {
            return None;
        }
        self.processes.iter().try_fold(redis, |sum, (_, cost)| Some(sum + cost.as_ref()?.cpu))
    }

    /// CPU-seconds of all that was watched for 100,000 calls.
    pub(super) fn cpu_per_100k(&self) -> Option<f64> {
        self.server_cpu().and_then(|cpu| self.per_100k(cpu))
    }

    /// `cpu` in seconds for 100,000 answered calls.
    pub(super) fn per_100k(&self, cpu: Duration) -> Option<f64> {
        let calls = self.tally.answered();
        (calls > 0).then(|| cpu.as_secs_f64() * 1e5 / calls as f64)
    }

    pub(super) fn calls_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.tally.answered() as f64 / seconds } else { 0.0 }
    }

    /// Microseconds within which this part of the calls was answered; `None` without an answer.
    pub(super) fn latency_us(&self, quantile: f64) -> Option<f64> {
        let latency = &self.tally.latency;
        (!latency.is_empty()).then(|| latency.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// Adds a later run of the same load.
    pub(super) fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.elapsed += other.elapsed;
        self.client_cpu += other.client_cpu;
        if self.ending == Ending::Complete {
            self.ending.clone_from(&other.ending);
        }
        for ((_, sum), (_, cost)) in self.processes.iter_mut().zip(&other.processes) {
            *sum = sum.zip(*cost).map(|(sum, cost)| sum.plus(cost));
        }
        if let (Some(sum), Some(cost)) = (&mut self.redis, &other.redis) {
            sum.cost = sum.cost.plus(cost.cost);
            for (command, calls) in &cost.commands {
                *sum.commands.entry(command.clone()).or_default() += calls;
            }
        }
    }
}

impl Cost {
    /// Times add up; memory is the later one's.
    fn plus(self, later: Self) -> Self {
        Self { cpu: self.cpu + later.cpu, ..later }
    }
}

#[cfg(test)]
mod tests;
