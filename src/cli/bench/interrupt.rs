//! Notices Ctrl-C and SIGTERM, so that a run ends with its result.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

/// A flag that is set once this process is asked to end. The thread that sets it stays until
/// the process ends.
///
/// # Errors
///
/// The signals cannot be watched.
pub(super) fn watch() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let shared = Arc::clone(&flag);
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        shared.store(true, Relaxed);
    })?;
    Ok(flag)
}
