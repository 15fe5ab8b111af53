//! `tollgate bench` as a process: the empty server it starts, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

fn tollgate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn bench(addr: &str, arguments: &[&str]) -> Command {
    let mut command = tollgate(&["bench", "--addr", addr, "--output", "json"]);
    command.args(arguments);
    command
}

/// Exit code and report.
fn result(output: &Output) -> (Option<i32>, Value) {
    let text = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|_| panic!("no report: {text}")))
}

/// An empty server and where it listens.
fn empty_server() -> (Child, String) {
    let mut child = tollgate(&["bench-bare"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut addr = String::new();
    let stdout: ChildStdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut addr).unwrap();
    (child, addr.trim().to_owned())
}

#[test]
fn a_server_is_compared_with_an_empty_one() {
    let (mut server, addr) = empty_server();
    let arguments = ["--compare", "--repeats", "1", "--warmup", "50ms", "--duration", "300ms"];
    let (code, report) = result(&bench(&addr, &arguments).output().unwrap());
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["compare"]["repeats"], 1);
    assert!(report["compare"]["cpu_ratio"].as_f64().unwrap() > 0.0, "{report:#}");
    assert_eq!(report["cpu"]["processes"][0]["pid"], server.id(), "found by its port");
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success(), "it ends with its input");
}

#[test]
fn a_signal_ends_a_run_with_its_report() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let run = bench(&addr, &["--connections", "1", "--warmup", "0s", "--duration", "1h"])
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.write_all(b"\0\0\0\x04\0\0\0\0\0").unwrap(); // its settings: none
    await_calls(&mut socket, 64);
    let signal = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(signal.success());
    let (code, report) = result(&run.wait_with_output().unwrap());
    assert_eq!((code, &report["ending"]), (Some(1), &"interrupted".into()), "{report:#}");
    assert_eq!(report["calls"]["unanswered"], 64);
}

/// Reads what a client sends until so many requests are there: a DATA frame each.
fn await_calls(socket: &mut TcpStream, mut count: usize) {
    let mut take = |bytes: usize| {
        let mut taken = vec![0; bytes];
        socket.read_exact(&mut taken).unwrap();
        taken
    };
    take(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len());
    while count > 0 {
        let head = take(9);
        take(usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]));
        count -= usize::from(head[3] == 0);
    }
}

#[test]
fn a_mistake_is_told_with_its_exit_code() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (arguments, code, text) in [
        (&["--rate", "0"][..], 2, "--rate is no number of calls"),
        (&[], 3, "nothing listens on"),
        (&["--warmup", "1s", "--requests", "1"], 2, "cannot be used with"),
    ] {
        let output = bench(&free, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(text) && output.stdout.is_empty(), "{said}");
    }
}
