//! One rendition: samples in, frames of each segment out.

use std::collections::VecDeque;

use aulos_core::{Block, Frames, MediaTime};
use aulos_engine::encode::{AacFormat, AacGridEncoder, CodecConfig, EncodeError, Encoder};
use aulos_proto::flac::FrameRenumberer;
use aulos_proto::hls::{EventMessage, Fragment, packed_audio_tag};

use super::format::{HlsContainer, HlsFormat};

/// The encoder of a rendition.
pub(super) enum FrameEncoder {
    /// Its frames are blocks.
    Blocks(Box<dyn Encoder>),
    /// AAC in access units without a header.
    Aac(Box<AacGridEncoder>),
}

impl FrameEncoder {
    /// The encoder of a format; `make` makes those of blocks.
    pub(super) fn new(
        format: &HlsFormat,
        make: &mut dyn FnMut(&HlsFormat) -> Option<Box<dyn Encoder>>,
    ) -> Option<Self> {
        match format.codec {
            CodecConfig::Aac(config) => AacGridEncoder::new(format.spec, config, AAC_PERIOD)
                .ok()
                .map(|encoder| Self::Aac(Box::new(encoder))),
            _ => make(format).map(Self::Blocks),
        }
    }

    fn encode(&mut self, number: u64, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Blocks(encoder) => encoder.encode(block, out),
            // It agrees with every other one within twice the period, which is before the end of
            // the warm-up.
            Self::Aac(encoder) => encoder.encode(number, block.samples(), out).map(|_| ()),
        }
    }
}

/// An encoder on the grid.
pub(super) struct Rendition {
    format: HlsFormat,
    encoder: FrameEncoder,
    segment: Frames,
    /// Number of the next frame on the grid.
    next: u64,
    /// The place of the first waiting sample.
    waiting_from: MediaTime,
    waiting: Vec<f32>,
    block: Block,
    frame: Vec<u8>,
    /// The frames of the present segment.
    sizes: Vec<u32>,
    payload: Vec<u8>,
    /// Complete segments.
    complete: VecDeque<RenditionSegment>,
}

/// The frames of a segment.
pub(super) struct RenditionSegment {
    pub(super) number: u64,
    sizes: Vec<u32>,
    payload: Vec<u8>,
}

impl Rendition {
    pub(super) fn new(format: HlsFormat, encoder: FrameEncoder, segment: Frames) -> Self {
        let samples = format.frame.as_usize() * format.spec.layout.channels();
        let block = Block::with_capacity(format.spec.rate, format.spec.layout, samples);
        Self {
            format,
            encoder,
            segment,
            next: 0,
            waiting_from: MediaTime::ZERO,
            waiting: Vec::new(),
            block,
            frame: Vec::new(),
            sizes: Vec::new(),
            payload: Vec::new(),
            complete: VecDeque::new(),
        }
    }

    /// Begins anew with samples from `at` on, by a new encoder if there is one.
    pub(super) fn start(&mut self, at: MediaTime, encoder: Option<FrameEncoder>) {
        if let Some(encoder) = encoder {
            self.encoder = encoder;
        }
        let HlsFormat { frame, delay, .. } = self.format;
        self.next = at.0.saturating_sub(delay.0).div_ceil(frame.0);
        self.waiting_from = at;
        self.waiting.clear();
        self.sizes.clear();
        self.payload.clear();
        self.complete.clear();
    }

    /// Takes samples that continue what it has; keeps the segments from `first` on.
    ///
    /// # Errors
    /// When the encoder fails.
    pub(super) fn push(&mut self, samples: &[f32], first: u64) -> Result<(), EncodeError> {
        self.waiting.extend_from_slice(samples);
        let HlsFormat { frame, delay, spec, .. } = self.format;
        let channels = spec.layout.channels();
        let length = frame.as_usize() * channels;
        let mut used = 0;
        loop {
            let start = self.next * frame.0 + delay.0;
            let skipped = start.saturating_sub(self.waiting_from.0);
            let skipped = Frames(skipped).as_usize() * channels;
            let Some(samples) =
                self.waiting.get(used..).and_then(|rest| rest.get(skipped..skipped + length))
            else {
                break;
            };
            self.block.reset(spec.rate, spec.layout);
            self.block.resize(frame);
            self.block.samples_mut().copy_from_slice(samples);
            used += skipped + length;
            self.waiting_from = MediaTime(start) + frame;
            self.encode(first)?;
        }
        self.waiting.drain(..used);
        Ok(())
    }

    /// The oldest complete segment.
    pub(super) fn front(&self) -> Option<&RenditionSegment> {
        self.complete.front()
    }

    pub(super) fn pop(&mut self) -> Option<RenditionSegment> {
        self.complete.pop_front()
    }

    /// The bytes of a segment of this rendition, with its titles: `events`, or `title` alone, which
    /// holds when it begins, where nothing can be between the frames.
    pub(super) fn write(
        &self,
        segment: &RenditionSegment,
        events: &[EventMessage],
        title: Option<&str>,
    ) -> Option<Vec<u8>> {
        match self.format.container {
            HlsContainer::Fragments => self.fragment(segment, events),
            HlsContainer::Packed => self.packed(segment, title),
        }
    }

    fn packed(&self, segment: &RenditionSegment, title: Option<&str>) -> Option<Vec<u8>> {
        let format = AacFormat::new(self.format.spec).ok()?;
        let samples = u128::from(segment.number) * u128::from(self.segment.0);
        let ticks = samples * TICKS_PER_SECOND / u128::from(self.format.spec.rate.hz());
        let mut out = packed_audio_tag(u64::try_from(ticks).ok()?, title);
        let mut rest = &*segment.payload;
        for size in &segment.sizes {
            let (unit, behind) = rest.split_at_checked(usize::try_from(*size).ok()?)?;
            out.extend_from_slice(&format.adts_header(unit.len()));
            out.extend_from_slice(unit);
            rest = behind;
        }
        Some(out)
    }

    fn fragment(&self, segment: &RenditionSegment, events: &[EventMessage]) -> Option<Vec<u8>> {
        let fragment = Fragment {
            sequence: segment.number,
            decode_time: segment.number * self.segment.0,
            timescale: self.format.spec.rate.hz(),
            frame_duration: u32::try_from(self.format.frame.0).ok()?,
            sizes: &segment.sizes,
            payload: &segment.payload,
            events,
        };
        fragment.write()
    }

    /// Encodes the block, which is frame `next`.
    fn encode(&mut self, first: u64) -> Result<(), EncodeError> {
        let Self { block, frame, format, payload, sizes, .. } = self;
        frame.clear();
        let number = self.next;
        self.encoder.encode(number, block, frame)?;
        self.next += 1;
        let segment = number * format.frame.0 / self.segment.0;
        if segment < first {
            return Ok(());
        }
        let before = payload.len();
        if format.has_memory {
            payload.extend_from_slice(frame);
        } else {
            FrameRenumberer::starting_at(number).write(frame, payload);
        }
        sizes.push(u32::try_from(payload.len() - before).map_err(|_| EncodeError::Codec)?);
        if (self.next * format.frame.0).is_multiple_of(self.segment.0) {
            let (sizes, payload) = (std::mem::take(sizes), std::mem::take(payload));
            self.complete.push_back(RenditionSegment { number: segment, sizes, payload });
        }
        Ok(())
    }
}

/// The units of timestamps of MPEG-2.
const TICKS_PER_SECOND: u128 = 90_000;

/// Frames after which an encoder of AAC begins anew: 1.6 s.
const AAC_PERIOD: u64 = 75;
