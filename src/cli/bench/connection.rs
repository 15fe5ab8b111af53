//! Opens a connection and learns what the peer is.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::frame::{self, ACK, Head, PREFACE, Reader, kind};
use crate::clock::Stopwatch;

/// How long a server may take to accept, and then to say its first word.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest uninterrupted wait for the peer, after which a run looks whether it is over.
pub(super) const NAP: Duration = Duration::from_millis(50);
/// Credit for replies that the peer gets at the start and whenever a quarter of it is used.
const WINDOW: u32 = 0x3fff_ffff;
const DEFAULT_WINDOW: u32 = 65_535;
/// Longest reply: no more is given to one call.
const CALL_WINDOW: u32 = 16 * 1024 * 1024;

mod setting {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// Why there is no connection to generate load on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("nothing listens on {addr}, start the server or name another --addr")]
    Refused { addr: SocketAddr },
    #[error("cannot connect to {addr}")]
    Io { addr: SocketAddr, source: io::Error },
    #[error("{addr} speaks TLS, name a gRPC port without TLS")]
    Tls { addr: SocketAddr },
    #[error("{addr} speaks HTTP/1, name the server's gRPC port")]
    Http1 { addr: SocketAddr },
    #[error("{addr} does not speak HTTP/2, name a gRPC port")]
    NotHttp2 { addr: SocketAddr },
    #[error(
        "{addr} closed the connection when it was spoken to in HTTP/2, name a gRPC port without TLS"
    )]
    Closed { addr: SocketAddr },
    #[error("{addr} accepted the connection and said nothing for {PATIENCE:?}")]
    Silent { addr: SocketAddr },
    #[error(
        "{addr} takes {allowed} calls at once on a connection and the load needs {wanted}, \
         raise --connections or lower --in-flight"
    )]
    TooFewStreams { addr: SocketAddr, allowed: u32, wanted: usize },
    #[error("{addr} takes calls of {allowed} bytes at first and the load's have {wanted}")]
    SmallWindow { addr: SocketAddr, allowed: u32, wanted: usize },
}

/// What the peer allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerSettings {
    pub(super) header_table_bytes: u32,
    pub(super) max_streams: u32,
    /// Bytes that each call may send before it is given more.
    pub(super) call_window: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self { header_table_bytes: 4096, max_streams: u32::MAX, call_window: DEFAULT_WINDOW }
    }
}

impl PeerSettings {
    fn take(&mut self, payload: &[u8]) {
        for (id, value) in frame::settings(payload) {
            match id {
                setting::HEADER_TABLE_SIZE => self.header_table_bytes = value,
                setting::MAX_CONCURRENT_STREAMS => self.max_streams = value,
                setting::INITIAL_WINDOW_SIZE => self.call_window = value,
                _ => {}
            }
        }
    }
}

/// A connection whose peer has introduced itself.
pub(super) struct Connection {
    pub(super) addr: SocketAddr,
    pub(super) socket: TcpStream,
    pub(super) reader: Reader,
    pub(super) peer: PeerSettings,
    pub(super) credit: Credit,
}

impl Connection {
    /// Connects and exchanges settings.
    ///
    /// # Errors
    ///
    /// Nothing listens there, or what does is no HTTP/2 server without TLS.
    pub(super) fn open(addr: SocketAddr) -> Result<Self, ConnectError> {
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::Refused { addr },
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => ConnectError::Closed { addr },
            _ => ConnectError::Io { addr, source },
        };
        let mut socket = TcpStream::connect_timeout(&addr, PATIENCE).map_err(io)?;
        socket.set_nodelay(true).map_err(io)?;
        socket.set_read_timeout(Some(NAP)).map_err(io)?;
        socket.set_write_timeout(Some(NAP)).map_err(io)?;
        socket.write_all(&greeting()).map_err(io)?;

        let (mut reader, watch) = (Reader::new(), Stopwatch::start());
        loop {
            match reader.read(&mut socket) {
                Ok(0) => return Err(ConnectError::Closed { addr }),
                Ok(_) => {}
                Err(error) if is_nap(&error) => {
                    if watch.elapsed() > PATIENCE {
                        return Err(ConnectError::Silent { addr });
                    }
                    continue;
                }
                Err(error) => return Err(io(error)),
            }
            refuse_other_protocols(addr, reader.pending())?;
            let Ok(first) = reader.next() else { return Err(ConnectError::NotHttp2 { addr }) };
            if let Some((_, payload)) = first {
                let mut peer = PeerSettings::default();
                peer.take(reader.bytes(payload));
                let mut ack = Vec::new();
                frame::put(&mut ack, Head { kind: kind::SETTINGS, flags: ACK, stream: 0 }, &[]);
                socket.write_all(&ack).map_err(io)?;
                return Ok(Self { addr, socket, reader, peer, credit: Credit::default() });
            }
        }
    }

    /// Calls that this connection may keep in flight out of `wanted`.
    ///
    /// # Errors
    ///
    /// The peer allows fewer and `exact` asks for no less, or it refuses calls of `bytes`.
    pub(super) fn allow(
        &self,
        wanted: usize,
        exact: bool,
        bytes: usize,
    ) -> Result<usize, ConnectError> {
        let (addr, peer) = (self.addr, self.peer);
        if (peer.call_window as usize) < bytes {
            return Err(ConnectError::SmallWindow {
                addr,
                allowed: peer.call_window,
                wanted: bytes,
            });
        }
        let allowed = peer.max_streams;
        if wanted <= allowed as usize {
            return Ok(wanted);
        }
        if exact || allowed == 0 {
            return Err(ConnectError::TooFewStreams { addr, allowed, wanted });
        }
        Ok(allowed as usize)
    }
}

/// Whether the wait for the peer merely ended.
pub(super) fn is_nap(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn greeting() -> Vec<u8> {
    let (mut out, mut settings) = (PREFACE.to_vec(), Vec::new());
    frame::put_setting(&mut settings, setting::ENABLE_PUSH, 0);
    frame::put_setting(&mut settings, setting::INITIAL_WINDOW_SIZE, CALL_WINDOW);
    frame::put(&mut out, Head { kind: kind::SETTINGS, flags: 0, stream: 0 }, &settings);
    let more = (WINDOW - DEFAULT_WINDOW).to_be_bytes();
    frame::put(&mut out, Head { kind: kind::WINDOW_UPDATE, flags: 0, stream: 0 }, &more);
    out
}

/// A server speaks first with a SETTINGS frame on stream 0 that acknowledges nothing.
fn refuse_other_protocols(addr: SocketAddr, said: &[u8]) -> Result<(), ConnectError> {
    const TLS_ALERT: u8 = 0x15;
    const TLS_HANDSHAKE: u8 = 0x16;
    match said {
        [TLS_ALERT | TLS_HANDSHAKE, 3, ..] => Err(ConnectError::Tls { addr }),
        [b'H', b'T', b'T', b'P', ..] => Err(ConnectError::Http1 { addr }),
        [_, _, _, kind, flags, stream @ ..]
            if *kind != kind::SETTINGS || *flags != 0 || stream.iter().take(4).any(|b| *b != 0) =>
        {
            Err(ConnectError::NotHttp2 { addr })
        }
        _ => Ok(()),
    }
}

/// What replies have used up of the credit that the peer was given, and not got back.
#[derive(Debug, Default)]
pub(super) struct Credit {
    used: u32,
}

impl Credit {
    /// Counts `bytes` of DATA and appends what gives them back, now and then.
    pub(super) fn use_up(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.used += bytes as u32;
        if self.used > WINDOW / 4 {
            let more = std::mem::take(&mut self.used).to_be_bytes();
            frame::put(out, Head { kind: kind::WINDOW_UPDATE, flags: 0, stream: 0 }, &more);
        }
    }
}

#[cfg(test)]
mod tests;
