//! A private `redis-server` on a free port, in a folder of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tollgate::clock::Stopwatch;
use tollgate::settings::{RedisUrl, StoreUrl};

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Another program may take the port in the moment before Redis does.
const ATTEMPTS: usize = 10;

/// Ends with the value.
pub(crate) struct RedisServer {
    child: Option<Child>,
    port: u16,
    /// Holds the port until the first start.
    reservation: Option<Socket>,
    folder: TempDir,
    arguments: Vec<String>,
    /// For the tests' own commands: `default:password@`, or nothing.
    credentials: String,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts with further arguments, such as `["--requirepass", "secret"]`.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        for _ in 0..ATTEMPTS {
            let mut server = Self::absent_with(arguments);
            if server.try_launch() {
                return server;
            }
        }
        panic!("no port for redis-server in {ATTEMPTS} attempts");
    }

    /// Takes a port and a folder, and starts nothing yet.
    pub(crate) fn absent() -> Self {
        Self::absent_with(&[])
    }

    fn absent_with(arguments: &[&str]) -> Self {
        let password = arguments.iter().skip_while(|word| **word != "--requirepass").nth(1);
        let (reservation, port) = reserve_port();
        Self {
            child: None,
            port,
            reservation: Some(reservation),
            folder: TempDir::new().unwrap(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            credentials: password.map_or_else(String::new, |it| format!("default:{it}@")),
        }
    }

    /// Starts it, anew if it was killed, on the same port and without what it held.
    pub(crate) fn launch(&mut self) {
        assert!(self.try_launch(), "something else took port {}", self.port);
    }

    fn try_launch(&mut self) -> bool {
        self.reservation = None;
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(self.folder.path())
            .arg("--unixsocket")
            .arg(self.socket())
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => self.child = Some(child),
            Err(error) => panic!(
                "these tests need `redis-server` 6.2 or newer on the PATH ({error}): install it \
                 with `apt-get install redis-server`, `dnf install redis` or `brew install redis`"
            ),
        }
        let watch = Stopwatch::start();
        while !self.is_answering() {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            assert!(watch.elapsed() < START_TIMEOUT, "redis-server did not answer in time");
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Whether this server answers, and no other on its port.
    fn is_answering(&self) -> bool {
        let pid = self.child.as_ref().unwrap().id().to_string();
        self.try_connection().is_some_and(|_| self.info("process_id") == Some(pid))
    }

    pub(crate) fn url(&self) -> RedisUrl {
        self.url_as(&self.credentials)
    }

    /// `credentials`: `user:password@`.
    pub(crate) fn url_as(&self, credentials: &str) -> RedisUrl {
        redis_url(&format!("redis://{credentials}127.0.0.1:{}/", self.port))
    }

    pub(crate) fn unix_url(&self) -> RedisUrl {
        redis_url(&format!("unix://{}", self.socket().display()))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn try_connection(&self) -> Option<redis::Connection> {
        let mut connection =
            redis::Client::open(self.url().expose()).unwrap().get_connection().ok()?;
        redis::cmd("PING").query::<String>(&mut connection).ok().map(|_| connection)
    }

    /// For the test's own commands.
    pub(crate) fn connection(&self) -> redis::Connection {
        self.try_connection().unwrap()
    }

    pub(crate) fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut self.connection()).unwrap()
    }

    /// A field of `INFO`, such as `connected_clients`.
    pub(crate) fn info(&self, field: &str) -> Option<String> {
        let info: String = self.run(&["INFO", "everything"]);
        let prefix = format!("{field}:");
        info.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    }

    /// How often `command` ran.
    pub(crate) fn calls_of(&self, command: &str) -> u64 {
        let stats = self.info(&format!("cmdstat_{command}")).unwrap_or_default();
        let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops it in its tracks; the kernel still takes connections for it.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `text` as the settings take it.
pub(crate) fn redis_url(text: &str) -> RedisUrl {
    match text.parse() {
        Ok(StoreUrl::Redis(url)) => url,
        other => panic!("{text} is {other:?}"),
    }
}

/// A port that is bound, so that nobody else gets it, and refuses connections.
fn reserve_port() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket_ipv4().unwrap();
    (socket, address.port())
}
