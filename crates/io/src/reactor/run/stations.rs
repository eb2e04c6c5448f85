//! What happens to those who hear a station when it becomes another one, begins anew, or ends.

use std::sync::Arc;

use aulos_engine::fanout::Stamped;
use aulos_rt::ring::Consumer;

use super::super::stations::{Channel, Tap};
use super::super::{LeaveCause, SessionId};
use super::{Entity, Reactor, SLICE_BYTES};

impl Reactor {
    pub(super) fn replace_station(
        &mut self,
        station: usize,
        channel: Channel,
        chunks: Consumer<Stamped>,
    ) {
        let Some(tap) = self.taps.get_mut(station) else { return };
        let title = Arc::clone(&tap.title);
        *tap = Tap::new(channel, chunks);
        tap.title = title;
        self.join_all(station);
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            // Its header says how the old one was encoded, and there is only one.
            if let Some(Entity::Web(listener)) = self.entities.get_mut(token)
                && listener.station == station
            {
                self.close(token, LeaveCause::Kicked);
            }
        }
    }

    /// Lets whoever plays a station begin with it anew.
    pub(super) fn join_all(&mut self, station: usize) {
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            if let Some(Entity::Peer(peer)) = self.entities.get_mut(token)
                && peer.station == Some(station)
            {
                let session = SessionId::new(self.index, token);
                self.command(session, |peer, taps| match taps.get(station) {
                    Some(tap) => peer.join(station, tap),
                    None => Ok(()),
                });
                self.pump(token, SLICE_BYTES, false);
            }
        }
    }

    pub(super) fn remove_station(&mut self, station: usize) {
        let Some(tap) = self.taps.get_mut(station) else { return };
        tap.close();
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            match self.entities.get_mut(token) {
                Some(Entity::Peer(peer)) if peer.station == Some(station) => peer.leave(),
                Some(Entity::Web(listener)) if listener.station == station => {
                    self.close(token, LeaveCause::Kicked);
                }
                _ => {}
            }
        }
    }
}
