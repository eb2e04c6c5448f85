//! Health checks of client connections. A few sessions are checked in each round of maintenance, so
//! that the cost per round does not grow with their number, and nothing is added to the path of a
//! chunk.

use aulos_core::Instant;

use super::super::{ReactorEvent, SessionId};
use super::{Reactor, ReactorEntity};

impl Reactor {
    /// Checks the next few of `tokens`, which are all sessions, and reports their state.
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
                // Without room for the event it is dropped; the next check repeats it.
                drop(self.events.push(ReactorEvent::Health { session, health }));
            }
        }
    }
}

/// Each session is checked once in this many rounds of maintenance (two seconds),
const HEALTH_ROUNDS: usize = 8;

/// but one round checks no more than this many: one system call each, about 50 us in all.
const MAX_CHECKS_PER_ROUND: usize = 64;
