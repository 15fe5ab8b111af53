//! The bytes of a call, laid out once and patched for each.

use prost::Message;

use super::frame::{self, END_HEADERS, END_STREAM, Head, MAX_PAYLOAD, kind};
use super::keys::{DIGITS, Sampler};
use crate::api::frame::MESSAGE_HEAD;
use crate::api::rls::SHOULD_RATE_LIMIT;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// Indexes into the static table of HPACK: `:method POST`, `:scheme http`, and names.
const POST_OVER_HTTP: [u8; 2] = [0x83, 0x86];
const NAMED_AUTHORITY: u8 = 1;
const NAMED_PATH: u8 = 4;
const NAMED_CONTENT_TYPE: u8 = 31;
const STATIC_ENTRIES: u8 = 61;
/// Marks of a literal that enters the dynamic table, of one that doesn't, and of an index.
const REMEMBERED: u8 = 0x40;
const ONCE: u8 = 0x00;
const INDEXED: u8 = 0x80;

/// What every call of a run says.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) domain: String,
    /// Descriptor i has one entry, its key this and i.
    pub(super) entry: String,
    /// The entry's value is this and a number of nine digits.
    pub(super) value: String,
    pub(super) descriptors: usize,
    /// 0 leaves it to the server.
    pub(super) hits: u32,
}

impl Question {
    /// The message with gRPC's head, and where the digits of each key begin.
    fn body(&self) -> (Vec<u8>, Vec<usize>) {
        let value = format!("{}{:0DIGITS$}", self.value, 0);
        let mut message = RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: Vec::new(),
            hits_addend: 0,
        };
        let (mut body, mut digits) = (vec![0; MESSAGE_HEAD], Vec::new());
        // Encodings of the parts of a message in a row are that of the whole.
        body.extend(message.encode_to_vec());
        message.domain.clear();
        for index in 0..self.descriptors {
            let entry =
                Entry { key: format!("{}{index}", self.entry).into(), value: value.clone().into() };
            message.descriptors =
                vec![RateLimitDescriptor { entries: vec![entry], ..Default::default() }];
            body.extend(message.encode_to_vec());
            digits.push(body.len() - DIGITS);
        }
        message.descriptors.clear();
        message.hits_addend = self.hits;
        body.extend(message.encode_to_vec());
        let length = u32::try_from(body.len() - MESSAGE_HEAD).unwrap_or(u32::MAX);
        body[1..MESSAGE_HEAD].copy_from_slice(&length.to_be_bytes());
        (body, digits)
    }

    /// Bytes of a call's message; a frame holds [`MAX_PAYLOAD`] at most.
    pub(super) fn body_bytes(&self) -> usize {
        self.body().0.len()
    }

    pub(super) fn fits_a_frame(&self) -> bool {
        self.body_bytes() <= MAX_PAYLOAD
    }
}

/// Writes the calls of one connection.
#[derive(Debug)]
pub(super) struct Writer {
    first: Option<Template>,
    next: Template,
}

impl Writer {
    /// With `peer_remembers`, headers are spelled out once and then named by index; that needs a
    /// dynamic table of the default size at the peer.
    pub(super) fn new(question: &Question, authority: &str, peer_remembers: bool) -> Self {
        let (body, digits) = question.body();
        let template = |block: &[u8]| Template::new(block, &body, &digits);
        if !peer_remembers {
            return Self { first: None, next: template(&spelled(authority, ONCE)) };
        }
        let newest = INDEXED | (STATIC_ENTRIES + 1);
        let indexed: Vec<u8> =
            POST_OVER_HTTP.into_iter().chain((0..4).rev().map(|age| newest + age)).collect();
        Self { first: Some(template(&spelled(authority, REMEMBERED))), next: template(&indexed) }
    }

    /// Appends the next call to `out`, on `stream` and with keys of `sampler`.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, stream: u32, sampler: &mut Sampler) {
        match self.first.take() {
            Some(mut first) => first.write(out, stream, sampler),
            None => self.next.write(out, stream, sampler),
        }
    }
}

/// The header block in full, four of its fields literals of the given mark.
fn spelled(authority: &str, mark: u8) -> Vec<u8> {
    let mut block = POST_OVER_HTTP.to_vec();
    // The name's index has four bits where a literal does not enter the table.
    let content_type = if mark == ONCE {
        vec![mark | 0x0f, NAMED_CONTENT_TYPE - 0x0f]
    } else {
        vec![mark | NAMED_CONTENT_TYPE]
    };
    for (name, value) in [
        (vec![mark | NAMED_PATH], SHOULD_RATE_LIMIT),
        (vec![mark | NAMED_AUTHORITY], authority),
        (content_type, "application/grpc"),
        ([&[mark, 2], &b"te"[..]].concat(), "trailers"),
    ] {
        block.extend(name);
        put_length(&mut block, value.len());
        block.extend_from_slice(value.as_bytes());
    }
    block
}

/// The length of a plain string: seven bits, and what does not fit in groups of seven.
fn put_length(block: &mut Vec<u8>, length: usize) {
    const FULL: usize = 0x7f;
    if length < FULL {
        block.push(length as u8);
        return;
    }
    block.push(FULL as u8);
    let mut rest = length - FULL;
    while rest > FULL {
        block.push((rest & FULL) as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The HEADERS and the DATA frame of a call, one after the other.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    /// Where the two frames name their stream.
    streams: [usize; 2],
    digits: Vec<usize>,
}

impl Template {
    fn new(block: &[u8], body: &[u8], digits: &[usize]) -> Self {
        const STREAM: usize = 5;
        let mut bytes = Vec::new();
        frame::put(&mut bytes, Head { kind: kind::HEADERS, flags: END_HEADERS, stream: 0 }, block);
        let data = bytes.len();
        frame::put(&mut bytes, Head { kind: kind::DATA, flags: END_STREAM, stream: 0 }, body);
        let start = bytes.len() - body.len();
        Self {
            bytes,
            streams: [STREAM, data + STREAM],
            digits: digits.iter().map(|place| start + place).collect(),
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, stream: u32, sampler: &mut Sampler) {
        for place in self.streams {
            self.bytes[place..place + 4].copy_from_slice(&stream.to_be_bytes());
        }
        for &place in &self.digits {
            let mut key = sampler.next();
            for digit in self.bytes[place..place + DIGITS].iter_mut().rev() {
                *digit = b'0' + (key % 10) as u8;
                key /= 10;
            }
        }
        out.extend_from_slice(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Reader;
    use super::super::keys::Keys;
    use super::*;

    #[track_caller]
    fn check(question: &Question, want: &RateLimitRequest) {
        let mut sampler = Sampler::new(Keys::Unique, 1, 41, 0, 1);
        let (mut out, mut reader) = (Vec::new(), Reader::new());
        let mut writer = Writer::new(question, "localhost:8081", true);
        writer.write(&mut out, 1, &mut sampler);
        writer.write(&mut out, 3, &mut sampler);
        reader.read(&mut &out[..]).unwrap();
        let mut bodies = Vec::new();
        for (stream, kind) in
            [(1, kind::HEADERS), (1, kind::DATA), (3, kind::HEADERS), (3, kind::DATA)]
        {
            let (head, payload) = reader.next().unwrap().unwrap();
            assert_eq!((head.stream, head.kind), (stream, kind));
            bodies.push(reader.bytes(payload).to_vec());
        }
        let body = &bodies[1];
        assert_eq!(body[..5], [0, 0, 0, 0, (body.len() - 5) as u8]);
        assert_eq!(&RateLimitRequest::decode(&body[5..]).unwrap(), want);
        assert!(bodies[2].len() < 8, "the second block is made of indexes");
    }

    fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
        let entry = Entry { key: key.to_owned().into(), value: value.to_owned().into() };
        RateLimitDescriptor { entries: vec![entry], ..Default::default() }
    }

    #[test]
    fn a_call_carries_its_descriptors_and_keys() {
        let mut question = Question {
            domain: "bench".to_owned(),
            entry: "d".to_owned(),
            value: "k".to_owned(),
            descriptors: 2,
            hits: 0,
        };
        let mut want = RateLimitRequest {
            domain: "bench".to_owned(),
            descriptors: vec![descriptor("d0", "k000000041"), descriptor("d1", "k000000042")],
            hits_addend: 0,
        };
        check(&question, &want);
        (question.hits, want.hits_addend) = (3, 3);
        check(&question, &want);
    }

    #[test]
    fn long_strings_have_long_lengths() {
        for (length, want) in
            [(126, vec![126]), (127, vec![127, 0]), (254, vec![127, 127]), (300, vec![127, 173, 1])]
        {
            let mut block = Vec::new();
            put_length(&mut block, length);
            assert_eq!(block, want);
        }
    }

    #[test]
    fn what_does_not_fit_a_frame_is_told() {
        let mut question = Question {
            domain: "bench".to_owned(),
            entry: "d".to_owned(),
            value: "k".to_owned(),
            descriptors: 500,
            hits: 0,
        };
        assert!(question.fits_a_frame());
        question.descriptors = 2_000;
        assert!(!question.fits_a_frame());
    }
}
