//! How much sound bytes of MP3 or of AAC in ADTS hold.

use std::time::Duration;

/// Counts whole frames in a stream that begins with one.
#[derive(Debug, Default)]
pub(super) struct FrameCounter {
    rest: Vec<u8>,
}

/// Bytes of a header that say the length of its frame.
const HEADER: usize = 6;

impl FrameCounter {
    /// The sound in the frames that these bytes complete; `None` for what is neither.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Duration> {
        self.rest.extend_from_slice(bytes);
        let (mut at, mut sound) = (0, Duration::ZERO);
        while let Some(header) = self.rest.get(at..at + HEADER) {
            let (length, duration) = frame(header)?;
            if self.rest.len() < at + length {
                break;
            }
            (at, sound) = (at + length, sound + duration);
        }
        self.rest.drain(..at);
        Some(sound)
    }
}

/// Length and duration of the frame with this header: MPEG-1 layer 3 (ISO/IEC 11172-3, 2.4.1.3) or
/// ADTS (ISO/IEC 14496-3, 1.A.2.2).
fn frame(header: &[u8]) -> Option<(usize, Duration)> {
    if header[0] != 0xff || header[1] & 0xe0 != 0xe0 {
        return None;
    }
    if header[1] & 0xf6 == 0xf0 {
        let rates = [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000];
        let rate: u64 = *rates.get(usize::from(header[2] >> 2 & 15))?;
        let length = usize::from(header[3] & 3) << 11
            | usize::from(header[4]) << 3
            | usize::from(header[5] >> 5);
        return (length > HEADER)
            .then_some((length, Duration::from_nanos(1_024_000_000_000 / rate)));
    }
    let kbps = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
    let kbps: u64 = *kbps.get(usize::from(header[2] >> 4)).filter(|kbps| **kbps > 0)?;
    let rate: u64 = *[44_100, 48_000, 32_000].get(usize::from(header[2] >> 2 & 3))?;
    let is_layer_3 = header[1] & 0x1e == 0x1a;
    let length = 144_000 * kbps / rate + u64::from(header[2] >> 1 & 1);
    is_layer_3
        .then_some((usize::try_from(length).ok()?, Duration::from_nanos(1_152_000_000_000 / rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_count_when_they_are_whole() {
        let mut counter = FrameCounter::default();
        let mut mp3 = vec![0; 384];
        mp3[..4].copy_from_slice(&[0xff, 0xfb, 0x94, 0x00]);
        assert_eq!(counter.push(&mp3[..200]), Some(Duration::ZERO));
        assert_eq!(counter.push(&mp3[200..]), Some(Duration::from_millis(24)));
        let mut aac = vec![0; 300];
        aac[..7].copy_from_slice(&[0xff, 0xf1, 0x4c, 0x80, 0x25, 0x9f, 0xfc]);
        let mut counter = FrameCounter::default();
        let sound = counter.push(&[&aac[..], &aac[..]].concat()).unwrap();
        assert_eq!(sound.as_micros(), 42_666);
        assert_eq!(counter.push(b"<html>"), None);
    }
}
