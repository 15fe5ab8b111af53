//! What is watched during a run, and its cost between two moments.

use super::BenchError;
use super::outcome::{Cost, RedisCost};
use super::redis_info::{Reading, RedisInfo};
use super::usage::{Process, Usage};

/// Processes and the Redis whose cost is told.
pub(super) struct Probes {
    processes: Vec<Process>,
    redis: Option<RedisInfo>,
}

/// The state of all that is watched, at one moment.
pub(super) struct Snapshot {
    processes: Vec<Option<Usage>>,
    redis: Option<Reading>,
    client: Option<Usage>,
}

/// Costs between two moments.
pub(super) struct Costs {
    /// `None` for a process that is gone.
    pub(super) processes: Vec<(Process, Option<Cost>)>,
    pub(super) redis: Option<RedisCost>,
    pub(super) client: Cost,
}

impl Probes {
    pub(super) fn new(processes: Vec<Process>, redis: Option<RedisInfo>) -> Self {
        Self { processes, redis }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// # Errors
    ///
    /// A process is gone, or Redis is.
    pub(super) fn first(&mut self) -> Result<Snapshot, BenchError> {
        Ok(Snapshot {
            redis: self.redis.as_mut().map(RedisInfo::read).transpose()?,
            processes: self
                .processes
                .iter()
                .map(|process| process.usage().map(Some))
                .collect::<Result<_, _>>()?,
            client: Process::this().usage().ok(),
        })
    }

    /// The costs since `before`; what is gone by now has none.
    pub(super) fn since(&mut self, before: &Snapshot) -> Costs {
        let cost = |now: Option<Usage>, then: Option<Usage>| {
            now.zip(then).map(|(now, then)| Cost {
                cpu: now.cpu_since(&then),
                resident_bytes: now.resident_bytes,
            })
        };
        let client = cost(Process::this().usage().ok(), before.client).unwrap_or_default();
        let processes = self
            .processes
            .iter()
            .zip(&before.processes)
            .map(|(process, then)| (process.clone(), cost(process.usage().ok(), *then)))
            .collect();
        let redis =
            self.redis.as_mut().and_then(|redis| redis.read().ok()).zip(before.redis.as_ref());
        let redis = redis.map(|(now, then)| RedisCost {
            cost: Cost { cpu: now.cpu_since(then), resident_bytes: now.resident_bytes },
            commands: now.calls_since(then),
        });
        Costs { processes, redis, client }
    }
}
