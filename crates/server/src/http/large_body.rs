//! Response bodies that may be large: how long they may stay in memory.
//!
//! A body is given to hyper in pieces. One that its peer reads too slowly ends with an error, which
//! closes the connection; one that is not read at all is closed by `socket`. In one piece, a peer
//! that reads a byte now and then would keep megabytes for hours.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aulos_control::{Answer, AnswerPermit, Control, count};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bytes of a piece; hyper asks for the next one when less than this waits in its buffer.
const PIECE: usize = 64 << 10;

/// Time limit for all pieces of a text: a full status has four megabytes.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A text that is being sent.
#[derive(Debug)]
struct Pieces {
    rest: Bytes,
    deadline: Instant,
}

impl Pieces {
    fn new(text: Bytes) -> Self {
        Self { rest: text, deadline: Instant::now() + READ_TIMEOUT }
    }

    /// The next piece; `None` at the end.
    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.rest.is_empty() {
            return None;
        }
        if Instant::now() > self.deadline {
            self.rest = Bytes::new();
            return Some(Err(io::ErrorKind::TimedOut.into()));
        }
        Some(Ok(self.rest.split_to(PIECE.min(self.rest.len()))))
    }
}

/// Counts the connection that a piece ends.
fn counted(piece: io::Result<Bytes>, control: &Control) -> io::Result<Bytes> {
    piece.inspect_err(|_| count(&control.counters.controllers_cut_slow))
}

/// A text with the permit that it needs while it is in memory.
struct PermittedText<T> {
    text: T,
    _permit: AnswerPermit,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for PermittedText<T> {
    fn as_ref(&self) -> &[u8] {
        self.text.as_ref()
    }
}

/// Bytes that hold a permit until the last piece of them is dropped.
pub(super) fn permitted<T>(text: T, permit: Option<AnswerPermit>) -> Bytes
where
    T: AsRef<[u8]> + Into<Bytes> + Send + 'static,
{
    match permit {
        Some(permit) => Bytes::from_owner(PermittedText { text, _permit: permit }),
        None => text.into(),
    }
}

/// A response with an answer of the control API.
pub(super) fn answer_response(control: &Arc<Control>, answer: Answer) -> Response {
    let (text, permit) = answer.into_parts();
    let body =
        LargeBody { pieces: Pieces::new(permitted(text, permit)), control: Arc::clone(control) };
    ([(CONTENT_TYPE, "application/json")], Body::new(body)).into_response()
}

/// A body of known length.
#[derive(Debug)]
struct LargeBody {
    pieces: Pieces,
    control: Arc<Control>,
}

impl HttpBody for LargeBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        let piece = this.pieces.next().map(|piece| counted(piece, &this.control));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.rest.len() as u64)
    }
}

/// A body without an end: texts one after the other.
#[derive(Debug)]
pub(super) struct EventBody {
    events: mpsc::Receiver<Bytes>,
    pieces: Pieces,
    control: Arc<Control>,
}

impl EventBody {
    pub(super) fn new(control: Arc<Control>, events: mpsc::Receiver<Bytes>) -> Self {
        Self { events, pieces: Pieces::new(Bytes::new()), control }
    }
}

impl Stream for EventBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.pieces.next() {
                return Poll::Ready(Some(counted(piece, &this.control)));
            }
            match this.events.poll_recv(context) {
                Poll::Ready(Some(event)) => this.pieces = Pieces::new(event),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_text_is_sent_in_pieces_and_not_for_longer_than_the_limit() {
        let text: Vec<u8> = (0..=250).cycle().take(3 * PIECE + 1).collect();
        let mut pieces = Pieces::new(text.clone().into());
        let sent: Vec<Bytes> = std::iter::from_fn(|| pieces.next()).map(Result::unwrap).collect();
        assert_eq!((sent.concat(), sent.len()), (text.clone(), 4));
        let mut pieces = Pieces::new(text.into());
        assert!(pieces.next().unwrap().is_ok());
        tokio::time::advance(READ_TIMEOUT + Duration::from_millis(1)).await;
        assert_eq!(pieces.next().unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(pieces.next().is_none());
    }
}
