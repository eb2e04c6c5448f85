//! Sample formats of GStreamer, as the signal processing has them.

use std::sync::LazyLock;

use aulos_core::{ChannelLayout, SampleFormat, SampleRate};
use aulos_dsp::meter::ChannelPosition;
use aulos_dsp::{Dither, convert};
use gst_audio::{AudioChannelPosition, AudioFormat, AudioInfo};

/// Format, rate and channels of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PcmSpec {
    encoding: Encoding,
    pub(crate) rate: SampleRate,
    pub(crate) layout: ChannelLayout,
    pub(crate) positions: Vec<ChannelPosition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Common(SampleFormat),
    F64,
}

/// The caps of all pads.
pub(crate) static CAPS: LazyLock<gst::Caps> = LazyLock::new(|| {
    gst_audio::AudioCapsBuilder::new_interleaved()
        .format_list([
            AudioFormat::F32le,
            AudioFormat::F64le,
            AudioFormat::S32le,
            AudioFormat::S24le,
            AudioFormat::S16le,
        ])
        .rate_range(8_000..=192_000)
        .channels_range(1..=8)
        .build()
});

/// The pads `sink` and `src` of a filter.
pub(crate) fn always_templates() -> &'static [gst::PadTemplate] {
    static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
        [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)]
            .into_iter()
            .filter_map(|(name, direction)| {
                gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &CAPS).ok()
            })
            .collect()
    });
    &TEMPLATES
}

impl PcmSpec {
    /// The stream that the caps describe; `None` if they are not a part of [`CAPS`].
    pub(crate) fn from_caps(caps: &gst::CapsRef) -> Option<Self> {
        let info = AudioInfo::from_caps(caps).ok()?;
        if info.layout() != gst_audio::AudioLayout::Interleaved {
            return None;
        }
        let encoding = match info.format() {
            AudioFormat::F32le => Encoding::Common(SampleFormat::F32),
            AudioFormat::F64le => Encoding::F64,
            AudioFormat::S32le => Encoding::Common(SampleFormat::S32Le),
            AudioFormat::S24le => Encoding::Common(SampleFormat::S24Le),
            AudioFormat::S16le => Encoding::Common(SampleFormat::S16Le),
            _ => return None,
        };
        let layout = ChannelLayout::new(info.channels().try_into().ok()?).ok()?;
        let rate = SampleRate::new(info.rate()).ok()?;
        if layout.channels() > 8 || !(8_000..=192_000).contains(&rate.hz()) {
            return None;
        }
        Some(Self { encoding, rate, layout, positions: positions(&info, layout) })
    }

    /// Floats with the default positions.
    #[cfg(test)]
    pub(crate) fn for_test(rate: SampleRate, layout: ChannelLayout) -> Self {
        let positions = ChannelPosition::default_for(layout);
        Self { encoding: Encoding::Common(SampleFormat::F32), rate, layout, positions }
    }

    /// Bytes of one frame.
    pub(crate) const fn frame_bytes(&self) -> usize {
        self.layout.channels()
            * match self.encoding {
                Encoding::Common(format) => format.bytes(),
                Encoding::F64 => size_of::<f64>(),
            }
    }

    /// Replaces `samples` by those in `bytes`, interleaved. A value that is not finite becomes 0.
    pub(crate) fn decode(&self, bytes: &[u8], samples: &mut Vec<f32>) {
        let channels = self.layout.channels();
        samples.resize(bytes.len() / self.frame_bytes() * channels, 0.0);
        match self.encoding {
            Encoding::Common(format) => {
                convert::decode(format, bytes, samples);
            }
            Encoding::F64 => {
                for (sample, bytes) in samples.iter_mut().zip(bytes.as_chunks().0) {
                    #[allow(clippy::cast_possible_truncation, reason = "to the nearest f32")]
                    let value = f64::from_le_bytes(*bytes) as f32;
                    *sample = if value.is_finite() { value } else { 0.0 };
                }
            }
        }
    }

    /// Writes interleaved samples, with dither where they are rounded to 16 or 24 bits.
    pub(crate) fn encode(&self, dither: &mut Dither, samples: &[f32], bytes: &mut [u8]) {
        match self.encoding {
            Encoding::Common(format) => {
                dither.encode(format, samples, bytes);
            }
            Encoding::F64 => {
                for (sample, bytes) in samples.iter().zip(bytes.as_chunks_mut().0) {
                    *bytes = f64::from(*sample).to_le_bytes();
                }
            }
        }
    }

    /// A buffer of these samples.
    pub(crate) fn buffer(&self, dither: &mut Dither, samples: &[f32]) -> Option<gst::Buffer> {
        let size = samples.len() / self.layout.channels() * self.frame_bytes();
        let mut buffer = gst::Buffer::with_size(size).ok()?;
        let mut bytes = buffer.get_mut()?.map_writable().ok()?;
        self.encode(dither, samples, &mut bytes);
        drop(bytes);
        Some(buffer)
    }

    /// The frames in `buffer`.
    ///
    /// # Errors
    /// If it cannot be read, or does not hold whole frames.
    pub(crate) fn read(
        &self,
        buffer: &gst::BufferRef,
        samples: &mut Vec<f32>,
    ) -> Result<(), gst::ErrorMessage> {
        let bytes = buffer.map_readable().map_err(|_| {
            gst::error_msg!(gst::ResourceError::Read, ["a buffer cannot be mapped for reading"])
        })?;
        if !bytes.len().is_multiple_of(self.frame_bytes()) {
            return Err(gst::error_msg!(
                gst::StreamError::Format,
                ["a buffer of {} bytes is not in frames of {}", bytes.len(), self.frame_bytes()]
            ));
        }
        self.decode(&bytes, samples);
        Ok(())
    }
}

/// The position of each channel, by the caps or else by convention. With one pair of surrounds,
/// rear or side, they are at 110 degrees (ITU-R BS.775); with two they are rear and side (BS.2051).
fn positions(info: &AudioInfo, layout: ChannelLayout) -> Vec<ChannelPosition> {
    use AudioChannelPosition as Gst;
    let positions = info.positions().unwrap_or_default();
    let unknown = |position: &Gst| matches!(position, Gst::None | Gst::Invalid | Gst::Mono);
    if positions.is_empty() || positions.iter().any(unknown) {
        return ChannelPosition::default_for(layout);
    }
    let has = |wanted: Gst| positions.contains(&wanted);
    let two_pairs = has(Gst::RearLeft) && has(Gst::SideLeft);
    let [rear, side] = if two_pairs { [135, 90] } else { [110, 110] };
    let above = |azimuth| ChannelPosition::At { azimuth, elevation: 45 };
    let position = |position: &Gst| match position {
        Gst::FrontLeft => ChannelPosition::LEFT,
        Gst::FrontRight => ChannelPosition::RIGHT,
        Gst::Lfe1 | Gst::Lfe2 => ChannelPosition::LFE,
        Gst::RearLeft => ChannelPosition::middle(rear),
        Gst::RearRight => ChannelPosition::middle(-rear),
        Gst::SideLeft => ChannelPosition::middle(side),
        Gst::SideRight => ChannelPosition::middle(-side),
        Gst::SurroundLeft => ChannelPosition::LEFT_SURROUND,
        Gst::SurroundRight => ChannelPosition::RIGHT_SURROUND,
        Gst::RearCenter => ChannelPosition::middle(180),
        Gst::WideLeft => ChannelPosition::middle(60),
        Gst::WideRight => ChannelPosition::middle(-60),
        Gst::TopFrontLeft => above(30),
        Gst::TopFrontRight => above(-30),
        Gst::TopFrontCenter => above(0),
        Gst::TopSideLeft => above(90),
        Gst::TopSideRight => above(-90),
        Gst::TopRearLeft => above(135),
        Gst::TopRearRight => above(-135),
        Gst::TopRearCenter => above(180),
        Gst::TopCenter => ChannelPosition::At { azimuth: 0, elevation: 90 },
        // Unknown positions count as front.
        _ => ChannelPosition::CENTER,
    };
    positions.iter().map(position).collect()
}
