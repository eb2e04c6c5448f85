//! Frames of either side.

use aulos_core::Rng;

use super::{FrameKind, MASKED, WsFrameHeader};

/// Writes frames: those of a server as they are, those of a client with a mask (section 5.3).
#[derive(Debug, Default)]
pub struct WsWriter {
    masks: Option<Rng>,
}

impl WsWriter {
    /// For a client. `random` should not be guessable.
    #[must_use]
    pub const fn for_client(random: Rng) -> Self {
        Self { masks: Some(random) }
    }

    /// Appends a frame with this payload.
    pub fn write(&mut self, kind: FrameKind, payload: &[u8], out: &mut Vec<u8>) {
        self.write_with(kind, payload.len(), out, |out| out.extend_from_slice(payload));
    }

    /// Appends a frame whose payload of `length` bytes is appended by `payload`.
    pub fn write_with(
        &mut self,
        kind: FrameKind,
        length: usize,
        out: &mut Vec<u8>,
        payload: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        out.extend_from_slice(WsFrameHeader::new(kind, length).as_bytes());
        let Some(random) = &mut self.masks else { return payload(out) };
        if let Some(second) = out.get_mut(start + 1) {
            *second |= MASKED;
        }
        let [a, b, c, d, ..] = random.next_u64().to_ne_bytes();
        let mask = [a, b, c, d];
        out.extend(mask);
        let begin = out.len();
        payload(out);
        for (byte, mask) in out.iter_mut().skip(begin).zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
    }
}
