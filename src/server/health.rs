//! Whether the service answers calls, and `grpc.health.v1.Health` over it.
//!
//! Kept for the whole server (the empty name) and for `ratelimit`, alike: both follow the rules
//! and the shutdown.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{self, HealthCheckRequest, HealthCheckResponse};

use crate::api::status;

const SERVICES: [&str; 2] = ["", "ratelimit"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Serving,
    NotServing,
    /// For good: the process is about to end.
    Stopping,
}

/// The state of the service; clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<watch::Sender<State>>);

impl Default for Health {
    /// Not serving yet.
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(State::NotServing)))
    }
}

impl Health {
    /// Says whether calls get answers; ignored once the server is stopping.
    pub fn set_serving(&self, serving: bool) {
        self.change(if serving { State::Serving } else { State::NotServing });
    }

    pub fn is_serving(&self) -> bool {
        *self.0.borrow() == State::Serving
    }

    /// Ends health for good, and with it the streams of watchers, which would hold their
    /// connections open.
    pub(super) fn stop(&self) {
        self.change(State::Stopping);
    }

    fn change(&self, to: State) {
        self.0.send_if_modified(|state| {
            let changes = *state != State::Stopping && *state != to;
            if changes {
                *state = to;
            }
            changes
        });
    }

    fn watcher(&self) -> Watcher {
        Watcher { states: WatchStream::new(self.0.subscribe()), ended: false }
    }
}

/// The state now and at each change, up to the end of the process.
pub struct Watcher {
    states: WatchStream<State>,
    ended: bool,
}

impl Stream for Watcher {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let state = ready!(Pin::new(&mut self.states).poll_next(context));
        self.ended = state == Some(State::Stopping);
        Poll::Ready(state.map(|state| Ok(answer(state_on_wire(state)))))
    }
}

fn state_on_wire(state: State) -> ServingStatus {
    match state {
        State::Serving => ServingStatus::Serving,
        State::NotServing | State::Stopping => ServingStatus::NotServing,
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl pb::health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(status::unknown_service());
        }
        let state = *self.0.borrow();
        Ok(Response::new(answer(state_on_wire(state))))
    }

    type WatchStream = Watcher;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(status::unknown_service());
        }
        Ok(Response::new(self.watcher()))
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn watchers_see_changes_and_end_when_stopping() {
        let health = Health::default();
        let mut watcher = health.watcher();
        let mut next = async || watcher.next().await.map(|state| state.unwrap().status());
        assert_eq!(next().await, Some(ServingStatus::NotServing));
        health.set_serving(true);
        assert_eq!(next().await, Some(ServingStatus::Serving));
        health.stop();
        health.set_serving(true);
        assert_eq!(next().await, Some(ServingStatus::NotServing));
        assert_eq!(next().await, None);
    }

    #[test]
    fn stopping_is_final() {
        let health = Health::default();
        assert!(!health.is_serving());
        health.set_serving(true);
        assert!(health.is_serving());
        health.stop();
        health.set_serving(true);
        assert!(!health.is_serving());
    }
}
