//! AAC in MP4 (`.m4a`), with the exact length of the sound.
//!
//! ```text
//!  being written:  ftyp | free | moov, without units | moof | mdat | moof | mdat | ...
//!  complete:       ftyp | mdat (all of that)                                      | moov
//! ```
//!
//! While it grows it is a fragmented file (ISO/IEC 14496-12, 8.8), which is readable up to its last
//! whole fragment; each flush writes one. At the end an index is appended and `free` becomes the
//! head of an `mdat` around everything before it, so that the complete file is one that every
//! player seeks in, with an edit list that cuts off the delay of the encoder and the padding at the
//! end. A complete file without fragments would be lost with its process; one that stays fragmented
//! plays its delay in many players and is slow to open.
//!
//! The index takes two bytes of memory for each access unit: 340 kB for an hour at 48 kHz. A file of
//! more than a day and a half stays fragmented.

mod boxes;
mod scan;

use aulos_core::{Frames, SampleFormat};
use aulos_engine::encode::{AacConfig, AacFrameEncoder, EncodeError, UnsupportedFormat};
use aulos_proto::Patch;

use super::{FileEncoder, FileMetadata};
use boxes::{M4aIndex, M4aTrack};

pub(super) use scan::repair_m4a;

/// Encodes an M4A file.
#[derive(Debug)]
pub(super) struct M4aFileEncoder {
    encoder: AacFrameEncoder,
    index: M4aIndex,
    /// The access units of the next fragment and their lengths.
    units: Vec<u8>,
    lengths: Vec<u16>,
    frames: Frames,
}

impl M4aFileEncoder {
    pub(super) fn new(
        config: AacConfig,
        metadata: &FileMetadata,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedFormat> {
        let spec = metadata.spec(SampleFormat::F32);
        let encoder = AacFrameEncoder::new(spec, config)?;
        let format = encoder.format();
        let track = M4aTrack {
            hz: format.rate().hz(),
            channels: format.channels(),
            config: format.audio_specific_config(),
            bitrate: config.bitrate_at(spec),
        };
        let index = M4aIndex::begin(track, boxes::tags(metadata), out);
        Ok(Self { encoder, index, units: Vec::new(), lengths: Vec::new(), frames: Frames::ZERO })
    }

    fn encode(&mut self, samples: &[f32]) -> Result<(), EncodeError> {
        let lengths = &mut self.lengths;
        self.encoder.push(samples, &mut self.units, |units, before| {
            lengths.push(u16::try_from(units.len() - before).unwrap_or(u16::MAX));
        })
    }

    /// Writes the units so far as a fragment; the last one has `last` frames.
    fn end_fragment(&mut self, last: u64, out: &mut Vec<u8>) {
        self.index.push_fragment(&self.lengths, last, &self.units, out);
        self.units.clear();
        self.lengths.clear();
    }

    fn unit_count(&self) -> u64 {
        self.index.unit_count() + self.lengths.len() as u64
    }
}

impl FileEncoder for M4aFileEncoder {
    fn write(&mut self, samples: &[f32], _: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.frames += Frames::from(samples.len() / self.encoder.format().channels());
        self.encode(samples)
    }

    fn flush(&mut self, out: &mut Vec<u8>, _: &mut Vec<Patch>) {
        self.end_fragment(AacFrameEncoder::FRAMES.0, out);
    }

    fn finish(
        mut self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError> {
        // A decoder is late by the delay, so that the last frames come with one more unit.
        let unit = AacFrameEncoder::FRAMES.0;
        let wanted = self.frames.0 + AacFrameEncoder::DELAY.0;
        let silence =
            vec![0.0; self.encoder.format().channels() * AacFrameEncoder::FRAMES.as_usize()];
        // A part of a frame and the delay, and a frame for each that the library has refused.
        while self.unit_count() * unit < wanted {
            let missing = self.encoder.missing_samples();
            self.encode(silence.get(..missing).unwrap_or_default())?;
        }
        let before = self.unit_count().saturating_sub(1) * unit;
        self.end_fragment(wanted.saturating_sub(before).clamp(1, unit), out);
        self.index.finish(out, patches);
        Ok(())
    }

    fn frames(&self) -> Frames {
        self.frames
    }

    fn readable_frames(&self) -> Frames {
        self.index.frames()
    }

    fn clipped_samples(&self) -> u64 {
        self.encoder.clipped()
    }
}
