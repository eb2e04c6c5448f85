//! How clients do, looked at in turns: a few at each round of maintenance, so that it costs no more
//! in a house of ten thousand than in one of ten, and nothing on the way of a chunk.

use aulos_core::Instant;

use super::super::{ReactorEvent, SessionId};
use super::{Reactor, ReactorEntity};

impl Reactor {
    /// Looks at the next few of `tokens`, who are everybody, and tells how they do.
    pub(super) fn report_health(&mut self, tokens: &[u64], now: Instant) {
        let count = tokens.len().div_ceil(HEALTH_ROUNDS).min(MAX_CHECKS_PER_ROUND);
        for _ in 0..count {
            self.next_health_check = (self.next_health_check + 1) % tokens.len();
            let Some(&token) = tokens.get(self.next_health_check) else { return };
            let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token) else { continue };
            if peer.has_said_hello {
                let tap = peer.station.and_then(|station| self.stations.get(station));
                let health = peer.health(tap, now);
                let session = SessionId::new(self.index, token);
                // Where there is no room for it now, the next one will do.
                drop(self.events.push(ReactorEvent::Health { session, health }));
            }
        }
    }
}

/// Everybody is looked at once in so many rounds of maintenance: every two seconds,
const HEALTH_ROUNDS: usize = 8;

/// but in one round no more than these: a call to the kernel each, some 50 us in all.
const MAX_CHECKS_PER_ROUND: usize = 64;
