//! Watches a run: who has ended, whether it is interrupted, how far it is.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::outcome::Ending;
use crate::clock::Stopwatch;

/// How often throughput is noted, and whether the run is interrupted.
const SAMPLE: Duration = Duration::from_millis(100);
const PROGRESS: Duration = Duration::from_secs(1);

/// Answers on one connection so far; on a cache line of its own, as its thread writes it often.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Answered(pub(super) AtomicU64);

/// A connection has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Why, if it was to go on.
    pub(super) lost: Option<String>,
}

pub(super) struct Watch<'a> {
    events: Receiver<Ended>,
    interrupted: &'a AtomicBool,
    answered: &'a [Answered],
    began: Stopwatch,
    label: &'a str,
    running: usize,
    progress: Vec<(Duration, u64)>,
    /// When a line was last shown, and how many answers there were; `None` shows none.
    shown: Option<(Duration, u64)>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        events: Receiver<Ended>,
        interrupted: &'a AtomicBool,
        answered: &'a [Answered],
        began: Stopwatch,
        label: &'a str,
    ) -> Self {
        Self {
            events,
            interrupted,
            answered,
            began,
            label,
            running: answered.len(),
            progress: vec![(Duration::ZERO, 0)],
            shown: io::stderr().is_terminal().then_some((Duration::ZERO, 0)),
        }
    }

    /// Waits for `time`; returns early with the reason if there is one.
    pub(super) fn wait(&mut self, time: Duration) -> Option<Ending> {
        let watch = Stopwatch::start();
        while self.running > 0 {
            if self.interrupted.load(Relaxed) {
                return Some(Ending::Interrupted);
            }
            let left = time.checked_sub(watch.elapsed()).filter(|left| !left.is_zero())?;
            match self.events.recv_timeout(left.min(SAMPLE)) {
                Ok(Ended { lost: Some(reason) }) => {
                    self.running -= 1;
                    return Some(Ending::Lost(reason));
                }
                Ok(Ended { lost: None }) => self.running -= 1,
                Err(RecvTimeoutError::Timeout) => self.sample(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Some(Ending::Complete)
    }

    /// Waits for `time` at most until all connections have ended.
    pub(super) fn wait_for_all(&mut self, time: Duration) {
        let watch = Stopwatch::start();
        while self.running > 0 {
            let left = time.saturating_sub(watch.elapsed());
            if self.events.recv_timeout(left).is_err() {
                return;
            }
            self.running -= 1;
        }
    }

    /// Answers at moments of the run.
    pub(super) fn finish(mut self) -> Vec<(Duration, u64)> {
        self.sample();
        if self.shown.is_some_and(|(at, _)| !at.is_zero()) {
            show("\r\x1b[K");
        }
        self.progress
    }

    fn sample(&mut self) {
        let (now, answers) = (self.began.elapsed(), self.total());
        self.progress.push((now, answers));
        let Some((at, before)) = self.shown else { return };
        if now - at >= PROGRESS {
            let rate = (answers - before) as f64 / (now - at).as_secs_f64();
            let (label, seconds) = (self.label, now.as_secs());
            show(&format!("\r\x1b[K{label}: {seconds} s, {answers} answers, {rate:.0} calls/s"));
            self.shown = Some((now, answers));
        }
    }

    fn total(&self) -> u64 {
        self.answered.iter().map(|answered| answered.0.load(Relaxed)).sum()
    }
}

/// Progress that cannot be shown is no reason to stop.
fn show(text: &str) {
    let mut terminal = io::stderr().lock();
    let _shown = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[track_caller]
    fn check(events: &[Option<&str>], interrupted: bool, want: Option<&Ending>) {
        let (sender, receiver) = mpsc::channel();
        for lost in events {
            sender.send(Ended { lost: lost.map(str::to_owned) }).unwrap();
        }
        let (flag, answered) =
            (AtomicBool::new(interrupted), [Answered::default(), Answered::default()]);
        let mut watch = Watch::new(receiver, &flag, &answered, Stopwatch::start(), "test");
        assert_eq!(watch.wait(Duration::from_millis(20)).as_ref(), want);
    }

    #[test]
    fn a_wait_ends_for_a_reason_or_with_its_time() {
        check(&[], false, None);
        check(&[None], false, None); // one of two still runs
        check(&[None, None], false, Some(&Ending::Complete));
        check(&[Some("gone")], false, Some(&Ending::Lost("gone".to_owned())));
        check(&[], true, Some(&Ending::Interrupted));
    }
}
