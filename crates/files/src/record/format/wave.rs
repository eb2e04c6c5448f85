//! WAVE files: samples behind a header that states their number.

use aulos_core::{ChannelLayout, Frames, SampleFormat};
use aulos_dsp::Dither;
use aulos_engine::encode::EncodeError;
use aulos_proto::Patch;
use aulos_proto::wav::{
    BroadcastExtension, BroadcastLoudness, FileTooLong, SizeFields, UnsupportedWavFormat,
    WavFileHeader,
};

use super::{FileEncoder, FileMetadata, SegmentLoudness, WavEncoding};

/// Encodes a WAVE file. Samples that are no integers of its format are dithered ([`Dither`]).
#[derive(Debug)]
pub(crate) struct WaveFileEncoder {
    size_fields: SizeFields,
    format: SampleFormat,
    channels: u64,
    sample_count: u64,
    readable_frames: Frames,
    dither: Dither,
    clipped_samples: u64,
    /// Offset of the `bext` chunk, whose loudness is patched at the end.
    broadcast_offset: Option<u64>,
    loudness: Option<BroadcastLoudness>,
}

pub(super) fn make_encoder(
    encoding: WavEncoding,
    metadata: &FileMetadata,
    out: &mut Vec<u8>,
) -> WaveFileEncoder {
    let spec = metadata.spec(encoding.format());
    let coding_history = coding_history(metadata, encoding);
    let broadcast = BroadcastExtension {
        description: &metadata.title,
        originator: "aulos",
        originator_reference: &metadata.reference,
        origination: metadata.date(),
        time_reference: metadata.time_reference.0,
        coding_history: &coding_history,
    };
    let channel_mask = channel_mask(metadata.layout);
    let header =
        WavFileHeader { spec, channel_mask, reserve_ds64: true, broadcast: Some(broadcast) };
    let encoder = WaveFileEncoder::new(&header, out);
    encoder.unwrap_or_else(|UnsupportedWavFormat(format)| unreachable!("WAVE has {format}"))
}

impl WaveFileEncoder {
    /// Begins a file: appends its header to `out`.
    pub(crate) fn new(
        header: &WavFileHeader<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedWavFormat> {
        Ok(Self {
            size_fields: SizeFields::emit_header(header, out)?,
            format: header.spec.format,
            channels: header.spec.layout.channels() as u64,
            sample_count: 0,
            readable_frames: Frames(0),
            dither: Dither::default(),
            clipped_samples: 0,
            broadcast_offset: header.broadcast_offset(),
            loudness: None,
        })
    }

    /// Makes the file RF64 from `max` bytes on.
    #[cfg(test)]
    pub(crate) fn with_max_riff_size(self, max_riff_size: u64) -> Self {
        Self { size_fields: self.size_fields.with_max_riff_size(max_riff_size), ..self }
    }

    pub(crate) fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + samples.len() * self.format.bytes(), 0);
        self.clipped_samples += self.dither.encode(self.format, samples, &mut out[start..]) as u64;
        self.sample_count += samples.len() as u64;
    }

    /// Completes the file with further chunks behind the samples, each of an even length.
    pub(crate) fn finish_with_chunks(
        &self,
        chunks: &[u8],
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), FileTooLong> {
        let data = self.sample_count * self.format.bytes() as u64;
        // Chunks have even offsets; the padding byte is not counted in the size of its chunk.
        let odd = data % 2;
        out.extend_from_slice(&[0][..usize::from(odd == 1)]);
        out.extend_from_slice(chunks);
        patches.extend(self.size_fields.patches(data, odd + chunks.len() as u64)?);
        Ok(())
    }
}

impl FileEncoder for WaveFileEncoder {
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.encode(samples, out);
        Ok(())
    }

    fn flush(&mut self, _: &mut Vec<u8>, patches: &mut Vec<Patch>) {
        self.readable_frames = self.frames();
        let data = self.readable_frames.0 * self.size_fields.frame_bytes();
        patches.extend(self.size_fields.patches(data, 0).into_iter().flatten());
    }

    fn announce_length(&mut self, frames: Frames, patches: &mut Vec<Patch>) {
        let data = frames.0.saturating_mul(self.size_fields.frame_bytes());
        patches.extend(self.size_fields.patches(data, data % 2).into_iter().flatten());
    }

    fn set_loudness(&mut self, measured: &SegmentLoudness) {
        let SegmentLoudness { integrated, range, true_peak, max_momentary, max_short_term } =
            *measured;
        let loudness =
            BroadcastLoudness { integrated, range, true_peak, max_momentary, max_short_term };
        self.loudness = Some(loudness);
    }

    fn finish(
        self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError> {
        if let (Some(at), Some(loudness)) = (self.broadcast_offset, &self.loudness) {
            patches.push(loudness.patch(at));
        }
        // Space for 64-bit sizes is reserved, so that any length fits.
        self.finish_with_chunks(&[], out, patches).map_err(|FileTooLong| EncodeError::Codec)
    }

    fn frames(&self) -> Frames {
        Frames(self.sample_count / self.channels)
    }

    fn readable_frames(&self) -> Frames {
        self.readable_frames
    }

    fn clipped_samples(&self) -> u64 {
        self.clipped_samples
    }
}

/// Coding history, EBU R 98: one line.
fn coding_history(metadata: &FileMetadata, encoding: WavEncoding) -> String {
    let bits = encoding.format().bits();
    let mode = match metadata.layout.channels() {
        1 => "mono",
        2 => "stereo",
        _ => "multichannel",
    };
    format!("A=PCM,F={},W={bits},M={mode},T=aulos", metadata.rate.hz())
}

/// The loudspeakers of a layout, as the meter assumes them; unknown beyond eight channels.
const fn channel_mask(layout: ChannelLayout) -> Option<u32> {
    match layout.channels() {
        1 => Some(0x4),
        2 => Some(0x3),
        3 => Some(0x7),
        4 => Some(0x33),
        5 => Some(0x37),
        6 => Some(0x3f),
        7 => Some(0x70f),
        8 => Some(0x63f),
        _ => None,
    }
}
