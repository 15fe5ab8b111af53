//! Batches of the common kind, for `lua/plain.lua`: equal checks of one counter travel as one, and
//! their verdicts are derived from what was used before the first of them.

use foldhash::HashMap;
use smallvec::SmallVec;

use crate::model::{AlgorithmKind, Call, Charge, Check, CounterKey, Effect, Hits, Limit};
use crate::model::{Timestamp, Verdict, Window};
use crate::store::StoreError;

/// Most hits that travel as one: with a count at its maximum, the sum still is of this window or
/// the next in Redis' integer.
const MAX_TOTAL: u64 = 1 << 32;

/// A batch of calls whose checks all take hits from fixed windows.
#[derive(Debug)]
pub(super) struct Plain<'a> {
    /// One per check sent.
    keys: Vec<&'a CounterKey>,
    /// As the head of `lua/plain.lua` says.
    numbers: Vec<i64>,
    sent: Vec<Sent<'a>>,
    checks: usize,
}

/// Equal calls that travel as one.
#[derive(Debug)]
struct Sent<'a> {
    call: &'a Call,
    hits: u64,
    /// Of each call, the place of its first verdict.
    places: SmallVec<[usize; 1]>,
}

impl<'a> Plain<'a> {
    /// `None` for a batch that has other calls too.
    pub(super) fn try_new(batch: &'a [Call]) -> Option<Self> {
        let mut sent: Vec<Sent<'a>> = Vec::with_capacity(batch.len());
        let mut checks = 0;
        for call in batch {
            let places = SmallVec::from_slice(&[checks]);
            sent.push(Sent { call, hits: hits_of(call)?, places });
            checks += call.checks.len();
        }
        if sent.len() > 1 && sent.iter().all(|sent| sent.call.checks.len() == 1) {
            sent = merge(sent);
        }
        let keys = sent.iter().flat_map(|sent| &sent.call.checks).map(|check| &check.key).collect();
        let numbers = runs(&sent);
        Some(Self { keys, numbers, sent, checks })
    }

    pub(super) fn keys(&self) -> &[&'a CounterKey] {
        &self.keys
    }

    pub(super) fn numbers(&self) -> &[i64] {
        &self.numbers
    }

    /// One verdict per check, in the order of the batch.
    pub(super) fn decode(&self, reply: &[i64]) -> Result<Vec<Verdict>, StoreError> {
        let malformed = StoreError::MalformedReply { want: 1 + self.keys.len(), got: reply.len() };
        let Some((&now, used)) =
            reply.split_first().filter(|(_, used)| used.len() == self.keys.len())
        else {
            return Err(malformed);
        };
        let now = u64::try_from(now).map_err(|_| malformed)?;
        let mut verdicts = vec![UNDECIDED; self.checks];
        let mut used = used.iter();
        for sent in &self.sent {
            for (offset, (check, &used)) in sent.call.checks.iter().zip(&mut used).enumerate() {
                let mut counter = Counter::new(&check.limit, used, now);
                for place in &sent.places {
                    verdicts[place + offset] = counter.take(sent.hits);
                }
            }
        }
        Ok(verdicts)
    }

    /// Start of the window that the first check was decided in; `None` if it has not begun at the
    /// store's time.
    pub(super) fn window(&self, reply: &[i64]) -> Option<Timestamp> {
        let (&[now, used], check) = (reply.first_chunk()?, self.sent.first()?.call.checks.first()?);
        let now = Timestamp::from_micros(u64::try_from(now).ok()?);
        (used >= 0).then(|| check.limit.window.bounds(now).0)
    }
}

/// Stands where a verdict is yet to come.
const UNDECIDED: Verdict =
    Verdict { allowed: false, used: 0, remaining: 0, reset: 1, retry_after: None };

/// The hits of a plain call, equal in all its checks.
fn hits_of(call: &Call) -> Option<u64> {
    let first = call.checks.first()?.hits.count();
    let is_plain = |check: &Check| {
        matches!(check.limit.window, Window::Length(_))
            && check.limit.algorithm == AlgorithmKind::FixedWindow
            && check.hits == Hits::Take(first)
            && first <= check.limit.capacity()
            && check.charge == Charge::Admitted
            && check.effect == Effect::Deny
    };
    call.checks.iter().all(is_plain).then_some(first)
}

/// Joins equal calls of one check each and puts alike ones side by side; the calls of a counter
/// keep their order. Where a counter is asked in different ways, nothing is joined.
fn merge(sent: Vec<Sent<'_>>) -> Vec<Sent<'_>> {
    let mut by_key: HashMap<&CounterKey, usize> = HashMap::default();
    by_key.reserve(sent.len());
    let mut merged: Vec<Sent<'_>> = Vec::with_capacity(sent.len());
    for one in &sent {
        let check = &one.call.checks[0];
        match by_key.entry(&check.key) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(merged.len());
                let Sent { call, hits, places } = one;
                merged.push(Sent { call, hits: *hits, places: places.clone() });
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                let known = &mut merged[*entry.get()];
                let times = known.places.len() as u64 + 1;
                if known.call.checks[0].limit != check.limit
                    || known.hits != one.hits
                    || times * one.hits > MAX_TOTAL
                {
                    return sent;
                }
                known.places.extend_from_slice(&one.places);
            }
        }
    }
    if merged.iter().any(|sent| !is_alike(sent, &merged[0])) {
        merged.sort_by_key(|sent| {
            let limit = &sent.call.checks[0].limit;
            (sent.places.len(), sent.hits, limit.amount, limit.window.length())
        });
    }
    merged
}

/// Whether two may stand in one run.
fn is_alike(a: &Sent<'_>, b: &Sent<'_>) -> bool {
    a.hits == b.hits
        && a.places.len() == b.places.len()
        && a.call.checks.len() == b.call.checks.len()
        && a.call.checks.iter().zip(&b.call.checks).all(|(a, b)| a.limit == b.limit)
}

fn runs(sent: &[Sent<'_>]) -> Vec<i64> {
    let mut numbers = Vec::with_capacity(8);
    for run in sent.chunk_by(is_alike) {
        let first = &run[0];
        let checks = &first.call.checks;
        numbers.extend([run.len(), first.places.len()].map(signed));
        numbers.push(signed(first.hits));
        numbers.push(signed(checks.len()));
        for check in checks {
            numbers.extend([check.limit.capacity(), check.limit.window.length()].map(signed));
        }
    }
    numbers
}

fn signed<N: TryInto<i64>>(number: N) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A fixed window as the script has found it.
struct Counter {
    used: u64,
    capacity: u64,
    /// µs until the window ends.
    left: u64,
}

impl Counter {
    /// `used` is negative where the stored window has not begun at `now`; its whole length is then
    /// left.
    fn new(limit: &Limit, used: i64, now: u64) -> Self {
        let length = limit.window.length();
        let (used, left) = match u64::try_from(used) {
            Ok(used) => (used, length - now % length),
            Err(_) => ((used + 1).unsigned_abs(), length),
        };
        Self { used, capacity: limit.capacity(), left }
    }

    /// As `algorithm::check` does with hits that the window may hold.
    fn take(&mut self, hits: u64) -> Verdict {
        let used = self.used;
        let allowed = used + hits <= self.capacity;
        if allowed {
            self.used += hits;
        }
        Verdict {
            allowed,
            used,
            remaining: self.capacity.saturating_sub(self.used),
            reset: self.left,
            retry_after: (!allowed).then_some(self.left),
        }
    }
}
