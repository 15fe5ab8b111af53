//! Binding addresses and accepting connections.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

use super::RunError;
use super::drain::Watch;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Idle time after which the kernel asks a peer whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Pause after a failed accept, such as with no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// One of the server's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerName {
    Grpc,
    Http,
    Admin,
    Prometheus,
}

impl ListenerName {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Admin => "admin",
            Self::Prometheus => "prometheus",
        }
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr} for {listener}, choose another address with --{listener}-addr")]
pub struct BindError {
    pub listener: ListenerName,
    pub addr: SocketAddr,
    #[source]
    pub source: io::Error,
}

/// Listens on `addr`; an unspecified IPv6 address takes IPv4 connections too, and falls back to
/// IPv4 alone on a machine without IPv6. Returns the address with the port filled in.
pub(super) fn bind(
    listener: ListenerName,
    addr: SocketAddr,
) -> Result<(TcpListener, SocketAddr), BindError> {
    let bound = match listen(addr) {
        Err(error) if addr.is_ipv6() && addr.ip().is_unspecified() && lacks_ipv6(&error) => {
            listen((Ipv4Addr::UNSPECIFIED, addr.port()).into())
        }
        bound => bound,
    };
    match bound.and_then(|socket| socket.local_addr().map(|addr| (socket, addr))) {
        Ok((socket, addr)) => {
            tracing::info!(listener = listener.as_str(), %addr, "listening");
            Ok((socket, addr))
        }
        Err(source) => Err(BindError { listener, addr, source }),
    }
}

fn lacks_ipv6(error: &io::Error) -> bool {
    /// Linux' `EAFNOSUPPORT`.
    const NO_ADDRESS_FAMILY: i32 = 97;
    error.raw_os_error() == Some(NO_ADDRESS_FAMILY)
        || error.kind() == io::ErrorKind::AddrNotAvailable
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A future that hands each connection to `serve` until the drain begins, and then closes the
/// listener.
///
/// # Errors
///
/// The listener cannot be used on this runtime.
pub(super) fn accept(
    name: ListenerName,
    listener: TcpListener,
    mut serve: impl FnMut(TcpStream),
    mut watch: Watch,
) -> Result<impl Future<Output = ()>, RunError> {
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| RunError::Listener(name, error))?;
    Ok(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = watch.begun() => return,
            };
            match accepted.and_then(|(stream, _)| tune(&stream).map(|()| stream)) {
                Ok(stream) => serve(stream),
                Err(error) if is_of_the_peer(&error) => {
                    tracing::debug!(listener = name.as_str(), %error, "connection lost");
                }
                Err(error) => {
                    tracing::warn!(listener = name.as_str(), %error, "accept failed");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    })
}

/// Answers are sent without delay, and peers that vanished are noticed.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// The connection was gone before it was taken; the listener is fine.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | InvalidInput | NotConnected)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::server::drain::Drain;

    #[test]
    fn a_taken_port_is_named_with_the_way_out() {
        let (_first, addr) = bind(ListenerName::Http, ([127, 0, 0, 1], 0).into()).unwrap();
        let error = bind(ListenerName::Grpc, addr).unwrap_err();
        let text = error.to_string();
        for part in ["grpc", &addr.to_string(), "--grpc-addr"] {
            assert!(text.contains(part), "`{text}` lacks `{part}`");
        }
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn accepted_sockets_are_tuned_and_both_families_are_served() {
        let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
        let (listener, addr) = bind(ListenerName::Grpc, any).unwrap();
        let (drain, watch) = Drain::new();
        let (sender, mut accepted) = mpsc::unbounded_channel();
        let serve = move |stream| sender.send(stream).unwrap();
        let server = tokio::spawn(accept(ListenerName::Grpc, listener, serve, watch).unwrap());

        let mut targets = vec![SocketAddr::from(([127, 0, 0, 1], addr.port()))];
        if addr.is_ipv6() {
            targets.push((std::net::Ipv6Addr::LOCALHOST, addr.port()).into());
        }
        for target in targets {
            let _client = TcpStream::connect(target).await.unwrap();
            let stream = accepted.recv().await.unwrap();
            assert!(stream.nodelay().unwrap());
            assert!(SockRef::from(&stream).keepalive().unwrap());
        }
        drain.finish().await;
        server.await.unwrap();
        assert!(TcpStream::connect(("127.0.0.1", addr.port())).await.is_err());
    }
}
