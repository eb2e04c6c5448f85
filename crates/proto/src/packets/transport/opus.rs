//! Opus in transport streams: packets with a control header in front.

use super::super::input_buffer::InputBuffer;
use super::super::{PacketPlacement, SplitterEvent};
use super::unit_times::Unit;
use crate::ogg::opus_head_of;

/// Reader of access units.
#[derive(Debug, Default)]
pub(super) struct OpusReader {
    input: InputBuffer,
}

/// Parts of a control header.
struct ControlHeader {
    /// Bytes before the packet.
    header: usize,
    /// Bytes of the packet.
    packet: usize,
}

impl OpusReader {
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        self.input.push(bytes)
    }

    pub(super) fn discontinue(&mut self) {
        self.input.clear();
    }

    pub(super) fn next(&mut self, packet: &mut Vec<u8>) -> Option<Unit> {
        let (at, header, length) = loop {
            let bytes = self.input.bytes();
            let begins = |pair: &[u8]| matches!(pair, [0x7f, flags] if flags & 0xe0 == 0xe0);
            let at =
                bytes.windows(2).position(begins).unwrap_or_else(|| bytes.len().saturating_sub(1));
            self.input.skip(at as u64);
            match ControlHeader::parse(self.input.bytes())? {
                Some(ControlHeader { header, packet }) => {
                    break (self.input.position(), header, packet);
                }
                None => self.input.skip(1),
            }
        };
        let bytes = self.input.bytes();
        packet.clear();
        packet.extend_from_slice(bytes.get(header..header + length)?);
        self.input.skip((header + length) as u64);
        Some((SplitterEvent::Packet(PacketPlacement::default()), at))
    }
}

impl ControlHeader {
    /// `None` while bytes are missing, and within it for a length that no packet has.
    fn parse(bytes: &[u8]) -> Option<Option<Self>> {
        let flags = *bytes.get(1)?;
        // The length is a sum, whose terms before the last are 255.
        let terms = bytes.get(2..)?;
        let count = terms.iter().take(MAX_TERMS).position(|byte| *byte != 255);
        let Some(count) = count else { return (terms.len() >= MAX_TERMS).then_some(None) };
        let packet = terms.iter().take(count + 1).map(|byte| usize::from(*byte)).sum();
        let trims = [START_TRIM, END_TRIM].iter().filter(|flag| flags & **flag != 0).count();
        let mut header = 2 + count + 1 + 2 * trims;
        if flags & EXTENSION != 0 {
            header += 1 + usize::from(*bytes.get(header)?);
        }
        Some(Some(Self { header, packet }))
    }
}

/// The identification header that the decoder expects (RFC 7845, 5.1); the stream was joined, so
/// nothing is skipped.
pub(super) fn head(channels: u8) -> Vec<u8> {
    opus_head_of(channels, 0, 48_000, 0)
}

/// Flags of the control header: frames to drop at the start and at the end, and an extension.
const START_TRIM: u8 = 0x10;
const END_TRIM: u8 = 0x08;
const EXTENSION: u8 = 0x04;

/// Terms of a length: the longest packet has 48 frames of 1,275 bytes (RFC 6716, 3.4).
const MAX_TERMS: usize = 48 * 1_275 / 255 + 1;
