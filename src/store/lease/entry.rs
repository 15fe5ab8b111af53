//! The leases of one counter: what is held, how fast it goes, and what the store has left.

use tokio::sync::watch;

use super::{Taken, Unspent};
use crate::clock::Moment;
use crate::model::{CounterKey, Timestamp, Verdict};

/// µs over which hits are counted to tell how fast they come.
const PACE: u64 = 100_000;
/// µs of hits that a slice is for.
const SLICE: u64 = 150_000;
/// A slice serves at least this many calls, else it is not worth a command of its own.
const MIN_CALLS: u64 = 8;
/// Most hits in a slice.
const MAX_SLICE: u64 = 1 << 18;
/// The share of what is left that one slice takes at most.
const SHARE: u64 = 4;
/// µs after which the rest of a slice is given back.
const IDLE: u64 = 1_000_000;
/// µs after which a slice is not spent any more, whatever its window: the most that a store's
/// clock which is set forward, or a machine that slept, can make a hit late.
const MAX_AGE: u64 = 2_000_000;
/// µs without refills after one that failed, since each may cost the hits of a slice.
const PAUSE: u64 = 1_000_000;
/// One part of this many of a slice's time is given up, for clocks that run at different speeds.
const DRIFT: u64 = 1_000;

/// What is known of one counter under one limit.
#[derive(Debug)]
pub(super) struct Entry {
    key: CounterKey,
    capacity: u64,
    /// µs.
    length: u64,
    /// Oldest first.
    slices: Vec<Slice>,
    pace: Pace,
    known: Option<Known>,
    /// When a refill last failed.
    failed: Option<Moment>,
    /// Closes when the refill that is under way has ended.
    pub(super) refill: Option<watch::Receiver<()>>,
}

/// Hits taken with one request.
#[derive(Debug)]
struct Slice {
    left: u64,
    size: u64,
    /// Hits left in the store, at most.
    room: u64,
    asked: Moment,
    /// µs from the request to its answer.
    lag: u64,
    /// µs to the end of the window when the store answered.
    reset: u64,
    /// µs after `asked` in which hits may be spent: the window is not over then, for certain.
    life: u64,
    window: Option<Timestamp>,
}

/// What the store last said is left; no more than a hint.
#[derive(Debug)]
struct Known {
    room: u64,
    asked: Moment,
    /// µs after `asked`.
    reset: u64,
}

/// How fast hits come.
#[derive(Debug)]
struct Pace {
    since: Moment,
    seen: u64,
    /// Hits per [`PACE`] before `since`.
    before: u64,
}

impl Entry {
    pub(super) fn new(key: CounterKey, capacity: u64, length: u64, now: Moment) -> Self {
        let pace = Pace { since: now, seen: 0, before: 0 };
        Self {
            key,
            capacity,
            length,
            slices: Vec::new(),
            pace,
            known: None,
            failed: None,
            refill: None,
        }
    }

    /// Notes a call for `hits`.
    pub(super) fn note(&mut self, hits: u64, now: Moment) {
        self.pace.note(hits, now);
    }

    /// Spends `hits` of a slice that is valid and has them.
    pub(super) fn spend(&mut self, hits: u64, now: Moment) -> Option<Verdict> {
        let slice =
            self.slices.iter_mut().find(|slice| slice.left >= hits && slice.is_spendable(now))?;
        slice.left -= hits;
        let remaining = slice.room.saturating_add(slice.left).min(self.capacity - hits);
        let passed = now.micros_since(slice.asked).saturating_sub(slice.lag);
        let verdict = Verdict {
            allowed: true,
            used: self.capacity - hits - remaining,
            remaining,
            reset: slice.reset.saturating_sub(passed).max(1),
            retry_after: None,
        };
        self.slices.retain(|slice| slice.left > 0);
        Some(verdict)
    }

    /// Whether so little is held that more should be under way.
    pub(super) fn is_low(&self, now: Moment) -> bool {
        let held = self.slices.iter().filter(|slice| slice.is_spendable(now));
        let left: u64 = held.map(|slice| slice.left).sum();
        self.slices.last().is_none_or(|last| left < last.size / 4)
    }

    /// How many hits to take for calls of `hits`; `None` if they better go one by one.
    pub(super) fn slice_for(&self, hits: u64, now: Moment) -> Option<u64> {
        if self.failed.is_some_and(|failed| now.micros_since(failed) < PAUSE) {
            return None;
        }
        let known = self.known.as_ref()?;
        let (room, time) = match known.reset.checked_sub(now.micros_since(known.asked)) {
            Some(time) if time > 0 => (known.room, time),
            _ => (self.capacity, self.length),
        };
        let size = self.pace.hits_in(SLICE.min(time)).min(room / SHARE).min(MAX_SLICE);
        (size >= hits.saturating_mul(MIN_CALLS)).then_some(size)
    }

    /// Takes note of what a request that was sent at `asked` has found.
    pub(super) fn learn(&mut self, verdict: &Verdict, asked: Moment) {
        let room = verdict.remaining;
        for slice in &mut self.slices {
            slice.room = slice.room.min(room);
        }
        self.known = Some(Known { room, asked, reset: verdict.reset });
    }

    /// A refill has failed: for a while calls ask the store by themselves.
    pub(super) fn pause(&mut self, now: Moment) {
        self.failed = Some(now);
    }

    /// Adds the `size` hits of a request that was sent at `asked` and answered by `now`.
    pub(super) fn add(&mut self, size: u64, taken: &Taken, asked: Moment, now: Moment) {
        let Taken { verdict, window } = taken;
        let lag = now.micros_since(asked);
        let (room, reset) = (verdict.remaining, verdict.reset);
        // No store takes hits back once their window is over.
        self.slices.retain(|slice| now.micros_since(slice.asked) < slice.reset);
        let life = (reset - reset.div_ceil(DRIFT)).min(MAX_AGE);
        self.slices.push(Slice {
            left: size,
            size,
            room,
            asked,
            lag,
            reset,
            life,
            window: *window,
        });
    }

    /// Moves what has not been spent in time to `unspent`; whether the entry is still of use.
    pub(super) fn sweep(&mut self, now: Moment, unspent: &mut Vec<Unspent>) -> bool {
        self.release(unspent, |slice| now.micros_since(slice.asked) < IDLE);
        !self.slices.is_empty() || self.refill.is_some() || !self.pace.is_idle(now)
    }

    /// Moves all that is held to `unspent`.
    pub(super) fn drain(&mut self, unspent: &mut Vec<Unspent>) {
        self.release(unspent, |_| false);
    }

    fn release(&mut self, unspent: &mut Vec<Unspent>, keeps: impl Fn(&Slice) -> bool) {
        let (key, length) = (&self.key, self.length);
        self.slices.retain(|slice| {
            if keeps(slice) {
                return true;
            }
            unspent.extend(slice.window.map(|window| Unspent {
                key: key.clone(),
                hits: slice.left,
                window,
                length,
            }));
            false
        });
    }
}

impl Slice {
    fn is_spendable(&self, now: Moment) -> bool {
        now.micros_since(self.asked) < self.life
    }
}

impl Pace {
    fn note(&mut self, hits: u64, now: Moment) {
        let passed = now.micros_since(self.since);
        if passed >= PACE {
            self.before = scale(self.seen, PACE, passed);
            (self.since, self.seen) = (now, 0);
        }
        self.seen = self.seen.saturating_add(hits);
    }

    /// Hits to be expected in `micros`.
    fn hits_in(&self, micros: u64) -> u64 {
        scale(self.before.max(self.seen), micros, PACE)
    }

    fn is_idle(&self, now: Moment) -> bool {
        now.micros_since(self.since) >= IDLE
    }
}

/// `hits` · `a` / `b`.
fn scale(hits: u64, a: u64, b: u64) -> u64 {
    let scaled = u128::from(hits) * u128::from(a) / u128::from(b.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
