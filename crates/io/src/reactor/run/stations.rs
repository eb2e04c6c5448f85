//! What happens to the sessions of a station that is replaced, flushed or removed.

use std::sync::Arc;

use aulos_engine::fanout::TimedChunk;
use aulos_rt::ring::Consumer;

use super::super::stations::{ReactorStation, StationDescriptor};
use super::super::{SessionEndCause, SessionId};
use super::{Reactor, ReactorEntity, SLICE_BYTES};

impl Reactor {
    pub(super) fn replace_station(
        &mut self,
        station: usize,
        channel: StationDescriptor,
        chunks: Consumer<TimedChunk>,
    ) {
        let Some(tap) = self.stations.get_mut(station) else { return };
        let title = Arc::clone(&tap.title);
        *tap = ReactorStation::new(channel, chunks);
        tap.title = title;
        self.rejoin_listeners(station);
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            // A web stream has only one header, and it describes the old encoding.
            if let Some(ReactorEntity::Listener(listener)) = self.entities.get_mut(token)
                && listener.station == station
            {
                self.close(token, SessionEndCause::Kicked);
            }
        }
    }

    /// Makes all sessions of a station join it anew.
    pub(super) fn rejoin_listeners(&mut self, station: usize) {
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            if let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token)
                && peer.station == Some(station)
            {
                let session = SessionId::new(self.index, token);
                self.with_peer(session, |peer, taps| match taps.get(station) {
                    Some(tap) => peer.join(station, tap),
                    None => Ok(()),
                });
                self.pump(token, SLICE_BYTES, false);
            }
        }
    }

    pub(super) fn remove_station(&mut self, station: usize) {
        let Some(tap) = self.stations.get_mut(station) else { return };
        tap.close();
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            match self.entities.get_mut(token) {
                Some(ReactorEntity::Peer(peer)) if peer.station == Some(station) => peer.leave(),
                Some(ReactorEntity::Listener(listener)) if listener.station == station => {
                    self.close(token, SessionEndCause::Kicked);
                }
                _ => {}
            }
        }
    }
}
