//! What Redis did during a run, from its own `INFO`.

use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(3);

/// Why Redis cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum RedisInfoError {
    #[error("--redis is no address, expected one like redis://127.0.0.1:6379: {0}")]
    Url(redis::RedisError),
    #[error("the server of --redis does not answer INFO: {0}")]
    Ask(redis::RedisError),
    #[error("the INFO of --redis has no {0}")]
    Lacks(&'static str),
}

/// A connection that asks for `INFO`.
pub(super) struct RedisInfo {
    connection: redis::Connection,
}

/// `INFO` at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    cpu: Duration,
    pub(super) resident_bytes: u64,
    calls: BTreeMap<String, u64>,
}

impl RedisInfo {
    /// # Errors
    ///
    /// The URL is no address, or Redis does not answer there.
    pub(super) fn open(url: &str) -> Result<Self, RedisInfoError> {
        let client = redis::Client::open(url).map_err(RedisInfoError::Url)?;
        let connection =
            client.get_connection_with_timeout(PATIENCE).map_err(RedisInfoError::Ask)?;
        connection.set_read_timeout(Some(PATIENCE)).map_err(RedisInfoError::Ask)?;
        Ok(Self { connection })
    }

    /// # Errors
    ///
    /// Redis is gone, or says less than it should.
    pub(super) fn read(&mut self) -> Result<Reading, RedisInfoError> {
        let text: String = redis::cmd("INFO")
            .arg("all")
            .query(&mut self.connection)
            .map_err(RedisInfoError::Ask)?;
        Reading::parse(&text)
    }
}

impl Reading {
    fn parse(text: &str) -> Result<Self, RedisInfoError> {
        let fields: BTreeMap<&str, &str> =
            text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let seconds = |name: &'static str| {
            fields
                .get(name)
                .and_then(|value| value.parse().ok())
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or(RedisInfoError::Lacks(name))
        };
        let calls = fields
            .iter()
            .filter_map(|(name, value)| {
                let command = name.strip_prefix("cmdstat_").filter(|command| *command != "info")?;
                let calls = value.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
                Some((command.to_owned(), calls))
            })
            .collect();
        Ok(Self {
            cpu: seconds("used_cpu_user")? + seconds("used_cpu_sys")?,
            resident_bytes: fields
                .get("used_memory_rss")
                .and_then(|value| value.parse().ok())
                .ok_or(RedisInfoError::Lacks("used_memory_rss"))?,
            calls,
        })
    }

    pub(super) fn cpu_since(&self, earlier: &Self) -> Duration {
        self.cpu.saturating_sub(earlier.cpu)
    }

    /// Commands run since `earlier`, those that scripts ran included.
    pub(super) fn calls_since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        self.calls
            .iter()
            .filter_map(|(command, calls)| {
                let before = earlier.calls.get(command).copied().unwrap_or_default();
                calls
                    .checked_sub(before)
                    .filter(|calls| *calls > 0)
                    .map(|calls| (command.clone(), calls))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# CPU\r\nused_cpu_sys:1.250000\r\nused_cpu_user:2.500000\r\n\
        # Memory\r\nused_memory_rss:4096\r\n# Commandstats\r\n\
        cmdstat_evalsha:calls=10,usec=99,usec_per_call=9.90\r\n\
        cmdstat_info:calls=1,usec=9\r\ncmdstat_config|get:calls=3,usec=9\r\n";
    const AFTER: &str = "used_cpu_sys:1.500000\r\nused_cpu_user:2.750000\r\nused_memory_rss:8192\r\n\
        cmdstat_evalsha:calls=60,usec=500\r\ncmdstat_incrby:calls=7,usec=9\r\n\
        cmdstat_info:calls=2,usec=9\r\ncmdstat_config|get:calls=3,usec=9\r\n";

    #[test]
    fn the_difference_is_what_happened_in_between() {
        let (before, after) = (Reading::parse(BEFORE).unwrap(), Reading::parse(AFTER).unwrap());
        assert_eq!(after.cpu_since(&before), Duration::from_millis(500));
        assert_eq!(after.resident_bytes, 8192);
        let calls = after.calls_since(&before);
        assert_eq!(calls, BTreeMap::from([("evalsha".to_owned(), 50), ("incrby".to_owned(), 7)]));
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = BEFORE.replace("used_cpu_user", "used_cpu");
        assert!(Reading::parse(&text).unwrap_err().to_string().contains("used_cpu_user"));
        assert!(RedisInfo::open("nonsense").err().unwrap().to_string().contains("redis://"));
    }
}
