//! The calls in flight on one connection, and the count of how they ended.

use hdrhistogram::Histogram;

use super::hpack::Headers;
use super::reply::{self, Code};
use crate::api::frame::{MESSAGE_HEAD, is_whole};

/// Latencies up to a minute, to a thousandth.
const LONGEST_NANOS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;
/// Places per call that may be in flight: one that hangs stops the connection only after so
/// many later ones.
const PLACES_PER_CALL: usize = 16;
const HTTP_OK: u16 = 200;

/// How the measured calls ended.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) ok: u64,
    pub(super) over_limit: u64,
    pub(super) errors: u64,
    /// What the first of the errors was.
    pub(super) first_error: Option<String>,
    /// Sent and without an answer when the run ended.
    pub(super) unanswered: u64,
    /// Due and never sent: the server, or the bound on calls in flight, did not keep up.
    pub(super) unsent: u64,
    /// Nanoseconds of every answered call, from the moment it was due.
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn try_new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            ok: 0,
            over_limit: 0,
            errors: 0,
            first_error: None,
            unanswered: 0,
            unsent: 0,
            latency: Histogram::new_with_bounds(1, LONGEST_NANOS, DIGITS)?,
        })
    }

    pub(super) fn answered(&self) -> u64 {
        self.ok + self.over_limit + self.errors
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ok += other.ok;
        self.over_limit += other.over_limit;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        // Both have the same bounds, so every value fits.
        self.latency += &other.latency;
    }

    fn failed(&mut self, text: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(text);
    }
}

/// A call that waits for its answer; stream 0 is a free place.
#[derive(Debug, Clone, Default)]
struct Call {
    stream: u32,
    due_nanos: u64,
    measured: bool,
    http_status: Option<u16>,
    grpc_status: Option<u16>,
    code: Option<Code>,
    /// A message that came in several parts, so far.
    parts: Vec<u8>,
}

/// Calls in flight, each in the place that its stream's number gives.
pub(super) struct Calls {
    places: Vec<Call>,
    in_flight: usize,
    pub(super) tally: Tally,
    /// Answered calls, measured or not.
    pub(super) answered: u64,
}

impl Calls {
    pub(super) fn new(most: usize, tally: Tally) -> Self {
        let places = (most * PLACES_PER_CALL).next_power_of_two();
        Self { places: vec![Call::default(); places], in_flight: 0, tally, answered: 0 }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn place(&self, stream: u32) -> usize {
        (stream >> 1) as usize & (self.places.len() - 1)
    }

    /// Whether a call may begin on `stream`.
    pub(super) fn has_place(&self, stream: u32) -> bool {
        self.places[self.place(stream)].stream == 0
    }

    pub(super) fn begin(&mut self, stream: u32, due_nanos: u64, measured: bool) {
        let place = self.place(stream);
        let call = &mut self.places[place];
        (call.stream, call.due_nanos, call.measured) = (stream, due_nanos, measured);
        (call.http_status, call.grpc_status, call.code) = (None, None, None);
        call.parts.clear();
        self.in_flight += 1;
    }

    fn find(&mut self, stream: u32) -> Option<&mut Call> {
        let place = self.place(stream);
        self.places.get_mut(place).filter(|call| call.stream == stream && stream != 0)
    }

    /// Takes part of a message.
    pub(super) fn data(&mut self, stream: u32, bytes: &[u8]) {
        let Some(call) = self.find(stream) else { return };
        if call.parts.is_empty() && is_whole(bytes) {
            call.code = reply::overall_code(&bytes[MESSAGE_HEAD..]);
        } else {
            call.parts.extend_from_slice(bytes);
            if is_whole(&call.parts) {
                call.code = reply::overall_code(&call.parts[MESSAGE_HEAD..]);
            }
        }
    }

    /// Takes headers or trailers; errors carry their message with their status.
    pub(super) fn headers(&mut self, stream: u32, headers: &Headers) {
        let Some(call) = self.find(stream) else { return };
        call.http_status = headers.status.or(call.http_status);
        call.grpc_status = headers.grpc_status.or(call.grpc_status);
    }

    /// The server has said all it has to say on `stream`; `headers` are its last.
    pub(super) fn end(&mut self, stream: u32, headers: &Headers, now_nanos: u64) {
        let Some(call) = self.find(stream) else { return };
        let (http, grpc, code) = (call.http_status, call.grpc_status, call.code);
        self.finish(stream, now_nanos, |tally| match (http, grpc, code) {
            (Some(HTTP_OK), Some(0), Some(Code::Ok)) => tally.ok += 1,
            (Some(HTTP_OK), Some(0), Some(Code::OverLimit)) => tally.over_limit += 1,
            (Some(HTTP_OK), Some(0), None) => {
                tally.failed(|| "answer without an overall code".to_owned());
            }
            (_, Some(status), _) => tally.failed(|| grpc_error(status, &headers.grpc_message)),
            (Some(status), None, _) => tally.failed(|| {
                format!("HTTP status {status} and no gRPC status, is this a gRPC server?")
            }),
            (None, None, _) => tally.failed(|| "answer without a status".to_owned()),
        });
    }

    /// The server has given up `stream`.
    pub(super) fn reset(&mut self, stream: u32, error_code: u32, now_nanos: u64) {
        self.finish(stream, now_nanos, |tally| {
            tally.failed(|| format!("server reset the call with HTTP/2 error {error_code}"));
        });
    }

    fn finish(&mut self, stream: u32, now_nanos: u64, count: impl FnOnce(&mut Tally)) {
        let Some(call) = self.find(stream) else { return };
        call.stream = 0;
        let (measured, nanos) = (call.measured, now_nanos.saturating_sub(call.due_nanos));
        self.in_flight -= 1;
        self.answered += 1;
        if measured {
            count(&mut self.tally);
            self.tally.latency.saturating_record(nanos.max(1));
        }
    }

    /// Gives up the calls in flight.
    pub(super) fn abandon(mut self) -> Tally {
        let waiting = self.places.iter().filter(|call| call.stream != 0 && call.measured);
        self.tally.unanswered += waiting.count() as u64;
        self.tally
    }
}

fn grpc_error(status: u16, message: &str) -> String {
    let code = tonic::Code::from_i32(status.into());
    let message = percent_decoded(message);
    if message.is_empty() { format!("{code:?}") } else { format!("{code:?}: {message}") }
}

fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after
            .get(..2)
            .filter(|_| byte == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

    fn headers(status: Option<u16>, grpc_status: Option<u16>, message: &str) -> Headers {
        Headers { status, grpc_status, grpc_message: message.to_owned() }
    }

    /// One measured call, answered by `parts` between headers and trailers.
    fn call(status: u16, parts: &[&[u8]], grpc_status: Option<u16>, message: &str) -> Tally {
        let mut calls = Calls::new(1, Tally::try_new().unwrap());
        calls.begin(1, 1_000, true);
        calls.headers(1, &headers(Some(status), None, ""));
        for part in parts {
            calls.data(1, part);
        }
        let trailers = headers(None, grpc_status, message);
        calls.headers(1, &trailers);
        calls.end(1, &trailers, 6_000);
        assert_eq!((calls.in_flight(), calls.answered), (0, 1));
        calls.abandon()
    }

    #[track_caller]
    fn check(tally: &Tally, ok: u64, over_limit: u64, error: Option<&str>) {
        assert_eq!((tally.ok, tally.over_limit), (ok, over_limit));
        assert_eq!(tally.errors, u64::from(error.is_some()));
        assert_eq!(tally.first_error.as_deref(), error);
        assert_eq!((tally.latency.len(), tally.latency.max() / 100), (1, 50));
    }

    #[test]
    fn answers_are_judged_by_status_and_code() {
        check(&call(200, &[OK], Some(0), ""), 1, 0, None);
        check(&call(200, &[&OK[..3], &OK[3..6], &OK[6..]], Some(0), ""), 1, 0, None);
        check(&call(200, &[&[0, 0, 0, 0, 2, 8, 2]], Some(0), ""), 0, 1, None);
    }

    #[test]
    fn errors_say_what_came_instead() {
        let no_code = Some("answer without an overall code");
        check(&call(200, &[], Some(0), ""), 0, 0, no_code);
        check(&call(200, &[&OK[..6]], Some(0), ""), 0, 0, no_code);
        check(&call(200, &[&[1, 0, 0, 0, 2, 8, 1]], Some(0), ""), 0, 0, no_code);
        let text = Some("Unavailable: no store, 100% gone");
        check(&call(200, &[], Some(14), "no%20store, 100% gone"), 0, 0, text);
        check(&call(200, &[OK], Some(13), ""), 0, 0, Some("Internal"));
        let text = Some("HTTP status 404 and no gRPC status, is this a gRPC server?");
        check(&call(404, &[], None, ""), 0, 0, text);
    }

    #[test]
    fn places_are_found_again_however_late_an_answer_is() {
        let mut calls = Calls::new(1, Tally::try_new().unwrap());
        calls.begin(1, 0, true);
        for stream in (3..32).step_by(2) {
            assert!(calls.has_place(stream));
            calls.begin(stream, 0, false);
            calls.reset(stream, 8, 1);
        }
        assert!(!calls.has_place(33), "where the first call still waits");
        calls.reset(35, 8, 1);
        assert_eq!((calls.in_flight(), calls.answered), (1, 15), "stream 35 was never begun");
        let tally = calls.abandon();
        assert_eq!((tally.unanswered, tally.errors), (1, 0), "only the first was measured");
    }

    #[test]
    fn tallies_add_up() {
        let mut sum = call(200, &[OK], Some(0), "");
        sum.add(&call(200, &[], Some(14), "first"));
        sum.add(&call(200, &[], Some(14), "second"));
        assert_eq!((sum.ok, sum.errors, sum.answered(), sum.latency.len()), (1, 2, 3, 3));
        assert_eq!(sum.first_error.as_deref(), Some("Unavailable: first"));
    }
}
