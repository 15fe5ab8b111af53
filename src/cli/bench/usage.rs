//! What processes of this machine cost, from `/proc`.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// A process whose cost is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) pid: u32,
}

/// What a process has cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    /// User and system time, in steps of the kernel's accounting tick.
    cpu: Duration,
    /// Time on a core of the threads that live, to the nanosecond; those that ended took theirs
    /// with them.
    threads: Option<Duration>,
    pub(super) resident_bytes: u64,
}

/// Why the cost of a process is not known.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the cost of process {pid} ({name}), has it ended?")]
pub struct UsageError {
    name: String,
    pid: u32,
}

impl Process {
    pub(super) fn this() -> Self {
        Self { name: "bench".to_owned(), pid: std::process::id() }
    }

    /// # Errors
    ///
    /// The process has ended, or there is no `/proc` here.
    pub(super) fn usage(&self) -> Result<Usage, UsageError> {
        let folder = Path::new("/proc").join(self.pid.to_string());
        let stat = fs::read_to_string(folder.join("stat")).ok();
        stat.and_then(|stat| Usage::parse(&stat))
            .map(|usage| Usage { threads: threads(&folder), ..usage })
            .ok_or_else(|| UsageError { name: self.name.clone(), pid: self.pid })
    }
}

impl Usage {
    fn parse(stat: &str) -> Option<Self> {
        // The name before the bracket may hold anything; numbers count from the state after it.
        const USER_TICKS: usize = 11;
        const SYSTEM_TICKS: usize = 12;
        const RESIDENT_PAGES: usize = 21;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let ticks = number(USER_TICKS)? + number(SYSTEM_TICKS)?;
        let tick =
            Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
        Some(Self {
            cpu: tick.saturating_mul(u32::try_from(ticks).ok()?),
            threads: None,
            resident_bytes: number(RESIDENT_PAGES)? * rustix::param::page_size() as u64,
        })
    }

    /// CPU time since `earlier`: the finer of the two accounts as long as they agree, which
    /// they do not where threads ended in between.
    pub(super) fn cpu_since(&self, earlier: &Self) -> Duration {
        const TICKS: Duration = Duration::from_millis(20);
        let coarse = self.cpu.saturating_sub(earlier.cpu);
        let fine = self.threads.zip(earlier.threads).and_then(|(now, then)| now.checked_sub(then));
        fine.filter(|fine| fine.abs_diff(coarse) <= TICKS).unwrap_or(coarse)
    }
}

/// The sum over the threads that live; the first number of `schedstat` is nanoseconds.
fn threads(folder: &Path) -> Option<Duration> {
    let mut sum = 0;
    for thread in fs::read_dir(folder.join("task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(sum))
}

/// The processes that listen on `addr`, as far as this user may know; none for another machine's.
pub(super) fn listeners(addr: SocketAddr) -> Vec<Process> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, addr))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    if inodes.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<Process> = processes
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            let pid = folder.file_name()?.to_str()?.parse().ok()?;
            let listens = fs::read_dir(folder.join("fd")).ok()?.flatten().any(|file| {
                fs::read_link(file.path())
                    .is_ok_and(|link| inodes.iter().any(|inode| link == Path::new(inode)))
            });
            let name = fs::read_to_string(folder.join("comm")).ok()?.trim().to_owned();
            listens.then_some(Process { name, pid })
        })
        .collect();
    found.sort_unstable_by_key(|process| process.pid);
    found
}

/// Inodes of the sockets in `table` that listen where a connection to `addr` would arrive.
fn listening_inodes(table: &str, addr: SocketAddr) -> Vec<u64> {
    const LISTEN: &str = "0A";
    const STATE: usize = 3;
    const INODE: usize = 9;
    let is_listener = |line: &str| -> Option<u64> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.rsplit_once(':')?;
        let ip = parse_ip(ip)?;
        let reaches = ip.is_unspecified() || ip == addr.ip();
        let is_it = *fields.get(STATE)? == LISTEN
            && u16::from_str_radix(port, 16).ok()? == addr.port()
            && reaches;
        is_it.then_some(fields.get(INODE)?.parse().ok()?)
    };
    table.lines().skip(1).filter_map(is_listener).collect()
}

/// An address as the kernel prints it: words of the machine's byte order.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let words: Option<Vec<u8>> = (0..text.len() / 8)
        .map(|word| u32::from_str_radix(text.get(word * 8..word * 8 + 8)?, 16).ok())
        .map(|word| word.map(u32::to_ne_bytes))
        .try_fold(Vec::new(), |mut bytes, word| {
            bytes.extend_from_slice(&word?);
            Some(bytes)
        });
    let words = words?;
    if let Ok(four) = <[u8; 4]>::try_from(&words[..]) {
        return Some(IpAddr::from(four));
    }
    let sixteen = <[u8; 16]>::try_from(&words[..]).ok()?;
    Some(IpAddr::from(sixteen).to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_is_found_by_its_port() {
        let here = std::process::id();
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(addr).unwrap();
            let found = listeners(listener.local_addr().unwrap());
            assert!(found.iter().any(|process| process.pid == here), "{found:?}");
        }
        let wild = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap();
        assert_eq!(listeners(wild), [], "it is closed again");
    }

    #[test]
    fn only_listeners_that_a_connection_reaches_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
             1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1\n\
             2: 0200007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1\n\
             3: 0100007F:1F91 0100007F:9000 01 00000000:00000000 00:00000000 00000000     0        0 14 1\n\
             4: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15 1\n";
        if cfg!(target_endian = "little") {
            assert_eq!(listening_inodes(table, "127.0.0.1:8081".parse().unwrap()), [11, 12]);
        }
    }

    #[test]
    fn a_strange_name_does_not_shift_the_numbers() {
        let stat = "7 (a) b) 1 2) S 1 7 7 0 -1 4 100 0 0 0 150 50 0 0 20 0 3 0 99 1000 5 0";
        let usage = Usage::parse(stat).unwrap();
        assert_eq!(
            usage.cpu,
            Duration::from_secs(1) * 200 / rustix::param::clock_ticks_per_second() as u32
        );
        assert_eq!(usage.resident_bytes, 5 * rustix::param::page_size() as u64);
        assert_eq!(Usage::parse("7 (cut"), None);
    }

    #[test]
    fn the_finer_account_counts_while_both_agree() {
        let at = |cpu, threads: Option<u64>| Usage {
            cpu: Duration::from_millis(cpu),
            threads: threads.map(Duration::from_micros),
            resident_bytes: 0,
        };
        for (then, now, want) in [
            (at(100, Some(100_000)), at(200, Some(204_321)), 104_321),
            (at(100, Some(100_000)), at(200, Some(130_000)), 100_000), // a thread ended
            (at(100, Some(100_000)), at(200, Some(50_000)), 100_000),
            (at(100, None), at(200, Some(50_000)), 100_000),
        ] {
            assert_eq!(now.cpu_since(&then), Duration::from_micros(want));
        }
    }

    #[test]
    fn this_process_has_a_cost_and_an_ended_one_has_none() {
        assert!(Process::this().usage().unwrap().resident_bytes > 0);
        let gone = Process { name: "gone".to_owned(), pid: u32::MAX };
        let error = gone.usage().unwrap_err().to_string();
        assert!(error.contains("gone") && error.contains(&u32::MAX.to_string()), "{error}");
    }
}
