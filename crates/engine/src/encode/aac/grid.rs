//! Access units that are the same bytes wherever encoding has begun.
//!
//! The rate control of an encoder carries bits from frame to frame, so that two encoders of one
//! programme may differ for as long as it is noisy. Here a new encoder takes over at every
//! `period`th frame of an absolute count. It has encoded [`AacGridEncoder::WARM_UP`] frames before, in parallel:
//! what it says of the overlap and of the next window is what the old one would say. To restart one
//! encoder instead would lose the overlap, which clicks.

use core::fmt;

use aulos_core::SampleSpec;

use super::{AacConfig, AacFormat, AacFrameEncoder, EncodeError, UnsupportedFormat};

/// Makes the access units of frames that are counted from an epoch. Two of them with the same
/// settings agree from the second multiple of the period on that they see, whatever they began
/// with: servers make the same segments of HLS.
///
/// As [`AacFrameEncoder`], it is not for a real-time thread.
pub struct AacGridEncoder {
    spec: SampleSpec,
    config: AacConfig,
    period: u64,
    current: AacFrameEncoder,
    /// Takes over at the next multiple of the period.
    next: Option<AacFrameEncoder>,
    /// The frame that follows; `None` before the first one.
    position: Option<u64>,
    is_settled: bool,
    unused: Vec<u8>,
}

impl AacGridEncoder {
    /// Frames that an encoder encodes before it takes over: the transients that it looks for decay
    /// within a few.
    pub const WARM_UP: u64 = 16;

    /// An encoder of this spec, which begins anew every `period` frames. Its work is that of an
    /// [`AacFrameEncoder`] and a share of [`Self::WARM_UP`] / `period` more.
    ///
    /// # Errors
    /// As [`AacFrameEncoder::new`].
    pub fn new(
        spec: SampleSpec,
        config: AacConfig,
        period: u64,
    ) -> Result<Self, UnsupportedFormat> {
        let current = AacFrameEncoder::new(spec, config)?;
        let unused = Vec::with_capacity(current.format().max_unit_bytes());
        Ok(Self {
            spec,
            config,
            period: period.max(Self::WARM_UP + 1),
            current,
            next: None,
            position: None,
            is_settled: false,
            unused,
        })
    }

    /// Encodes frame number `frame` as [`AacFrameEncoder::encode`] does. True if the bytes are those
    /// that every other encoder on this grid makes. After a frame that does not follow the last one
    /// it is false again for one to two periods.
    ///
    /// # Errors
    /// As [`AacFrameEncoder::encode`].
    pub fn encode(
        &mut self,
        frame: u64,
        samples: &[f32],
        out: &mut Vec<u8>,
    ) -> Result<bool, EncodeError> {
        if self.position != Some(frame) {
            self.current = self.make()?;
            (self.next, self.is_settled) = (None, false);
        }
        self.position = frame.checked_add(1);
        let phase = frame % self.period;
        if phase == self.period - Self::WARM_UP {
            self.next = Some(self.make()?);
        }
        if phase == 0
            && let Some(next) = self.next.take()
        {
            (self.current, self.is_settled) = (next, true);
        }
        let panics = self.current.panics();
        if let Some(next) = &mut self.next {
            self.unused.clear();
            if next.encode(samples, &mut self.unused).is_err() || next.panics() > 0 {
                self.next = None;
            }
        }
        let encoded = self.current.encode(samples, out);
        if encoded.is_err() || self.current.panics() > panics {
            self.is_settled = false;
        }
        encoded.map(|()| self.is_settled)
    }

    /// What the access units have in common.
    #[must_use]
    pub const fn format(&self) -> AacFormat {
        self.current.format()
    }

    fn make(&self) -> Result<AacFrameEncoder, EncodeError> {
        // These settings have made one before.
        AacFrameEncoder::new(self.spec, self.config).map_err(|_| EncodeError::Codec)
    }
}

impl fmt::Debug for AacGridEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AacGridEncoder")
            .field("current", &self.current)
            .field("period", &self.period)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use syom::{DecodeOptions, decode_with};

    use super::super::tests::{noise, spec};
    use super::*;

    /// The frames from `first` on: each with its number, its bytes and whether it is settled.
    #[allow(clippy::cast_possible_truncation, reason = "some hundred frames")]
    fn encode(samples: &[f32], first: u64) -> Vec<(u64, Vec<u8>, bool)> {
        let config = AacConfig { bitrate: 64_000 };
        let mut encoder = AacGridEncoder::new(spec(48_000, 2), config, 90).unwrap();
        let frames = (0..).zip(samples.chunks_exact(2 * 1_024)).skip(first as usize);
        let one = |(at, frame): (u64, &[f32])| {
            let mut unit = Vec::new();
            let is_settled = encoder.encode(at, frame, &mut unit).unwrap();
            (at, unit, is_settled)
        };
        frames.map(one).collect()
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "some hundred frames")]
    fn units_are_the_same_wherever_encoding_has_begun() {
        // Noise at a low bit rate: rate control never comes to rest.
        let samples = noise(600 * 1_024, 2);
        let all = encode(&samples, 0);
        for first in [1, 40, 75, 133] {
            let late = encode(&samples, first);
            let settled: Vec<_> = late.iter().filter(|unit| unit.2).collect();
            assert!(settled.len() > 250 && settled[0].0 % 90 == 0, "{first}");
            for unit in settled {
                let same = all[unit.0 as usize].1 == unit.1;
                assert!(same, "began with {first}: frame {} differs", unit.0);
            }
        }
    }

    #[test]
    fn a_change_of_encoders_is_not_heard() {
        let samples = noise(300 * 1_024, 2);
        let mut stream = Vec::new();
        for (_, unit, _) in encode(&samples, 0) {
            let format = AacFormat::new(spec(48_000, 2)).unwrap();
            stream.extend_from_slice(&format.adts_header(unit.len()));
            stream.extend_from_slice(&unit);
        }
        let decoded = decode_with(&stream, &DecodeOptions::audio()).unwrap();
        let errors: Vec<f64> = (0..298)
            .map(|frame| {
                let error = |at: usize| {
                    f64::from(decoded.channels[0][at + 1_024] - samples[2 * at]).powi(2)
                };
                (frame * 1_024..(frame + 1) * 1_024).map(error).sum()
            })
            .collect();
        let mut sorted = errors[2..].to_vec();
        sorted.sort_by(f64::total_cmp);
        for change in [90, 180, 270] {
            for frame in [change - 1, change, change + 1] {
                assert!(errors[frame] < 3.0 * sorted[150], "frame {frame}");
            }
        }
    }

    #[test]
    fn after_a_hole_nothing_is_settled_for_a_while() {
        let samples = noise(1_024, 2);
        let config = AacConfig::default();
        let mut encoder = AacGridEncoder::new(spec(48_000, 2), config, 20).unwrap();
        let mut out = Vec::new();
        let mut settled = |at| encoder.encode(at, &samples, &mut out).unwrap();
        let before: Vec<_> = (0..50).map(&mut settled).collect();
        assert_eq!(before.iter().position(|it| *it), Some(20));
        // 80 - 16 has been missed by the time that 80 is there.
        let after: Vec<_> = (70..130).map(&mut settled).collect();
        assert_eq!(after.iter().position(|it| *it), Some(30));
        assert!(!settled(u64::MAX) && !settled(0));
    }
}
