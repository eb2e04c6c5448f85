//! RED on the listener's side (RFC 2198): each packet carries the ones before it again.

use std::collections::VecDeque;

use aulos_proto::rtp::red::{self, MAX_BLOCK, MAX_OFFSET, RedBlock};

use super::RedConfig;

/// What was sent of late.
#[derive(Debug)]
pub(crate) struct RedEncoder {
    config: RedConfig,
    /// The newest last.
    sent: VecDeque<SentPayload>,
    payload: Vec<u8>,
}

#[derive(Debug, Default)]
struct SentPayload {
    sequence: u64,
    timestamp: u64,
    payload: Vec<u8>,
}

impl RedEncoder {
    pub(crate) fn new(config: RedConfig) -> Self {
        let sent = VecDeque::with_capacity(usize::from(config.distance));
        Self { config, sent, payload: Vec::new() }
    }

    pub(crate) const fn payload_type(&self) -> u8 {
        self.config.payload_type
    }

    /// Bytes that a payload of `own` may become.
    pub(crate) fn max_bytes(&self, own: usize) -> usize {
        let repeated: usize = self.sent.iter().map(|sent| 4 + sent.payload.len()).sum();
        repeated + 1 + own
    }

    /// Room for a payload of so many bytes, before it is written.
    pub(crate) fn payload_buffer(&mut self, own: usize) -> &mut [u8] {
        if self.payload.len() < own {
            self.payload.resize(own, 0);
        }
        &mut self.payload
    }

    /// Writes the first `length` bytes of the room behind those of the packets before, and keeps them.
    pub(crate) fn write(
        &mut self,
        (sequence, timestamp): (u64, u64),
        payload_type: u8,
        length: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        let own = self.payload.get(..length)?;
        let mut blocks = [RedBlock::default(); MAX_RED_DISTANCE as usize];
        let mut count = 0;
        for sent in &self.sent {
            let offset = timestamp.checked_sub(sent.timestamp).filter(|offset| *offset > 0);
            let offset = offset.and_then(|offset| u16::try_from(offset).ok());
            let (Some(offset), Some(block)) = (offset, blocks.get_mut(count)) else { continue };
            let near = sent.sequence + u64::from(self.config.distance) >= sequence;
            if near && offset <= MAX_OFFSET && sent.payload.len() <= MAX_BLOCK {
                *block = RedBlock { payload_type, timestamp_offset: offset, data: &sent.payload };
                count += 1;
            }
        }
        let written = red::write(out, &blocks[..count], payload_type, own)?;
        self.remember(sequence, timestamp, length);
        Some(written)
    }

    fn remember(&mut self, sequence: u64, timestamp: u64, length: usize) {
        let mut sent = match self.sent.len() < usize::from(self.config.distance) {
            true => SentPayload::default(),
            false => self.sent.pop_front().unwrap_or_default(),
        };
        (sent.sequence, sent.timestamp) = (sequence, timestamp);
        sent.payload.clear();
        sent.payload.extend_from_slice(self.payload.get(..length).unwrap_or_default());
        // One that is late stands before those that are later.
        let at = self.sent.iter().position(|other| other.sequence > sequence);
        self.sent.insert(at.unwrap_or(self.sent.len()), sent);
    }
}

/// More is dearer than a second way.
pub const MAX_RED_DISTANCE: u8 = 4;
