//! MPEG audio and ADTS in the bytes of an elementary stream.

use super::super::input_buffer::InputBuffer;
use super::super::sniff::{SniffResult, Sniffer, StreamKind};
use super::super::{ReaderStep, SplitterEvent, adts, mpeg};
use super::unit_times::Unit;

/// Reader of frames.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    input: InputBuffer,
    format: Option<Format>,
    /// A frame is being searched for, behind so many bytes that belong to none.
    garbage: Option<u64>,
}

#[derive(Debug)]
enum Format {
    Mpeg(mpeg::Reader),
    Adts(adts::Reader),
}

impl FrameReader {
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        self.input.push(bytes)
    }

    /// Drops the beginning of a frame, because what follows does not continue it.
    pub(super) fn discontinue(&mut self) {
        self.input.clear();
    }

    /// Ends the input; false when it had ended.
    pub(super) const fn finish(&mut self) -> bool {
        let is_open = !self.input.is_ended();
        self.input.end();
        is_open
    }

    pub(super) fn next(&mut self, packet: &mut Vec<u8>) -> Option<Unit> {
        loop {
            if (self.garbage.is_some() || self.format.is_none())
                && let Some(garbage) = self.find()?
            {
                return Some((SplitterEvent::Lost(garbage), self.input.position()));
            }
            let at = self.input.position();
            let step = match self.format.as_mut()? {
                Format::Mpeg(mpeg) => mpeg.next(&mut self.input, packet),
                Format::Adts(adts) => adts.next(&mut self.input, packet),
            };
            match step {
                ReaderStep::Found(event) => return Some((event, at)),
                ReaderStep::Consumed => {}
                ReaderStep::Lost(skip) => self.lose(skip),
                ReaderStep::NeedMore if self.input.is_full() => self.lose(1),
                ReaderStep::NeedMore if self.input.is_ended() && !self.input.bytes().is_empty() => {
                    self.lose(1);
                }
                _ => return None,
            }
        }
    }

    fn lose(&mut self, skip: u64) {
        self.garbage = Some(skip);
        self.input.skip(skip);
    }

    /// Searches for a frame; `None` when there is none yet, otherwise the bytes before it if they
    /// follow others.
    fn find(&mut self) -> Option<Option<u64>> {
        let look = Sniffer { ended: self.input.is_ended(), is_flac: false, is_elementary: true };
        let (at, found) = look.find_start(self.input.bytes(), false);
        let garbage = self.garbage.unwrap_or(0) + at as u64;
        self.input.skip(at as u64);
        self.garbage = Some(garbage);
        let SniffResult::Start(kind) = found else { return None };
        let previous = self.format.take();
        let is_continued = previous.is_some();
        self.format = Some(match (kind, previous) {
            (StreamKind::Adts, Some(Format::Adts(adts))) => Format::Adts(adts),
            (StreamKind::Adts, _) => Format::Adts(adts::Reader::default()),
            (_, Some(Format::Mpeg(mpeg))) => Format::Mpeg(mpeg),
            _ => Format::Mpeg(mpeg::Reader::default()),
        });
        self.garbage = None;
        Some(Some(garbage).filter(|garbage| is_continued && *garbage > 0))
    }
}
