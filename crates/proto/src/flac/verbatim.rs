//! FLAC frames whose samples are stored as they are (RFC 9639, section 9.2.5).
//!
//! They are the cheapest frames of a stream, and a decoder plays them like any other.

use super::frame_end::crc16;
use super::header::{RATES, crc8};

/// Writes frames of one format and block size, all with the number 0: a
/// [`FrameRenumberer`](super::FrameRenumberer) gives them others.
#[derive(Clone, Debug)]
pub struct VerbatimFrameWriter {
    header: Vec<u8>,
    channels: usize,
    bytes: usize,
}

impl VerbatimFrameWriter {
    /// For blocks of `block` frames. `None` for other than 16 or 24 bits, more than eight channels,
    /// and a rate or a block size that the header of a frame cannot state.
    #[must_use]
    pub fn new(hz: u32, channels: usize, bits: u8, block: usize) -> Option<Self> {
        let bits_code = match bits {
            16 => 4,
            24 => 6,
            _ => return None,
        };
        let channels_code = u8::try_from(channels).ok()?.checked_sub(1).filter(|code| *code < 8)?;
        let (rate_code, rate) = coded_rate(hz)?;
        let mut header = vec![0xff, 0xf8, BLOCK_IN_16_BITS << 4 | rate_code];
        header.extend([channels_code << 4 | bits_code << 1, 0]);
        header.extend(u16::try_from(block.checked_sub(1)?).ok()?.to_be_bytes());
        header.extend(rate);
        header.push(header.iter().fold(0, |crc, byte| crc8(crc ^ byte)));
        Some(Self { header, channels, bytes: usize::from(bits / 8) })
    }

    /// The length of a frame of `samples` samples in all channels.
    #[must_use]
    pub fn len(&self, samples: usize) -> usize {
        self.header.len() + self.channels + samples * self.bytes + CHECKSUM_BYTES
    }

    /// Appends a frame of interleaved samples: a whole block.
    ///
    /// # Real-time
    /// Does not allocate while `out` has room.
    pub fn write(&self, samples: &[i32], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.header);
        for channel in 0..self.channels {
            out.push(VERBATIM);
            let samples = samples.iter().skip(channel).step_by(self.channels);
            match self.bytes {
                2 => samples.for_each(|sample| push_low_bytes::<2>(*sample, out)),
                _ => samples.for_each(|sample| push_low_bytes::<3>(*sample, out)),
            }
        }
        let frame = out.get(start..).unwrap_or_default();
        let checksum = frame.iter().fold(0, |crc, byte| crc16(crc, *byte));
        out.extend_from_slice(&checksum.to_be_bytes());
    }
}

fn push_low_bytes<const BYTES: usize>(sample: i32, out: &mut Vec<u8>) {
    if let Some(bytes) = sample.to_be_bytes().last_chunk::<BYTES>() {
        out.extend_from_slice(bytes);
    }
}

/// The code of a rate, and the bytes that state it where it has no code (RFC 9639, 9.1.2).
fn coded_rate(hz: u32) -> Option<(u8, Vec<u8>)> {
    if let Some(index) = RATES.iter().position(|rate| *rate == hz) {
        return Some((u8::try_from(index + 1).ok()?, Vec::new()));
    }
    if let Ok(hz) = u16::try_from(hz) {
        return Some((RATE_IN_HERTZ, hz.to_be_bytes().to_vec()));
    }
    let tens = u16::try_from(hz / 10).ok().filter(|_| hz.is_multiple_of(10))?;
    Some((RATE_IN_TENS, tens.to_be_bytes().to_vec()))
}

const BLOCK_IN_16_BITS: u8 = 7;
const RATE_IN_HERTZ: u8 = 13;
const RATE_IN_TENS: u8 = 14;

/// The header of a subframe that is stored, without wasted bits.
const VERBATIM: u8 = 0b0000_0010;

const CHECKSUM_BYTES: usize = 2;

#[cfg(test)]
mod tests {
    use super::super::header::{FrameHeader, ParsedFrameHeader};
    use super::*;

    #[test]
    fn a_frame_states_its_format_and_has_right_checksums() {
        for (hz, channels, bits, block) in [
            (48_000, 2, 16, 960),
            (44_100, 1, 24, 882),
            (47_999, 8, 16, 16),
            (352_800, 6, 24, 7_056),
        ] {
            let writer = VerbatimFrameWriter::new(hz, channels, bits, block).unwrap();
            let samples: Vec<i32> = (-300..).take(block * channels).collect();
            let mut frame = Vec::new();
            writer.write(&samples, &mut frame);
            assert_eq!(frame.len(), writer.len(samples.len()));
            let ParsedFrameHeader::Header(header) = FrameHeader::parse(&frame) else {
                panic!("{hz}: {:x?}", &frame[..16]);
            };
            assert_eq!((header.hz, header.bits), (Some(hz), Some(bits)));
            assert_eq!((usize::from(header.channels), header.block as usize), (channels, block));
            assert_eq!(frame.iter().fold(0, |crc, byte| crc16(crc, *byte)), 0);
        }
    }

    #[test]
    fn a_format_that_no_header_can_state_is_refused() {
        for (hz, channels, bits, block) in [
            (48_000, 0, 16, 960),
            (48_000, 9, 16, 960),
            (48_000, 2, 20, 960),
            (48_000, 2, 16, 0),
            (48_000, 2, 16, 65_537),
            (96_001, 2, 16, 960),
        ] {
            assert!(VerbatimFrameWriter::new(hz, channels, bits, block).is_none());
        }
    }
}
