//! How the process is asked to end, and how connections learn of it.

use std::convert::Infallible;
use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Requests to stop: the first one drains, the second one ends at once.
pub struct Stop(mpsc::UnboundedReceiver<()>);

/// Asks a server to stop.
#[derive(Clone)]
pub struct StopHandle(mpsc::UnboundedSender<()>);

impl Stop {
    pub fn new() -> (StopHandle, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (StopHandle(sender), Self(receiver))
    }

    /// Each SIGTERM, SIGINT or SIGHUP is a request, as in the reference. Call it inside the runtime.
    ///
    /// # Errors
    ///
    /// The handlers cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let (handle, stop) = Self::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "signal received"),
                    _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "signal received"),
                    _ = hangup.recv() => tracing::info!(signal = "SIGHUP", "signal received"),
                }
                handle.stop();
            }
        });
        Ok(stop)
    }

    /// Waits for the next request; for ever if none can come any more.
    pub(super) async fn asked(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

impl StopHandle {
    pub fn stop(&self) {
        // Fails when the server is gone, which is what was asked for.
        _ = self.0.send(());
    }
}

/// Ends a group of connections and knows when the last one is gone.
pub(super) struct Drain {
    begin: watch::Sender<bool>,
    alive: mpsc::Receiver<Infallible>,
}

/// Held by every member of the group as long as it lives.
#[derive(Clone)]
pub(super) struct Watch {
    begun: watch::Receiver<bool>,
    _alive: mpsc::Sender<Infallible>,
}

impl Drain {
    pub(super) fn new() -> (Self, Watch) {
        let (begin, begun) = watch::channel(false);
        let (member, alive) = mpsc::channel(1);
        (Self { begin, alive }, Watch { begun, _alive: member })
    }

    /// Asks all members to end and waits until they have.
    pub(super) async fn finish(mut self) {
        self.begin.send_replace(true);
        super::wait_for_all(&mut self.alive).await;
    }
}

impl Watch {
    /// Returns when members are to end.
    pub(super) async fn begun(&mut self) {
        // An error means that the drain is gone, so its server is too.
        _ = self.begun.wait_for(|begun| *begun).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn finish_waits_for_every_member() {
        let (drain, watch) = Drain::new();
        let mut member = watch.clone();
        drop(watch);
        let finish = tokio::spawn(drain.finish());
        member.begun().await;
        assert!(!finish.is_finished());
        drop(member);
        finish.await.unwrap();
    }

    #[tokio::test]
    async fn each_request_to_stop_counts_once() {
        let (handle, mut stop) = Stop::new();
        handle.stop();
        stop.asked().await;
        let second = tokio::time::timeout(std::time::Duration::ZERO, stop.asked()).await;
        assert!(second.is_err());
    }

    #[tokio::test]
    async fn every_signal_asks_to_stop() {
        let mut stop = Stop::on_signals().unwrap();
        for name in ["-TERM", "-INT", "-HUP"] {
            let pid = std::process::id().to_string();
            assert!(
                std::process::Command::new("kill").args([name, &pid]).status().unwrap().success()
            );
            stop.asked().await;
        }
    }
}
