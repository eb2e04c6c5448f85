//! MP3 files with the exact length of the sound.
//!
//! Encoder and decoder delay the sound; the Info frame states by how much, and players remove it.
//! At the end silence is appended until all sound is in MP3 frames.

use aulos_core::{Codec, Frames, SampleFormat};
use aulos_engine::encode::{EncodeError, Encoder as _, Mp3Config, Mp3Encoder, UnsupportedFormat};
use aulos_io::encoder::make_mp3_encoder;
use aulos_proto::Patch;
use aulos_proto::mp3::{DECODER_DELAY, Mp3Info, Mp3Totals, crc16, id3_tag};

use super::{FileEncoder, FileMetadata};

/// Encodes an MP3 file.
#[derive(Debug)]
pub(super) struct Mp3FileEncoder {
    encoder: Mp3Encoder,
    info: Mp3Info,
    totals: Mp3Totals,
    frames: Frames,
    readable_frames: Frames,
}

impl Mp3FileEncoder {
    pub(super) fn new(
        config: Mp3Config,
        metadata: &FileMetadata,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedFormat> {
        let spec = metadata.spec(SampleFormat::F32);
        // Any number of frames is encoded at once.
        let encoder = make_mp3_encoder(config, spec, Frames::ZERO)?;
        let (shape, start) = (encoder.shape(), out.len());
        let date = metadata.date().to_string();
        let tags = [
            ("TIT2", metadata.title.as_str()),
            // ISO 8601 in UTC, without a zone.
            ("TDRC", date.trim_end_matches('Z')),
            ("TIME_REFERENCE", &metadata.time_reference.0.to_string()),
        ];
        id3_tag(tags.into_iter(), out);
        let at = (out.len() - start) as u64;
        let delay = u16::try_from(encoder.delay().0).unwrap_or(u16::MAX);
        let info = Mp3Info::new(shape.hz, shape.channels, shape.kbps, delay, at)
            .ok_or(UnsupportedFormat::Rate(Codec::Mp3))?;
        out.extend_from_slice(info.bytes());
        let (frames, readable_frames) = (Frames::ZERO, Frames::ZERO);
        Ok(Self { encoder, info, totals: Mp3Totals::default(), frames, readable_frames })
    }

    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let encoded = self.encoder.encode_samples(samples, out);
        let added = out.get(start..).unwrap_or_default();
        self.totals.bytes += added.len() as u64;
        self.totals.crc = crc16(self.totals.crc, added);
        encoded
    }

    /// Length of the MP3 frames so far.
    fn length(&self) -> u64 {
        self.encoder.frame_count() * self.encoder.shape().frames().0
    }

    fn patch_info(&mut self, padding: u64, patches: &mut Vec<Patch>) {
        self.totals.frames = u32::try_from(self.encoder.frame_count()).unwrap_or(u32::MAX);
        self.totals.padding = u16::try_from(padding).unwrap_or(u16::MAX);
        self.info.set_totals(self.totals);
        patches.extend(self.info.patches());
        let cut = u64::from(self.info.delay()) + padding;
        self.readable_frames = Frames(self.length().saturating_sub(cut));
    }
}

impl FileEncoder for Mp3FileEncoder {
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.frames += Frames::from(samples.len() / self.encoder.shape().channels);
        self.encode(samples, out)
    }

    fn flush(&mut self, _: &mut Vec<u8>, patches: &mut Vec<Patch>) {
        self.patch_info(DECODER_DELAY.into(), patches);
    }

    fn finish(
        mut self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError> {
        let delays = u64::from(self.info.delay()) + u64::from(DECODER_DELAY);
        let shape = self.encoder.shape();
        let silence = vec![0.0; shape.frames().as_usize() * shape.channels];
        // A part of a frame, the delays, and what a library holds back.
        for _ in 0..MAX_LAST_FRAMES {
            if self.length() >= self.frames.0 + delays && self.encoder.frame_count() >= MIN_FRAMES {
                break;
            }
            self.encode(&silence, out)?;
        }
        let padding = self.length().saturating_sub(u64::from(self.info.delay()) + self.frames.0);
        self.patch_info(padding, patches);
        Ok(())
    }

    fn frames(&self) -> Frames {
        self.frames
    }

    fn readable_frames(&self) -> Frames {
        self.readable_frames
    }

    fn clipped_samples(&self) -> u64 {
        self.encoder.clipped()
    }
}

/// Frames of silence at the end at most.
const MAX_LAST_FRAMES: usize = 8;

/// Decoders recognize a file by two frames.
const MIN_FRAMES: u64 = 2;
