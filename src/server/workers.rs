//! The threads that serve gRPC, each with a runtime of its own, and how they get connections.

use std::convert::Infallible;
use std::net;
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};

use super::connection::GrpcConnections;
use super::drain::Watch;
use super::{Health, RunError};
use crate::api::decide::Decider;
use crate::api::grpc::GrpcService;

type Connections = mpsc::UnboundedSender<net::TcpStream>;

/// Worker threads; they end when this is dropped or told to.
pub(super) struct Workers {
    end: watch::Sender<()>,
    alive: mpsc::Receiver<Infallible>,
}

impl Workers {
    /// Starts `count` threads and waits until each serves. `decider` is called on each with its
    /// number. Once the dealer is gone, only their connections are still members of `drain`.
    ///
    /// # Errors
    ///
    /// The system gives no thread or no event queue, or a worker failed on its way to serving.
    pub(super) async fn start(
        count: usize,
        decider: impl Fn(usize) -> Decider + Clone + Send + 'static,
        health: &Health,
        max_age: Option<Duration>,
        drain: &Watch,
    ) -> Result<(Self, Dealer), RunError> {
        let (end, ended) = watch::channel(());
        let (member, alive) = mpsc::channel(1);
        let (mut connections, mut ready) = (Vec::new(), Vec::new());
        for index in 0..count {
            let runtime =
                Builder::new_current_thread().enable_all().build().map_err(RunError::Worker)?;
            let (sender, incoming) = mpsc::unbounded_channel();
            connections.push(sender);
            let (report, reported) = oneshot::channel();
            ready.push(reported);
            let (decider, health) = (decider.clone(), health.clone());
            let (drain, mut ended, member) = (drain.clone(), ended.clone(), member.clone());
            let work = async move {
                let service = match GrpcService::try_new(decider(index), health) {
                    Ok(service) => service,
                    Err(error) => return drop(report.send(Err(error))),
                };
                // The receiver is gone if another worker failed; then this one ends below.
                _ = report.send(Ok(()));
                serve(GrpcConnections::new(service, max_age, drain), incoming).await;
                // An error, since the sender never sends: it was dropped.
                _ = ended.changed().await;
            };
            thread::Builder::new()
                .name(format!("grpc-{index}"))
                .spawn(move || {
                    // Dropped last, after the runtime with all that is left on it.
                    let _member = member;
                    let runtime = runtime;
                    runtime.block_on(work);
                })
                .map_err(RunError::Worker)?;
        }
        for (index, reported) in ready.into_iter().enumerate() {
            reported.await.map_err(|_| RunError::WorkerLost(index))??;
        }
        Ok((Self { end, alive }, Dealer { connections, next: 0 }))
    }

    /// Tells all workers to end, whatever is still open; the receiver closes when they have.
    pub(super) fn end(self) -> mpsc::Receiver<Infallible> {
        drop(self.end);
        self.alive
    }
}

/// Serves connections as they come, until none can come any more.
async fn serve(
    mut connections: GrpcConnections,
    mut incoming: mpsc::UnboundedReceiver<net::TcpStream>,
) {
    while let Some(stream) = incoming.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => connections.spawn(stream),
            Err(error) => tracing::warn!(%error, "connection lost between threads"),
        }
    }
}

/// Gives each worker the next connection in turn: callers open few, and a worker without one
/// would idle.
pub(super) struct Dealer {
    connections: Vec<Connections>,
    next: usize,
}

impl Dealer {
    pub(super) fn deal(&mut self, stream: TcpStream) {
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return tracing::warn!(%error, "connection lost between threads"),
        };
        // A worker that is gone is passed over.
        let mut stream = Some(stream);
        for _ in 0..self.connections.len() {
            let worker = &self.connections[self.next];
            self.next = (self.next + 1) % self.connections.len();
            match stream.take().map(|stream| worker.send(stream)) {
                Some(Err(mpsc::error::SendError(back))) => stream = Some(back),
                Some(Ok(())) | None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_are_dealt_in_turn_past_dead_workers() {
        let (connections, mut ends): (Vec<_>, Vec<_>) =
            (0..3).map(|_| mpsc::unbounded_channel()).unzip();
        ends.remove(1);
        let mut dealer = Dealer { connections, next: 0 };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..4 {
            let client = TcpStream::connect(listener.local_addr().unwrap());
            let (accepted, client) = tokio::join!(listener.accept(), client);
            client.unwrap();
            dealer.deal(accepted.unwrap().0);
        }
        drop(dealer);
        for end in &mut ends {
            let mut count = 0;
            while end.recv().await.is_some() {
                count += 1;
            }
            assert_eq!(count, 2);
        }
    }
}
