//! Comparison of clocks: a request and its reply, by which an edge learns an origin's clock.
//!
//! The reply names the origin's times, and not a difference of them alone, so that the edge gets
//! two one-way times and not only their sum.

use aulos_core::{Instant, Span};

use super::{RecordError, put_head, read_head};
use crate::bytes::Reader;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the sender fills in")]
pub struct ClockRequest {
    /// Which reply belongs to it.
    pub id: u16,
    /// When it was sent, on the edge's clock.
    pub sent: Instant,
}

/// The reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the sender fills in")]
pub struct ClockReply {
    /// That of the request.
    pub id: u16,
    /// From the sending of the request to its arrival, each on its own clock.
    pub latency: Span,
    /// When the reply was sent, on the origin's clock.
    pub sent: Instant,
}

impl ClockRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let (id, [sent]) = read(bytes, REQUEST_MAGIC)?;
        Ok(Self { id, sent: instant(sent)? })
    }

    /// Appends the encoded request.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_head(out, REQUEST_MAGIC, self.id);
        out.extend_from_slice(&self.sent.as_nanos().to_le_bytes());
    }
}

impl ClockReply {
    /// Parses a reply.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let (id, [latency, sent]) = read(bytes, REPLY_MAGIC)?;
        let latency = Span::from_nanos(i64::from_le_bytes(latency));
        Ok(Self { id, latency, sent: instant(sent)? })
    }

    /// Appends the encoded reply.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_head(out, REPLY_MAGIC, self.id);
        out.extend_from_slice(&self.latency.as_nanos().to_le_bytes());
        out.extend_from_slice(&self.sent.as_nanos().to_le_bytes());
    }
}

/// Reads the id and `N` fields of eight bytes; no more may follow.
fn read<const N: usize>(bytes: &[u8], magic: [u8; 4]) -> Result<(u16, [[u8; 8]; N]), RecordError> {
    let mut reader = Reader::new(bytes);
    let id = read_head(&mut reader, magic)?;
    let mut fields = [[0; 8]; N];
    for field in &mut fields {
        *field = reader.array().ok_or(RecordError::Truncated)?;
    }
    if reader.rest().is_empty() { Ok((id, fields)) } else { Err(RecordError::TooLarge) }
}

/// A time before the origin of its clock cannot be.
fn instant(bytes: [u8; 8]) -> Result<Instant, RecordError> {
    let nanos = i64::from_le_bytes(bytes);
    u64::try_from(nanos).map(Instant::from_nanos).map_err(|_| RecordError::Field)
}

const REQUEST_MAGIC: [u8; 4] = *b"AULq";
const REPLY_MAGIC: [u8; 4] = *b"AULr";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            id in any::<u16>(),
            sent in 0..=i64::MAX as u64,
            latency in any::<i64>(),
        ) {
            let sent = Instant::from_nanos(sent);
            let (mut request_bytes, mut reply_bytes) = (Vec::new(), Vec::new());
            let request = ClockRequest { id, sent };
            request.write(&mut request_bytes);
            let reply = ClockReply { id, latency: Span::from_nanos(latency), sent };
            reply.write(&mut reply_bytes);
            prop_assert_eq!(ClockRequest::parse(&request_bytes), Ok(request));
            prop_assert_eq!(ClockReply::parse(&reply_bytes), Ok(reply));
            prop_assert_eq!(ClockReply::parse(&request_bytes), Err(RecordError::Magic));
            for cut in 0..reply_bytes.len() {
                prop_assert_eq!(ClockReply::parse(&reply_bytes[..cut]), Err(RecordError::Truncated));
            }
            reply_bytes.push(0);
            prop_assert_eq!(ClockReply::parse(&reply_bytes), Err(RecordError::TooLarge));
        }
    }
}
