//! RED on the sending side (RFC 2198): each packet repeats the ones before.

use std::collections::VecDeque;

use aulos_proto::rtp::red::{self, MAX_BLOCK, MAX_OFFSET, RedBlock};

use super::RedConfig;

/// The most recent payloads.
#[derive(Debug)]
pub(crate) struct RedEncoder {
    config: RedConfig,
    /// The newest one last.
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

    /// The greatest size of a packet whose own payload has `own` bytes.
    pub(crate) fn max_bytes(&self, own: usize) -> usize {
        let repeated: usize = self.sent.iter().map(|sent| 4 + sent.payload.len()).sum();
        repeated + 1 + own
    }

    /// The buffer for the next payload of up to `own` bytes.
    pub(crate) fn payload_buffer(&mut self, own: usize) -> &mut [u8] {
        if self.payload.len() < own {
            self.payload.resize(own, 0);
        }
        &mut self.payload
    }

    /// Writes the earlier payloads followed by the first `length` bytes of the buffer, and
    /// remembers those.
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
        // A late packet is inserted before later ones.
        let at = self.sent.iter().position(|other| other.sequence > sequence);
        self.sent.insert(at.unwrap_or(self.sent.len()), sent);
    }
}

/// More copies cost more than a second path.
pub const MAX_RED_DISTANCE: u8 = 4;
