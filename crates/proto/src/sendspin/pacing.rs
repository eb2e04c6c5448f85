//! How far ahead of its time sound is sent.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};

/// What a player has been sent and not yet played, so that it is never sent more than it can hold.
#[derive(Debug)]
pub(super) struct BufferAccount {
    capacity: u64,
    held: u64,
    /// When each chunk has been played, and its bytes.
    chunks: VecDeque<(Instant, u32)>,
}

impl BufferAccount {
    /// For a player that can hold `capacity` bytes.
    #[must_use]
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity: capacity.into(), held: 0, chunks: VecDeque::new() }
    }

    /// Whether the player has room for `bytes` more at `now`. A chunk that is larger than all that it
    /// can hold is sent when it holds nothing.
    pub(super) fn has_room(&mut self, now: Instant, bytes: usize) -> bool {
        while let Some((_, played)) = self.chunks.front().filter(|(end, _)| *end <= now) {
            self.held -= u64::from(*played);
            self.chunks.pop_front();
        }
        self.held == 0 || self.held + bytes as u64 <= self.capacity
    }

    /// A chunk has been sent that has been played at `end`.
    pub(super) fn add(&mut self, end: Instant, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.held += u64::from(bytes);
        self.chunks.push_back((end, bytes));
    }

    /// The player has dropped everything.
    pub(super) fn clear(&mut self) {
        self.held = 0;
        self.chunks.clear();
    }

    /// Bytes that the player holds.
    #[must_use]
    #[cfg(test)]
    pub(super) const fn held(&self) -> u64 {
        self.held
    }
}

/// How long before its time sound has to be at a player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lead {
    /// What the player buffers at least.
    pub min_buffer: Span,
    /// From its output to its loudspeaker.
    pub output_delay: Span,
}

impl Lead {
    /// The whole, at most six seconds.
    #[must_use]
    pub fn total(self) -> Span {
        (self.min_buffer + self.output_delay).clamp(Span::ZERO, MAX_LEAD)
    }
}

/// A player that wants more than this is late; buffers of stations are a second as a rule.
const MAX_LEAD: Span = Span::from_secs(6);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lead_is_limited() {
        let lead = |buffer, delay| {
            let (min_buffer, output_delay) = (Span::from_millis(buffer), Span::from_millis(delay));
            Lead { min_buffer, output_delay }.total()
        };
        assert_eq!(lead(250, 100), Span::from_millis(350));
        assert_eq!(lead(30_000, 30_000), MAX_LEAD);
    }

    proptest! {
        #[test]
        fn a_player_never_holds_more_than_it_can(
            capacity in 1_000..100_000_u32,
            chunks in prop::collection::vec((1..5_000_usize, 0..40_i64), 1..300),
        ) {
            let mut account = BufferAccount::new(capacity);
            let mut now = Instant::from_nanos(0);
            let mut end = now + Span::from_secs(1);
            for (bytes, wait) in chunks {
                now += Span::from_millis(wait);
                end = end.max(now) + Span::from_millis(20);
                if account.has_room(now, bytes) {
                    account.add(end, bytes);
                }
                prop_assert!(account.held() <= u64::from(capacity).max(5_000));
            }
            prop_assert!(account.has_room(end, 1_000_000));
            prop_assert_eq!(account.held(), 0);
        }
    }
}
