//! The body of an answer: bytes at hand, or pieces that are made while the client reads.
//!
//! Pieces are pulled, never pushed: a list or a watch holds no buffer of its own, and a client that does not read costs a cursor.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};

/// See the module's notes.
pub struct Body(Inner);

enum Inner {
    Empty,
    Full(Bytes),
    /// Made without waiting, one after the other.
    Pieces(Box<dyn Iterator<Item = Bytes> + Send>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    pub fn empty() -> Self {
        Self(Inner::Empty)
    }

    /// Pieces as they come; the end of the stream ends the body.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Inner::Stream(Box::pin(stream)))
    }

    /// Pieces computed on demand without waiting.
    pub fn pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self(Inner::Pieces(Box::new(pieces)))
    }

    /// The pieces of a body made by [`Body::pieces`]; any other body comes back.
    pub fn into_pieces(self) -> Result<Box<dyn Iterator<Item = Bytes> + Send>, Self> {
        match self.0 {
            Inner::Pieces(pieces) => Ok(pieces),
            other => Err(Self(other)),
        }
    }

    /// The same body, which keeps `held` until it is read or dropped.
    #[must_use]
    pub fn holding<T: Send + Unpin + 'static>(self, held: T) -> Self {
        match self.0 {
            Inner::Stream(stream) => Self(Inner::Stream(Box::pin(Holding { stream, _held: held }))),
            at_hand => Self(at_hand),
        }
    }

    /// The bytes, if they are all at hand.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Inner::Empty => Some(&[]),
            Inner::Full(bytes) => Some(bytes),
            Inner::Pieces(_) | Inner::Stream(_) => None,
        }
    }
}

struct Holding<T> {
    stream: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    _held: T,
}

impl<T: Unpin> Stream for Holding<T> {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Inner::Full(bytes))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Full(bytes.into()))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self(Inner::Full(text.into()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Empty => Poll::Ready(None),
            Inner::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Inner::Empty;
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Inner::Pieces(pieces) => Poll::Ready(pieces.next().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Stream(stream) => stream.as_mut().poll_next(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Empty => true,
            Inner::Full(bytes) => bytes.is_empty(),
            Inner::Pieces(_) | Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Pieces(_) | Inner::Stream(_) => SizeHint::default(),
        }
    }
}
