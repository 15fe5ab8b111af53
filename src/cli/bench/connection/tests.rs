//! Peers that are no gRPC servers, and settings that the load does not fit.

use std::io::Read;
use std::net::TcpListener;
use std::thread;

use super::*;

/// A peer that reads a little and then says `words`.
fn peer(words: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut heard = [0; 64];
        let _heard = socket.read(&mut heard);
        let _said = socket.write_all(words);
    });
    addr
}

#[track_caller]
fn check(addr: SocketAddr, want: &str) {
    let error = Connection::open(addr).err().unwrap().to_string();
    assert!(error.starts_with(&addr.to_string()) || error.contains("nothing listens"), "{error}");
    assert!(error.contains(want), "`{error}` lacks `{want}`");
}

#[test]
fn other_peers_are_told_apart() {
    check(peer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "speaks HTTP/1");
    check(peer(b"\x15\x03\x03\x00\x02\x02\x46"), "speaks TLS");
    check(peer(b"-ERR unknown command 'PRI'\r\n"), "does not speak HTTP/2");
    check(peer(b""), "closed the connection");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check(free, "nothing listens on");
}

#[test]
fn settings_bound_the_load() {
    // Ten calls at once, of a hundred bytes.
    let addr = peer(b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\0\x0a\0\x04\0\0\0\x64");
    let connection = Connection::open(addr).unwrap();
    assert_eq!(connection.peer.max_streams, 10);
    assert_eq!(connection.allow(10, true, 100).unwrap(), 10);
    assert_eq!(connection.allow(64, false, 100).unwrap(), 10);
    let error = connection.allow(64, true, 100).unwrap_err().to_string();
    assert!(error.contains("10 calls") && error.contains("needs 64"), "{error}");
    let error = connection.allow(10, true, 101).unwrap_err().to_string();
    assert!(error.contains("100 bytes") && error.contains("have 101"), "{error}");
}

#[test]
fn credit_is_given_back_before_it_ends() {
    let (mut credit, mut out) = (Credit::default(), Vec::new());
    let mut used = 0;
    while out.is_empty() {
        credit.use_up(16_384, &mut out);
        used += 16_384_u32;
    }
    assert!(used < WINDOW / 2);
    assert_eq!(frame::number(&out[frame::HEAD_BYTES..]), Some(used));
}
