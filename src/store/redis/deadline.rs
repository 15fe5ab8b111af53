//! How long a decision may take.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

/// Chances that a late future gets: one for the runtime to read the socket, one for the task that
/// hands the reply out, one for a step in between.
const LAST_CHANCES: usize = 3;

/// The output of `future`, or `None` after `limit`.
///
/// A thread that the system kept waiting finds the timer run out and the reply in its socket at
/// the same moment. Then the reply counts: what was decided in time is not thrown away, and its
/// connection not replaced, because this process was slow to read it.
pub(super) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    tokio::select! {
        biased;
        output = future.as_mut() => return Some(output),
        () = sleep(limit) => {}
    }
    for _ in 0..LAST_CHANCES {
        yield_now().await;
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_reply_that_waits_in_the_socket_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (accepted, client) = tokio::join!(listener.accept(), client);
        let (mut server, mut client) = (accepted.unwrap().0, client.unwrap());
        // The reply comes through another task, as in the client library.
        let (reply, replied) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { reply.send(client.read_u8().await.unwrap()).unwrap() });
        yield_now().await;
        let stalled = async {
            let waiting = within(Duration::from_millis(1), replied);
            let stall = async {
                server.write_u8(7).await.unwrap();
                std::thread::sleep(Duration::from_millis(20));
            };
            tokio::join!(waiting, stall).0
        };
        assert_eq!(stalled.await.unwrap(), Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_come_is_given_up() {
        let never = std::future::pending::<()>();
        assert_eq!(within(Duration::from_millis(15), never).await, None);
    }
}
