//! HTTP/2 frames: writing them, and finding them in what a socket delivers.

use std::io::{self, Read};
use std::ops::Range;

/// What a client says first, RFC 9113 section 3.4.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const HEAD_BYTES: usize = 9;
/// Largest payload either side sends, as the generator asks for no other.
pub(super) const MAX_PAYLOAD: usize = 16_384;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

pub(super) mod kind {
    pub(in crate::cli::bench) const DATA: u8 = 0;
    pub(in crate::cli::bench) const HEADERS: u8 = 1;
    pub(in crate::cli::bench) const RST_STREAM: u8 = 3;
    pub(in crate::cli::bench) const SETTINGS: u8 = 4;
    pub(in crate::cli::bench) const PING: u8 = 6;
    pub(in crate::cli::bench) const GOAWAY: u8 = 7;
    pub(in crate::cli::bench) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::cli::bench) const CONTINUATION: u8 = 9;
}

/// Room for what arrives between two reads.
const BUFFER_BYTES: usize = 256 * 1024;
/// Largest read that a frame cut off by the last one may need.
const LEAST_ROOM: usize = HEAD_BYTES + MAX_PAYLOAD;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame to `out`. The payload is at most [`MAX_PAYLOAD`] long.
pub(super) fn put(out: &mut Vec<u8>, head: Head, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[head.kind, head.flags]);
    out.extend_from_slice(&head.stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a setting to the payload of a SETTINGS frame.
pub(super) fn put_setting(payload: &mut Vec<u8>, id: u16, value: u32) {
    payload.extend_from_slice(&id.to_be_bytes());
    payload.extend_from_slice(&value.to_be_bytes());
}

/// The settings in the payload of a SETTINGS frame.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload
        .as_chunks::<6>()
        .0
        .iter()
        .map(|&[a, b, value @ ..]| (u16::from_be_bytes([a, b]), u32::from_be_bytes(value)))
}

/// A big-endian number at the start of `payload`.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// A frame is longer than the generator allows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// What has arrived and is not taken up yet.
pub(super) struct Reader {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 }
    }

    /// Reads once from `socket`; 0 is its end.
    pub(super) fn read(&mut self, socket: &mut impl Read) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < LEAST_ROOM {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let got = socket.read(&mut self.buffer[self.end..])?;
        self.end += got;
        Ok(got)
    }

    /// Takes the next whole frame: its head, and where its payload lies for [`Self::bytes`]
    /// until the next read.
    pub(super) fn next(&mut self) -> Result<Option<(Head, Range<usize>)>, TooLong> {
        let Some(&[a, b, c, kind, flags, stream @ ..]) =
            self.buffer[self.start..self.end].first_chunk::<HEAD_BYTES>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > MAX_PAYLOAD {
            return Err(TooLong);
        }
        let payload = self.start + HEAD_BYTES..self.start + HEAD_BYTES + length;
        if payload.end > self.end {
            return Ok(None);
        }
        self.start = payload.end;
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Ok(Some((Head { kind, flags, stream }, payload)))
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// All that has arrived and is not taken up yet.
    pub(super) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head { kind: kind::DATA, flags: END_STREAM, stream: 7 };

    #[test]
    fn frames_come_back_whole_however_they_arrive() {
        let mut sent = Vec::new();
        for length in [0, 1, 300, MAX_PAYLOAD] {
            put(&mut sent, HEAD, &vec![length as u8; length]);
        }
        for step in [1, 7, 4_000, sent.len()] {
            let (mut reader, mut got) = (Reader::new(), Vec::new());
            for mut part in sent.chunks(step) {
                reader.read(&mut part).unwrap();
                while let Some((head, payload)) = reader.next().unwrap() {
                    assert_eq!(head, HEAD);
                    got.push(reader.bytes(payload).to_vec());
                }
            }
            let want: Vec<_> =
                [0, 1, 300, MAX_PAYLOAD].map(|length| vec![length as u8; length]).into();
            assert_eq!(got, want, "in steps of {step}");
            assert!(reader.pending().is_empty());
        }
    }

    #[test]
    fn room_is_made_for_a_frame_that_is_cut_off() {
        let mut frame = Vec::new();
        put(&mut frame, HEAD, &[1; MAX_PAYLOAD]);
        let stream = frame.repeat(100);
        let (mut rest, mut reader, mut count) = (&stream[..], Reader::new(), 0);
        while reader.read(&mut rest).unwrap() > 0 {
            while reader.next().unwrap().is_some() {
                count += 1;
            }
        }
        assert_eq!(count, 100);
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused() {
        let mut reader = Reader::new();
        reader.read(&mut &b"\x00\x40\x01\x00\x00\x00\x00\x00\x01"[..]).unwrap();
        assert_eq!(reader.next(), Err(TooLong));
    }

    #[test]
    fn settings_are_read_as_written() {
        let mut payload = Vec::new();
        put_setting(&mut payload, 3, 100);
        put_setting(&mut payload, 4, u32::MAX);
        assert_eq!(settings(&payload).collect::<Vec<_>>(), [(3, 100), (4, u32::MAX)]);
    }
}
