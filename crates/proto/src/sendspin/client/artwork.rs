//! The picture that a server shows: one channel, put together from its parts.

use std::sync::Arc;

use aulos_core::Instant;

use super::output::SendspinClientEvent;
use crate::sendspin::artwork::ArtworkFrame;
use crate::sendspin::dialect::Dialect;
use crate::sendspin::frame::instant;

/// The pictures of a connection.
#[derive(Debug, Default)]
pub(super) struct ArtworkReceiver {
    has_stream: bool,
    pending: Option<PendingPicture>,
}

/// A picture of which parts are missing.
#[derive(Debug)]
struct PendingPicture {
    at: Instant,
    size: usize,
    bytes: Vec<u8>,
}

/// A message that makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedArtwork;

impl ArtworkReceiver {
    /// The server has said which channels it sends.
    pub(super) fn begin(&mut self) {
        self.has_stream = true;
    }

    /// There are no pictures any more; whether there could be some.
    pub(super) fn end(&mut self) -> bool {
        self.pending = None;
        core::mem::take(&mut self.has_stream)
    }

    /// Takes a message. The parts of a picture that is passed over are passed over too.
    pub(super) fn push(
        &mut self,
        dialect: Dialect,
        message: &[u8],
    ) -> Result<Option<SendspinClientEvent>, MalformedArtwork> {
        let (channel, frame) =
            ArtworkFrame::parse(dialect.info(), message).ok_or(MalformedArtwork)?;
        if channel != 0 || !self.has_stream {
            return Ok(None);
        }
        match frame {
            ArtworkFrame::Begin { at, size } => {
                self.pending = None;
                let at = instant(at).ok_or(MalformedArtwork)?;
                if size == 0 {
                    return Ok(Some(SendspinClientEvent::Artwork(at, None)));
                }
                let size = usize::try_from(size).ok().filter(|size| *size <= MAX_ARTWORK);
                let size = size.ok_or(MalformedArtwork)?;
                self.pending = Some(PendingPicture { at, size, bytes: Vec::new() });
                Ok(Some(SendspinClientEvent::ArtworkDropped))
            }
            ArtworkFrame::Part(bytes) => {
                let Some(mut picture) = self.pending.take() else { return Ok(None) };
                if bytes.is_empty() || bytes.len() > picture.size - picture.bytes.len() {
                    return Err(MalformedArtwork);
                }
                picture.bytes.extend_from_slice(bytes);
                if picture.bytes.len() < picture.size {
                    self.pending = Some(picture);
                    return Ok(None);
                }
                let bytes = Some(Arc::from(picture.bytes));
                Ok(Some(SendspinClientEvent::Artwork(picture.at, bytes)))
            }
            ArtworkFrame::Cancel => {
                self.pending = None;
                Ok(Some(SendspinClientEvent::ArtworkDropped))
            }
            ArtworkFrame::Whole { at, picture } => {
                let at = instant(at).ok_or(MalformedArtwork)?;
                let picture = (!picture.is_empty()).then(|| Arc::from(picture));
                Ok(Some(SendspinClientEvent::Artwork(at, picture)))
            }
        }
    }
}

/// Bytes of a picture; one of this size that is nothing but noise has half of it.
const MAX_ARTWORK: usize = 1 << 20;

/// The longest message of a server: a picture in fragments, with its header.
pub(super) const MAX_MESSAGE: usize = MAX_ARTWORK + 16;

#[cfg(test)]
mod tests {
    use super::*;

    const C: Dialect = Dialect::Current;

    fn push(
        receiver: &mut ArtworkReceiver,
        channel: usize,
        frame: ArtworkFrame<'_>,
    ) -> Result<Option<SendspinClientEvent>, MalformedArtwork> {
        let mut message = Vec::new();
        frame.write(channel, &mut message);
        receiver.push(C, &message)
    }

    fn receiver() -> ArtworkReceiver {
        let mut receiver = ArtworkReceiver::default();
        receiver.begin();
        receiver
    }

    #[test]
    fn another_begin_or_a_cancel_ends_what_has_begun() {
        let mut receiver = receiver();
        let dropped = Ok(Some(SendspinClientEvent::ArtworkDropped));
        let begin = |size| ArtworkFrame::Begin { at: 7, size };
        assert_eq!(push(&mut receiver, 0, begin(3)), dropped);
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Part(&[1, 2])), Ok(None));
        assert_eq!(push(&mut receiver, 0, begin(2)), dropped);
        // Another channel is none of ours.
        assert_eq!(push(&mut receiver, 1, ArtworkFrame::Part(&[9; 9])), Ok(None));
        let shown = |bytes: &[u8]| {
            let at = Instant::from_nanos(7_000);
            Ok(Some(SendspinClientEvent::Artwork(at, Some(Arc::from(bytes)))))
        };
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Part(&[3, 4])), shown(&[3, 4]));
        assert_eq!(push(&mut receiver, 0, begin(2)), dropped);
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Cancel), dropped);
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Part(&[5, 6])), Ok(None));
        let none = SendspinClientEvent::Artwork(Instant::from_nanos(7_000), None);
        assert_eq!(push(&mut receiver, 0, begin(0)), Ok(Some(none)));
        assert!(receiver.end() && !receiver.end());
        assert_eq!(push(&mut receiver, 0, begin(2)), Ok(None));
    }

    #[test]
    fn what_lies_about_its_size_is_passed_over() {
        let mut receiver = receiver();
        let begin = |at, size| ArtworkFrame::Begin { at, size };
        assert_eq!(push(&mut receiver, 0, begin(7, u32::MAX)), Err(MalformedArtwork));
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Part(&[1; 100])), Ok(None));
        assert_eq!(push(&mut receiver, 0, begin(-1, 5)), Err(MalformedArtwork));
        push(&mut receiver, 0, begin(7, 5)).unwrap();
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Part(&[1; 6])), Err(MalformedArtwork));
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Part(&[1; 5])), Ok(None));
        push(&mut receiver, 0, begin(7, 5)).unwrap();
        assert_eq!(push(&mut receiver, 0, ArtworkFrame::Part(&[])), Err(MalformedArtwork));
        assert_eq!(receiver.push(C, &[8, 77]), Err(MalformedArtwork));
        assert_eq!(receiver.push(Dialect::FirstNoise, &[8, 0]), Err(MalformedArtwork));
    }
}
