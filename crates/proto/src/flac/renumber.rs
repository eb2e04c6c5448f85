//! New numbers for the frames of a stream that is joined in its middle.
//!
//! A player takes the number of the first FLAC frame for its position: with the numbers of a
//! station that has run for a day, a listener's stream would begin a day after its start.

use super::frame_end::crc16;
use super::header::{FrameHeader, NUMBER_AT, ParsedFrameHeader, crc8};

/// Numbers FLAC frames of a fixed block size from 0, or from another number on.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameRenumberer {
    next: u32,
}

impl FrameRenumberer {
    /// Begins with this number, of which 31 bits count: it wraps.
    #[must_use]
    pub const fn starting_at(number: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "31 bits")]
        let next = (number & MAX_NUMBER as u64) as u32;
        Self { next }
    }

    /// Appends a whole FLAC frame with the next number; bytes that are not a FLAC frame are
    /// appended unchanged.
    ///
    /// The samples are copied and not read: the checksum is linear, so its change follows from the
    /// change of the header alone.
    pub fn write(&mut self, frame: &[u8], out: &mut Vec<u8>) {
        let parsed = FrameHeader::parse(frame);
        let (ParsedFrameHeader::Header(header), [_, NUMBERED_FRAMES, ..]) = (parsed, frame) else {
            return out.extend_from_slice(frame);
        };
        let body = frame.get(header.bytes..).unwrap_or_default();
        let (Some(old_header), Some((samples, checksum))) =
            (frame.get(..header.bytes), body.split_last_chunk::<2>())
        else {
            return out.extend_from_slice(frame);
        };
        let start = out.len();
        out.extend_from_slice(old_header.get(..NUMBER_AT).unwrap_or_default());
        push_coded_number(self.next, out);
        let rest = NUMBER_AT + header.number_bytes..header.bytes - 1;
        out.extend_from_slice(old_header.get(rest).unwrap_or_default());
        let new_header = out.get(start..).unwrap_or_default();
        out.push(new_header.iter().fold(0, |crc, byte| crc8(crc ^ byte)));
        let crc_of = |bytes: &[u8]| bytes.iter().fold(0, |crc, byte| crc16(crc, *byte));
        let change = crc_of(old_header) ^ crc_of(out.get(start..).unwrap_or_default());
        out.extend_from_slice(samples);
        let checksum = u16::from_be_bytes(*checksum) ^ crc16_of_zeros(change, samples.len());
        out.extend_from_slice(&checksum.to_be_bytes());
        self.next = (self.next + 1) & MAX_NUMBER;
    }
}

/// Appends a number as in section 9.1.5: like UTF-8, but with up to 31 bits.
fn push_coded_number(number: u32, out: &mut Vec<u8>) {
    let Some(rest) =
        (1..6_u32).find(|rest| number >> (5 * rest + 6) == 0).filter(|_| number > 0x7f)
    else {
        return out.extend(u8::try_from(number).ok());
    };
    let head = 0xff_u32 << (7 - rest) | number >> (6 * rest);
    let tail = (0..rest).rev().map(|at| 0x80 | (number >> (6 * at) & 0x3f));
    out.extend(
        core::iter::once(head & 0xff).chain(tail).filter_map(|byte| u8::try_from(byte).ok()),
    );
}

/// The checksum `crc` continued over `count` zero bytes: its product with x^(8 * `count`).
fn crc16_of_zeros(crc: u16, mut count: usize) -> u16 {
    let (mut product, mut power) = (crc, 0x100);
    while count > 0 {
        if count & 1 == 1 {
            product = multiply(product, power);
        }
        power = multiply(power, power);
        count >>= 1;
    }
    product
}

/// Product of two polynomials modulo x^16 + x^15 + x^2 + 1.
fn multiply(a: u16, b: u16) -> u16 {
    (0..16).rev().fold(0, |sum: u16, bit| {
        let doubled = sum << 1 ^ if sum >> 15 == 1 { 0x8005 } else { 0 };
        doubled ^ if b >> bit & 1 == 1 { a } else { 0 }
    })
}

/// The second byte of a header whose number counts frames, not samples.
const NUMBERED_FRAMES: u8 = 0xf8;

/// With a fixed block size, the number has at most 31 bits.
const MAX_NUMBER: u32 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Arbitrary data with the header and the checksum of a frame.
    fn frame(number: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xf8, 0xca, 0x18];
        push_coded_number(number, &mut bytes);
        let check = bytes.iter().fold(0, |crc, byte| crc8(crc ^ byte));
        bytes.push(check);
        bytes.extend_from_slice(body);
        let check = bytes.iter().fold(0, |crc, byte| crc16(crc, *byte));
        bytes.extend(check.to_be_bytes());
        bytes
    }

    #[test]
    fn numbers_of_every_length_are_parsed_as_they_were_written() {
        for bits in 0..31 {
            for number in [1 << bits, (1 << bits) - 1, MAX_NUMBER >> (30 - bits)] {
                let bytes = frame(number, &[1, 2, 3]);
                let ParsedFrameHeader::Header(header) = FrameHeader::parse(&bytes) else {
                    panic!("{number}: {bytes:x?}");
                };
                assert_eq!(header.number, u64::from(number));
            }
        }
    }

    #[test]
    fn what_is_no_frame_stays_as_it_is() {
        let mut renumberer = FrameRenumberer::default();
        for other in [&b""[..], b"\xff\xf8", b"fLaC and more", &frame(7, b"")[..7]] {
            let mut out = Vec::new();
            renumberer.write(other, &mut out);
            assert_eq!(out, other);
        }
    }

    proptest! {
        #[test]
        fn a_frame_with_another_number_has_the_right_checksums(
            number in 0..=MAX_NUMBER,
            next in 0..=MAX_NUMBER,
            body: Vec<u8>,
        ) {
            let mut out = Vec::new();
            let mut renumberer = FrameRenumberer { next };
            renumberer.write(&frame(number, &body), &mut out);
            prop_assert_eq!(&out, &frame(next, &body));
            renumberer.write(&frame(number, &body), &mut out);
            let following = frame(next.wrapping_add(1) & MAX_NUMBER, &body);
            prop_assert!(out.ends_with(&following));
        }
    }
}
