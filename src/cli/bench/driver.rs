//! The load on one connection, on a thread of its own.
//!
//! All calls that are due go out in one write; all answers that have arrived come in with one
//! read. Nothing is allocated per call.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::calls::{Calls, Tally};
use super::connection::{Connection, NAP, is_nap};
use super::frame::{self, ACK, END_HEADERS, END_STREAM, Head, PADDED, PRIORITY, TooLong, kind};
use super::hpack::{Decoder, Headers, Malformed};
use super::keys::Sampler;
use super::pace::{Pace, Schedule};
use super::request::Writer;
use crate::clock::Stopwatch;

/// Credit that a connection has for its calls before the peer gives more.
const FIRST_WINDOW: i64 = 65_535;
/// Stream numbers have 31 bits and are never used again.
const LAST_STREAM: u32 = 0x7fff_ffff;

/// What the threads of a run share; moments are nanoseconds since it began.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) began: Stopwatch,
    /// Calls due from here on are measured.
    from_nanos: AtomicU64,
    /// Calls due from here on are not sent.
    until_nanos: AtomicU64,
    /// Answers are no longer waited for.
    abandoned: AtomicBool,
}

impl Signals {
    pub(super) fn start() -> Self {
        Self {
            began: Stopwatch::start(),
            from_nanos: AtomicU64::new(u64::MAX),
            until_nanos: AtomicU64::new(u64::MAX),
            abandoned: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Measures every call.
    pub(super) fn measure_all(&self) {
        self.from_nanos.store(0, Relaxed);
    }

    /// Measures the calls due from now on.
    pub(super) fn measure(&self) {
        self.from_nanos.store(self.now(), Relaxed);
    }

    /// Sends no call that is due from now on.
    pub(super) fn stop(&self) {
        self.until_nanos.fetch_min(self.now(), Relaxed);
    }

    /// Between [`Self::measure`] and [`Self::stop`].
    pub(super) fn measured(&self) -> Duration {
        let from = self.from_nanos.load(Relaxed);
        Duration::from_nanos(self.until_nanos.load(Relaxed).saturating_sub(from))
    }

    /// Waits for no more answers.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Relaxed);
    }
}

/// Why a connection ended before the run did.
#[derive(Debug, thiserror::Error)]
pub(super) enum LostError {
    #[error("server closed the connection")]
    Closed,
    #[error("connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("server sent the client away (GOAWAY, HTTP/2 error {code}{})", tail(.text))]
    GoAway { code: u32, text: String },
    #[error("server sent a frame that is no HTTP/2: {0}")]
    Protocol(&'static str),
    #[error("all stream numbers of the connection are used up, raise --connections")]
    StreamsUsedUp,
}

fn tail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(", `{text}`") }
}

impl From<TooLong> for LostError {
    fn from(_: TooLong) -> Self {
        Self::Protocol("longer than allowed")
    }
}

impl From<Malformed> for LostError {
    fn from(_: Malformed) -> Self {
        Self::Protocol("malformed header block")
    }
}

/// What a connection is asked to do.
pub(super) struct Job {
    pub(super) writer: Writer,
    pub(super) sampler: Sampler,
    pub(super) schedule: Schedule,
    pub(super) pace: Pace,
    pub(super) tally: Tally,
    /// Bytes of a call's message.
    pub(super) body_bytes: usize,
    /// Calls in flight at most.
    pub(super) in_flight: usize,
    /// Calls to send in all.
    pub(super) quota: u64,
}

/// Generates the load of one connection.
pub(super) struct Driver<'a> {
    connection: Connection,
    job: Job,
    signals: &'a Signals,
    /// Where others see how many calls were answered.
    answered: &'a AtomicU64,
    calls: Calls,
    out: Vec<u8>,
    window: i64,
    next_stream: u32,
    decoder: Decoder,
    headers: Headers,
    /// A header block that came in several frames, so far.
    block: Vec<u8>,
    block_ends_stream: bool,
    goaway: Option<LostError>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        connection: Connection,
        job: Job,
        signals: &'a Signals,
        answered: &'a AtomicU64,
    ) -> Self {
        Self {
            connection,
            calls: Calls::new(job.in_flight, job.tally.clone()),
            job,
            signals,
            answered,
            out: Vec::new(),
            window: FIRST_WINDOW,
            next_stream: 1,
            decoder: Decoder::default(),
            headers: Headers::default(),
            block: Vec::new(),
            block_ends_stream: false,
            goaway: None,
        }
    }

    /// Runs until all is sent and answered, the run is over, or the connection is.
    pub(super) fn run(mut self) -> (Tally, Option<LostError>) {
        if self.job.pace != Pace::OnAnswer {
            // Wakes on time; without the right to, a little late.
            let _coarse = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        let lost = self.drive().err();
        let until = self.signals.until_nanos.load(Relaxed);
        let unsent = if until == u64::MAX {
            0
        } else {
            self.job.schedule.count_until(until, self.job.quota)
        };
        let mut tally = self.calls.abandon();
        tally.unsent = unsent;
        (tally, lost)
    }

    fn drive(&mut self) -> Result<(), LostError> {
        // What the peer said together with its first frame.
        self.take_frames()?;
        loop {
            let now = self.signals.now();
            let state = self.send_due(now)?;
            if state == Sent::All && self.calls.in_flight() == 0 {
                return self.goaway.take().map_or(Ok(()), Err);
            }
            if self.signals.abandoned.load(Relaxed) {
                return Ok(());
            }
            self.flush()?;
            if self.wait(now, state)? {
                self.receive()?;
            }
        }
    }

    /// Writes down the calls that are due.
    fn send_due(&mut self, now: u64) -> Result<Sent, LostError> {
        let from = self.signals.from_nanos.load(Relaxed);
        let until = self.signals.until_nanos.load(Relaxed);
        loop {
            let due = self.job.schedule.due(now);
            if due >= until || self.job.quota == 0 || self.goaway.is_some() {
                return Ok(Sent::All);
            }
            if due > now {
                return Ok(Sent::UpTo(due));
            }
            if self.next_stream >= LAST_STREAM {
                return Err(LostError::StreamsUsedUp);
            }
            let is_free = self.calls.in_flight() < self.job.in_flight
                && self.calls.has_place(self.next_stream)
                && self.window >= self.job.body_bytes as i64;
            if !is_free {
                return Ok(Sent::UpToRoom);
            }
            self.job.writer.write(&mut self.out, self.next_stream, &mut self.job.sampler);
            self.calls.begin(self.next_stream, due, due >= from);
            self.window -= self.job.body_bytes as i64;
            self.next_stream += 2;
            self.job.quota -= 1;
            self.job.schedule.advance();
        }
    }

    /// Writes as much as the socket takes.
    fn flush(&mut self) -> Result<(), LostError> {
        let mut written = 0;
        while written < self.out.len() {
            match self.connection.socket.write(&self.out[written..]) {
                Ok(0) => return Err(LostError::Closed),
                Ok(count) => written += count,
                Err(error) if is_nap(&error) => break,
                Err(error) => return Err(broken(error)),
            }
        }
        self.out.drain(..written);
        Ok(())
    }

    /// Waits until the peer has said something (true) or something else is to be done.
    ///
    /// The closed loop just reads, which is a system call less.
    fn wait(&mut self, now: u64, state: Sent) -> Result<bool, LostError> {
        if self.job.pace == Pace::OnAnswer && self.out.is_empty() {
            return Ok(true);
        }
        let nap = match state {
            Sent::UpTo(due) => Duration::from_nanos(due - now).min(NAP),
            Sent::UpToRoom | Sent::All => NAP,
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: nap.subsec_nanos().into() };
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, !self.out.is_empty());
        let mut socket = [PollFd::new(&self.connection.socket, interest)];
        match poll(&mut socket, Some(&timeout)) {
            Ok(_) => {
                Ok(socket[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
            }
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(LostError::Io(error.into())),
        }
    }

    fn receive(&mut self) -> Result<(), LostError> {
        match self.connection.reader.read(&mut self.connection.socket) {
            Ok(0) => return Err(self.goaway.take().unwrap_or(LostError::Closed)),
            Ok(_) => {}
            Err(error) if is_nap(&error) => return Ok(()),
            Err(error) => return Err(self.goaway.take().unwrap_or_else(|| broken(error))),
        }
        self.take_frames()
    }

    fn take_frames(&mut self) -> Result<(), LostError> {
        let now = self.signals.now();
        while let Some((head, payload)) = self.connection.reader.next()? {
            self.frame(head, payload, now)?;
        }
        self.answered.store(self.calls.answered, Relaxed);
        Ok(())
    }

    fn frame(
        &mut self,
        head: Head,
        payload: std::ops::Range<usize>,
        now: u64,
    ) -> Result<(), LostError> {
        let payload = self.connection.reader.bytes(payload);
        match head.kind {
            kind::DATA => {
                self.connection.credit.use_up(payload.len(), &mut self.out);
                self.calls.data(head.stream, unpadded(head, payload)?);
                if head.has(END_STREAM) {
                    self.headers.clear();
                    self.calls.end(head.stream, &self.headers, now);
                }
            }
            kind::HEADERS if head.has(END_HEADERS) => {
                let block = unpadded(head, payload)?;
                self.headers.clear();
                self.decoder.decode(block, &mut self.headers)?;
                self.calls.headers(head.stream, &self.headers);
                if head.has(END_STREAM) {
                    self.calls.end(head.stream, &self.headers, now);
                }
            }
            kind::HEADERS => {
                self.block.clear();
                self.block.extend_from_slice(unpadded(head, payload)?);
                self.block_ends_stream = head.has(END_STREAM);
            }
            kind::CONTINUATION => {
                self.block.extend_from_slice(payload);
                if head.has(END_HEADERS) {
                    self.headers.clear();
                    self.decoder.decode(&self.block, &mut self.headers)?;
                    self.calls.headers(head.stream, &self.headers);
                    if self.block_ends_stream {
                        self.calls.end(head.stream, &self.headers, now);
                    }
                }
            }
            kind::RST_STREAM => {
                self.calls.reset(head.stream, frame::number(payload).unwrap_or_default(), now);
            }
            kind::SETTINGS if !head.has(ACK) => {
                frame::put(&mut self.out, Head { flags: ACK, ..head }, &[]);
            }
            kind::PING if !head.has(ACK) => {
                frame::put(&mut self.out, Head { flags: ACK, ..head }, payload);
            }
            kind::WINDOW_UPDATE if head.stream == 0 => {
                self.window += i64::from(frame::number(payload).unwrap_or_default());
            }
            kind::GOAWAY => {
                let (code, text) = payload.get(4..).map_or((0, &[][..]), |rest| {
                    (frame::number(rest).unwrap_or_default(), rest.get(4..).unwrap_or_default())
                });
                let text = String::from_utf8_lossy(text).into_owned();
                self.goaway = Some(LostError::GoAway { code, text });
            }
            _ => {}
        }
        Ok(())
    }
}

/// How far the schedule was followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// There is nothing more to send.
    All,
    /// The next call is due at this moment.
    UpTo(u64),
    /// Calls are due and there is no room for them until an answer comes.
    UpToRoom,
}

/// The payload of a DATA or HEADERS frame without what may stand around it.
fn unpadded(head: Head, payload: &[u8]) -> Result<&[u8], LostError> {
    const BAD_PADDING: LostError = LostError::Protocol("padding longer than its frame");
    let (mut rest, mut padding) = (payload, 0);
    if head.has(PADDED) {
        let (&length, after) = rest.split_first().ok_or(BAD_PADDING)?;
        (rest, padding) = (after, usize::from(length));
    }
    if head.kind == kind::HEADERS && head.has(PRIORITY) {
        rest = rest.get(5..).ok_or(BAD_PADDING)?;
    }
    let length = rest.len().checked_sub(padding).ok_or(BAD_PADDING)?;
    Ok(&rest[..length])
}

fn broken(error: io::Error) -> LostError {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => LostError::Closed,
        _ => LostError::Io(error),
    }
}
