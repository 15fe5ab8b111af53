//! gRPC's framing of a unary call on HTTP/2: one message in, one message and a status out.
//!
//! Source: the gRPC project's "gRPC over HTTP2" protocol. The gRPC library's own codec serves
//! streams and compression too and costs a third of a call; this is what one unary method needs.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{HeaderName, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use prost::Message;
use tonic::Status;

use crate::api::status;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");
/// A flag for compression, and the length in four bytes.
pub const MESSAGE_HEAD: usize = 5;

/// Refuses a call whose messages are compressed.
///
/// # Errors
///
/// The encoding is another one than `identity`.
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(&GRPC_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(status::compressed(encoding.as_bytes())),
        _ => Ok(()),
    }
}

/// Whether `framed` is exactly one message that is not compressed.
pub fn is_whole(framed: &[u8]) -> bool {
    head(framed)
        .is_some_and(|(compressed, length)| !compressed && framed.len() - MESSAGE_HEAD == length)
}

/// Whether the message is compressed, and its length, once that much is there.
fn head(framed: &[u8]) -> Option<(bool, usize)> {
    let &[compressed, length @ ..] = framed.first_chunk::<MESSAGE_HEAD>()?;
    Some((compressed != 0, usize::try_from(u32::from_be_bytes(length)).ok()?))
}

/// Gathers the one message of a call.
#[derive(Debug)]
pub struct Reader {
    body: Incoming,
    /// What has come so far, with the head.
    gathered: Bytes,
    most: usize,
}

impl Reader {
    /// `most`: bytes that the message may have.
    pub fn new(body: Incoming, most: usize) -> Self {
        Self { body, gathered: Bytes::new(), most }
    }

    /// The message, once the caller has sent it all.
    ///
    /// # Errors
    ///
    /// It is too large, compressed, not the only one, or the stream broke off.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        while let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Err(status::broken_stream(&error))),
            };
            let Ok(data) = frame.into_data() else { continue };
            if self.gathered.is_empty() {
                self.gathered = data;
            } else {
                let mut joined = BytesMut::from(std::mem::take(&mut self.gathered));
                joined.extend_from_slice(&data);
                self.gathered = joined.freeze();
            }
            if let Err(status) = self.check_so_far() {
                return Poll::Ready(Err(status));
            }
            if self.body.is_end_stream() {
                break;
            }
        }
        if !is_whole(&self.gathered) {
            return Poll::Ready(Err(status::no_message()));
        }
        Poll::Ready(Ok(std::mem::take(&mut self.gathered).split_off(MESSAGE_HEAD)))
    }

    /// Faults that show before all is there, so that nothing gathers without bound.
    fn check_so_far(&self) -> Result<(), Status> {
        let Some((compressed, length)) = head(&self.gathered) else { return Ok(()) };
        if compressed {
            return Err(status::compressed(b"unnamed"));
        }
        if length > self.most {
            return Err(status::long_message(length, self.most));
        }
        if self.gathered.len() > MESSAGE_HEAD + length {
            return Err(status::several_messages());
        }
        Ok(())
    }
}

/// The answer to a call that worked.
pub fn reply(message: &impl Message) -> Response<ReplyBody> {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(MESSAGE_HEAD + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut framed);
    let mut response = Response::new(ReplyBody(Part::Message(framed.freeze())));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// The body of a reply.
#[derive(Debug, Default)]
pub struct ReplyBody(Part);

/// What is yet to be sent.
#[derive(Debug, Default)]
enum Part {
    Message(Bytes),
    /// The status OK.
    Trailers,
    #[default]
    Nothing,
    Other(tonic::body::Body),
}

impl From<tonic::body::Body> for ReplyBody {
    fn from(body: tonic::body::Body) -> Self {
        Self(Part::Other(body))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Part::Other(body) = &mut self.0 {
            return Pin::new(body).poll_frame(context);
        }
        let frame = match std::mem::take(&mut self.0) {
            Part::Message(framed) => {
                self.0 = Part::Trailers;
                Frame::data(framed)
            }
            Part::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, OK);
                Frame::trailers(trailers)
            }
            Part::Nothing | Part::Other(_) => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Part::Message(_) | Part::Trailers => false,
            Part::Nothing => true,
            Part::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Part::Other(body) => body.size_hint(),
            // An exact size would be sent as a header.
            _ => SizeHint::default(),
        }
    }
}
