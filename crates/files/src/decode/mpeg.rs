//! MPEG audio (MP1, MP2, MP3) in a file of its own: the format of each frame, and the padding.
//!
//! The length of such a file is nowhere for certain: without a Xing or Info frame the library
//! estimates it from the first frames, and files that were joined have the count of the first. So
//! frames are decoded up to the last byte. Only the padding of the encoder is removed, where the
//! file ends where the count says.

/// What must not change from frame to frame in one stream: version and layer, sample rate, and
/// whether it has one channel (ISO/IEC 11172-3, 2.4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MpegFormat([u8; 3]);

impl MpegFormat {
    /// The format of a packet, which begins with the header of its frame.
    pub(super) const fn of_packet(packet: &[u8]) -> Option<Self> {
        let [_, kind, rate, mode, ..] = packet else { return None };
        Some(Self([*kind & 0x1e, *rate & 0x0c, (*mode >> 6 == 3) as u8]))
    }
}

/// Holds the frames behind the declared end until it is certain that they are padding.
#[derive(Debug, Default)]
pub(super) struct PaddingFilter {
    /// Frames that the file declares without priming and padding.
    audio: u64,
    padding: u64,
    decoded: u64,
    held: Vec<f32>,
}

impl PaddingFilter {
    pub(super) fn new(audio: u64, padding: u32) -> Self {
        Self { audio, padding: padding.into(), ..Self::default() }
    }

    /// Filters the frames of a packet, without those that prime the codec.
    pub(super) fn apply(&mut self, out: &mut Vec<f32>, channels: usize) {
        let start = self.decoded;
        self.decoded += (out.len() / channels) as u64;
        if self.decoded <= self.audio {
            return;
        }
        if self.decoded > self.audio + self.padding {
            // The count is too small: what was held is audio.
            out.splice(0..0, self.held.drain(..));
            return;
        }
        let keep = usize::try_from(self.audio.saturating_sub(start)).unwrap_or(usize::MAX);
        let keep = keep.saturating_mul(channels).min(out.len());
        self.held.extend(out.drain(keep..));
    }

    /// The stream goes on in another format, in which the held frames cannot be returned.
    pub(super) fn end_part(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_removed_only_at_the_end() {
        let packets = |count: u16| (0..count).map(|n| vec![f32::from(n); 10]);
        let run = |count, audio, padding| {
            let mut filter = PaddingFilter::new(audio, padding);
            let mut all = Vec::new();
            for mut packet in packets(count) {
                filter.apply(&mut packet, 1);
                all.extend(packet);
            }
            all.len()
        };
        // 50 frames of which the last 13 are padding.
        assert_eq!(run(5, 37, 13), 37);
        // Two packets more than the header says: all is audio.
        assert_eq!(run(7, 37, 13), 70);
        // A packet is missing.
        assert_eq!(run(4, 37, 13), 37);
        assert_eq!(run(3, 37, 13), 30);
        assert_eq!(run(5, 50, 0), 50);
        assert_eq!(run(6, 50, 0), 60);
        assert_eq!(run(5, 0, 0), 50);
    }

    #[test]
    fn the_order_of_held_frames_is_kept() {
        let mut filter = PaddingFilter::new(1, 2);
        let mut first = vec![0.0, 1.0];
        filter.apply(&mut first, 1);
        assert_eq!(first, [0.0]);
        let mut second = vec![2.0, 3.0];
        filter.apply(&mut second, 1);
        assert_eq!(second, [1.0, 2.0, 3.0]);
    }
}
