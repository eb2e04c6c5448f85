//! WAVE: the samples as they are, behind a head that tells their number.

use aulos_core::{ChannelLayout, Frames, SampleFormat};
use aulos_dsp::Dither;
use aulos_engine::encode::EncodeError;
use aulos_proto::Patch;
use aulos_proto::wav::{Broadcast, BroadcastLoudness, Form, NotInWave, Sizes, TooLong};

use super::{About, Framer, Measured, WavSamples};

/// A WAVE file in the making. Samples that are not integers of its format are dithered ([`Dither`]).
#[derive(Debug)]
pub(crate) struct WaveFramer {
    sizes: Sizes,
    format: SampleFormat,
    channels: u64,
    samples: u64,
    readable: Frames,
    dither: Dither,
    clipped: u64,
    /// Where the origin of the sound stands in the file, with its loudness.
    broadcast_at: Option<u64>,
    loudness: Option<BroadcastLoudness>,
}

pub(super) fn open(samples: WavSamples, about: &About, out: &mut Vec<u8>) -> WaveFramer {
    let spec = about.spec(samples.format());
    let history = history(about, samples);
    let broadcast = Broadcast {
        description: &about.name,
        originator: "aulos",
        reference: &about.reference,
        begun: about.date(),
        time_reference: about.time_reference.0,
        history: &history,
    };
    let speakers = speakers(about.layout);
    let form = Form { spec, speakers, room: true, broadcast: Some(broadcast) };
    let begun = WaveFramer::begin(&form, out);
    begun.unwrap_or_else(|NotInWave(format)| unreachable!("WAVE has {format}"))
}

impl WaveFramer {
    /// Begins a file: appends its head to `out`.
    pub(crate) fn begin(form: &Form<'_>, out: &mut Vec<u8>) -> Result<Self, NotInWave> {
        Ok(Self {
            sizes: Sizes::begin(form, out)?,
            format: form.spec.format,
            channels: form.spec.layout.channels() as u64,
            samples: 0,
            readable: Frames(0),
            dither: Dither::default(),
            clipped: 0,
            broadcast_at: form.broadcast_at(),
            loudness: None,
        })
    }

    /// Becomes RF64 beyond `most` bytes already.
    #[cfg(test)]
    pub(crate) fn short_up_to(self, most: u64) -> Self {
        Self { sizes: self.sizes.short_up_to(most), ..self }
    }

    pub(crate) fn take(&mut self, samples: &[f32], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + samples.len() * self.format.bytes(), 0);
        self.clipped += self.dither.encode(self.format, samples, &mut out[start..]) as u64;
        self.samples += samples.len() as u64;
    }

    /// Ends the file with further chunks behind the sound, each of an even length.
    pub(crate) fn end(
        &self,
        chunks: &[u8],
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), TooLong> {
        let data = self.samples * self.format.bytes() as u64;
        // Chunks begin at even places; the byte that sees to it is not counted in its chunk.
        let odd = data % 2;
        out.extend_from_slice(&[0][..usize::from(odd == 1)]);
        out.extend_from_slice(chunks);
        patches.extend(self.sizes.patches(data, odd + chunks.len() as u64)?);
        Ok(())
    }
}

impl Framer for WaveFramer {
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.take(samples, out);
        Ok(())
    }

    fn flush(&mut self, _: &mut Vec<u8>, patches: &mut Vec<Patch>) {
        self.readable = self.frames();
        let data = self.readable.0 * self.sizes.frame();
        patches.extend(self.sizes.patches(data, 0).into_iter().flatten());
    }

    fn set_loudness(&mut self, measured: &Measured) {
        let Measured { integrated, range, true_peak, max_momentary, max_short_term } = *measured;
        let loudness =
            BroadcastLoudness { integrated, range, true_peak, max_momentary, max_short_term };
        self.loudness = Some(loudness);
    }

    fn finish(
        self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError> {
        if let (Some(at), Some(loudness)) = (self.broadcast_at, &self.loudness) {
            patches.push(loudness.patch(at));
        }
        // There is room for any length.
        self.end(&[], out, patches).map_err(|TooLong| EncodeError::Codec)
    }

    fn frames(&self) -> Frames {
        Frames(self.samples / self.channels)
    }

    fn readable(&self) -> Frames {
        self.readable
    }

    fn clipped(&self) -> u64 {
        self.clipped
    }
}

/// EBU R 98: a line of what was done.
fn history(about: &About, samples: WavSamples) -> String {
    let bits = samples.format().bits();
    let mode = match about.layout.channels() {
        1 => "mono",
        2 => "stereo",
        _ => "multichannel",
    };
    format!("A=PCM,F={},W={bits},M={mode},T=aulos", about.rate.hz())
}

/// The loudspeakers of a layout, as the meter takes them too; beyond eight channels nobody knows.
const fn speakers(layout: ChannelLayout) -> Option<u32> {
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
