//! The result of a bench: text, JSON, or a row of a table.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::compare::Summary;
use super::load::Load;
use super::outcome::{Cost, Ending, Outcome};

/// The result as JSON has it; times carry their unit, and what is not known is `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    label: String,
    addr: Vec<String>,
    connections: usize,
    in_flight: usize,
    descriptors: usize,
    /// Calls per second asked for; `None` in the closed loop.
    rate: Option<f64>,
    ending: &'static str,
    ending_detail: Option<String>,
    seconds: f64,
    calls: Calls,
    calls_per_second: f64,
    latency_us: Latency,
    cpu: Cpu,
    redis: Option<RedisReport>,
    admitted: Option<Admitted>,
    compare: Option<Summary>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Calls {
    answered: u64,
    ok: u64,
    over_limit: u64,
    errors: u64,
    first_error: Option<String>,
    unanswered: u64,
    unsent: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Latency {
    mean: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    max: Option<f64>,
}

/// CPU-seconds for 100,000 answered calls.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Cpu {
    processes: Vec<ProcessReport>,
    /// Processes and Redis.
    seconds_per_100k_calls: Option<f64>,
    client_seconds_per_100k_calls: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ProcessReport {
    name: String,
    pid: u32,
    #[serde(flatten)]
    cost: CostReport,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct CostReport {
    seconds: Option<f64>,
    seconds_per_100k_calls: Option<f64>,
    resident_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RedisReport {
    #[serde(flatten)]
    cost: CostReport,
    /// Commands for 1,000 answered calls, those that scripts ran included.
    commands_per_1000_calls: Option<f64>,
    by_command: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Admitted {
    expected: u64,
    got: u64,
}

impl Report {
    pub(super) fn new(
        label: &str,
        load: &Load,
        outcome: &Outcome,
        expect_admitted: Option<u64>,
        compare: Option<Summary>,
    ) -> Self {
        let tally = &outcome.tally;
        let mean = Some(tally.latency.mean() / 1e3).filter(|_| !tally.latency.is_empty());
        let (ending, ending_detail) = match &outcome.ending {
            Ending::Complete => ("complete", None),
            Ending::OutOfTime => ("out_of_time", None),
            Ending::Interrupted => ("interrupted", None),
            Ending::Lost(reason) => ("lost", Some(reason.clone())),
        };
        let processes = outcome.processes.iter().map(|(process, cost)| ProcessReport {
            name: process.name.clone(),
            pid: process.pid,
            cost: cost.map_or_else(CostReport::default, |cost| CostReport::new(cost, outcome)),
        });
        Self {
            label: label.to_owned(),
            addr: load.targets.iter().map(|target| target.authority.clone()).collect(),
            connections: load.connections,
            in_flight: load.in_flight,
            descriptors: load.question.descriptors,
            rate: load.pace.rate(),
            ending,
            ending_detail,
            seconds: outcome.elapsed.as_secs_f64(),
            calls: Calls {
                answered: tally.answered(),
                ok: tally.ok,
                over_limit: tally.over_limit,
                errors: tally.errors,
                first_error: tally.first_error.clone(),
                unanswered: tally.unanswered,
                unsent: tally.unsent,
            },
            calls_per_second: outcome.calls_per_second(),
            latency_us: Latency {
                mean,
                p50: outcome.latency_us(0.5),
                p90: outcome.latency_us(0.9),
                p99: outcome.latency_us(0.99),
                p999: outcome.latency_us(0.999),
                max: outcome.latency_us(1.0),
            },
            cpu: Cpu {
                processes: processes.collect(),
                seconds_per_100k_calls: outcome.cpu_per_100k(),
                client_seconds_per_100k_calls: outcome.per_100k(outcome.client_cpu),
            },
            redis: RedisReport::new(outcome),
            admitted: expect_admitted.map(|expected| Admitted { expected, got: tally.ok }),
            compare,
        }
    }

    /// 0 if all is as it should be; 1 if calls failed or too many or few were admitted; 3 if the
    /// server went away.
    pub(super) fn exit_code(&self) -> u8 {
        if self.ending == "lost" {
            return 3;
        }
        let is_exact = self.admitted.is_none_or(|admitted| admitted.expected == admitted.got);
        u8::from(!is_exact || self.calls.errors > 0 || self.calls.unanswered > 0)
    }

    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// Label, CPU-seconds for 100,000 calls, their ratio to the empty server (least–most), Redis
    /// commands for 1,000 calls, calls per second, p50 and p99 with their ratios, and failed calls
    /// of all runs.
    pub(super) fn write_markdown(&self, out: &mut impl Write) -> io::Result<()> {
        let compare = self.compare.as_ref();
        let cpu = compare
            .map_or(self.cpu.seconds_per_100k_calls, |c| c.server.cpu_seconds_per_100k_calls);
        let range = compare
            .and_then(|c| c.cpu_ratio_least.zip(c.cpu_ratio_most))
            .map_or_else(String::new, |(least, most)| format!(" ({least:.2}–{most:.2})"));
        let commands = self.redis.as_ref().map_or_else(
            || ABSENT.to_owned(),
            |redis| {
                let list: Vec<_> = redis
                    .by_command
                    .iter()
                    .map(|(name, calls)| format!("{name} {calls:.0}"))
                    .collect();
                list.join(", ")
            },
        );
        let rate = compare.map_or(Some(self.calls_per_second), |c| c.server.calls_per_second);
        let with_ratio = |own: Option<f64>, median: Option<f64>, ratio: Option<f64>| {
            let value = fixed(if compare.is_some() { median } else { own }, 0);
            ratio.map_or_else(|| value.clone(), |ratio| format!("{value} ({ratio:.2})"))
        };
        writeln!(
            out,
            "| {} | {} | {}{range} | {commands} | {} | {} | {} | {} |",
            self.label,
            fixed(cpu, 3),
            fixed(compare.and_then(|c| c.cpu_ratio), 2),
            fixed(rate, 0),
            with_ratio(
                self.latency_us.p50,
                compare.and_then(|c| c.server.p50_us),
                compare.and_then(|c| c.p50_ratio)
            ),
            with_ratio(
                self.latency_us.p99,
                compare.and_then(|c| c.server.p99_us),
                compare.and_then(|c| c.p99_ratio)
            ),
            self.failed(),
        )
    }

    fn failed(&self) -> String {
        match (self.calls.errors + self.calls.unanswered, &self.calls.first_error) {
            (0, _) => "0".to_owned(),
            (failed, None) => failed.to_string(),
            (failed, Some(error)) => format!("{failed} ({})", error.replace(['|', '\n'], " ")),
        }
    }

    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let Calls { answered, ok, over_limit, errors, .. } = self.calls;
        writeln!(out, "{}: {} on {}", self.label, self.pace(), self.addr.join(", "))?;
        writeln!(
            out,
            "  calls       {answered} in {:.2} s ({:.0} a second)",
            self.seconds, self.calls_per_second
        )?;
        writeln!(out, "  answers     {ok} OK, {over_limit} over limit, {errors} errors")?;
        if let Some(error) = &self.calls.first_error {
            writeln!(out, "  first error {error}")?;
        }
        if self.calls.unanswered > 0 {
            writeln!(
                out,
                "  unanswered  {} calls had no answer at the end",
                self.calls.unanswered
            )?;
        }
        if self.calls.unsent > 0 {
            let unsent = self.calls.unsent;
            writeln!(
                out,
                "  behind      {unsent} calls were due and not sent, the rate is too high"
            )?;
        }
        let Latency { p50, p90, p99, p999, max, .. } = self.latency_us;
        writeln!(
            out,
            "  latency     p50 {}, p90 {}, p99 {}, p99.9 {}, max {} µs",
            fixed(p50, 0),
            fixed(p90, 0),
            fixed(p99, 0),
            fixed(p999, 0),
            fixed(max, 0)
        )?;
        self.write_costs(out)?;
        if let Some(Admitted { expected, got }) = self.admitted {
            let verdict = if expected == got { "as expected" } else { "NOT as expected" };
            writeln!(out, "  admitted    {got} of {expected}, {verdict}")?;
        }
        if let Some(compare) = &self.compare {
            write_comparison(compare, out)?;
        }
        match (self.ending, &self.ending_detail) {
            ("lost", Some(detail)) => writeln!(out, "  ended early {detail}"),
            ("interrupted", _) => writeln!(out, "  ended early interrupted"),
            ("out_of_time", _) => {
                writeln!(out, "  ended early time was up before all calls were sent")
            }
            _ => Ok(()),
        }
    }

    fn pace(&self) -> String {
        let in_flight = self.in_flight;
        let loop_ = match self.rate {
            Some(rate) => format!("{rate} calls/s, at most {in_flight} in flight"),
            None => format!("{in_flight} in flight"),
        };
        format!("{loop_} over {} connections", self.connections)
    }

    fn write_costs(&self, out: &mut impl Write) -> io::Result<()> {
        let mut line = |name: &str, per_100k: Option<f64>, memory: Option<u64>| {
            let memory =
                memory.map_or_else(String::new, |bytes| format!(", {} MiB", bytes / (1024 * 1024)));
            writeln!(out, "  cpu         {name}: {} s per 100k calls{memory}", fixed(per_100k, 3))
        };
        for process in &self.cpu.processes {
            let name = format!("{} ({})", process.name, process.pid);
            line(&name, process.cost.seconds_per_100k_calls, process.cost.resident_bytes)?;
        }
        if let Some(redis) = &self.redis {
            line("redis", redis.cost.seconds_per_100k_calls, redis.cost.resident_bytes)?;
        }
        line("sum", self.cpu.seconds_per_100k_calls, None)?;
        line("bench itself", self.cpu.client_seconds_per_100k_calls, None)?;
        if let Some(redis) = &self.redis {
            let list: Vec<_> =
                redis.by_command.iter().map(|(name, calls)| format!("{name} {calls:.1}")).collect();
            let sum = fixed(redis.commands_per_1000_calls, 1);
            writeln!(out, "  redis       {sum} commands per 1000 calls: {}", list.join(", "))?;
        }
        Ok(())
    }
}

impl CostReport {
    fn new(cost: Cost, outcome: &Outcome) -> Self {
        Self {
            seconds: Some(cost.cpu.as_secs_f64()),
            seconds_per_100k_calls: outcome.per_100k(cost.cpu),
            resident_bytes: Some(cost.resident_bytes),
        }
    }
}

impl RedisReport {
    fn new(outcome: &Outcome) -> Option<Self> {
        let redis = outcome.redis.as_ref()?;
        let calls = outcome.tally.answered();
        let per_1000 = |commands: u64| commands as f64 * 1e3 / calls as f64;
        let by_command: BTreeMap<String, f64> = redis
            .commands
            .iter()
            .filter(|_| calls > 0)
            .map(|(name, commands)| (name.clone(), per_1000(*commands)))
            .collect();
        Some(Self {
            cost: CostReport::new(redis.cost, outcome),
            commands_per_1000_calls: (calls > 0).then(|| by_command.values().sum()),
            by_command,
        })
    }
}

const ABSENT: &str = "–";

fn fixed(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.digits$}"))
}

fn write_comparison(compare: &Summary, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  compared    medians of {} runs each, in turn", compare.repeats)?;
    for (name, medians) in [("server", compare.server), ("empty", compare.bare)] {
        writeln!(
            out,
            "    {name:<9} {} s per 100k calls, {} calls/s, p50 {} µs, p99 {} µs",
            fixed(medians.cpu_seconds_per_100k_calls, 3),
            fixed(medians.calls_per_second, 0),
            fixed(medians.p50_us, 0),
            fixed(medians.p99_us, 0)
        )?;
    }
    writeln!(
        out,
        "    ratio     cpu {} ({}–{}), calls/s {}, p50 {}, p99 {}",
        fixed(compare.cpu_ratio, 2),
        fixed(compare.cpu_ratio_least, 2),
        fixed(compare.cpu_ratio_most, 2),
        fixed(compare.throughput_ratio, 2),
        fixed(compare.p50_ratio, 2),
        fixed(compare.p99_ratio, 2)
    )
}

#[cfg(test)]
mod tests;
