//! The built binary: runs that end by themselves, and servers on free ports.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate::clock::Stopwatch;

/// Nothing here takes this long unless it hangs.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// A run with these variables and no others.
pub(crate) fn command(arguments: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear().envs(env.iter().copied()).stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    run_with(arguments, &[])
}

pub(crate) fn run_with(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    command(arguments, env).output().unwrap()
}

/// Asks again and again until `is_so`.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let watch = Stopwatch::start();
    while !is_so() {
        assert!(watch.elapsed() < HANG, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running server; killed with the value.
pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// Flags for free ports of this machine.
pub(crate) const FREE_PORTS: [&str; 6] =
    ["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"];

impl Process {
    /// `tollgate serve` on free ports.
    #[track_caller]
    pub(crate) fn serve(arguments: &[&str]) -> Self {
        Self::serve_with(&[&["serve"], &FREE_PORTS[..], arguments].concat(), &[])
    }

    /// A server that listens where its arguments and variables say.
    #[track_caller]
    pub(crate) fn serve_with(arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let mut child =
            command(arguments, env).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap());
        let reader = Some(std::thread::spawn({
            let log = Arc::clone(&log);
            move || read(lines, &log)
        }));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self { child, log, reader, grpc: any, http: any, admin: any };
        let mut found = [None; 3];
        wait_until("three listeners, or the end of the process", || {
            let log = process.log();
            found = ["grpc", "http", "admin"].map(|name| listener(&log, name));
            found.iter().all(Option::is_some) || process.child.try_wait().unwrap().is_some()
        });
        let [Some(grpc), Some(http), Some(admin)] = found else {
            panic!("it does not listen:\n{}", process.log());
        };
        (process.grpc, process.http, process.admin) = (grpc, http, admin);
        process
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// How it ended and all that it said.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let mut status = None;
        wait_until("the end of the process", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        self.reader.take().unwrap().join().unwrap();
        (status.unwrap(), self.log())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read(mut lines: BufReader<ChildStderr>, log: &Mutex<String>) {
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        log.lock().unwrap().push_str(&std::mem::take(&mut line));
    }
}

/// Where a log says that `name` listens; on this machine if it is anywhere.
fn listener(log: &str, name: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once(&format!("listener=\"{name}\" addr="))?;
    let mut addr: SocketAddr = rest.lines().next()?.parse().ok()?;
    if addr.ip().is_unspecified() {
        addr.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    Some(addr)
}
