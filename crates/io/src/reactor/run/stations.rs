//! What happens to the sessions of a station that is replaced, flushed or removed.

use std::sync::Arc;

use aulos_engine::fanout::TimedChunk;
use aulos_rt::ring::Consumer;

use super::super::stations::{ReactorStation, StationDescriptor};
use super::super::{SessionEndCause, SessionId};
use super::{Reactor, ReactorEntity, SLICE_BYTES};
use crate::SystemClock;

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
        self.end_srt_pushes(station);
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

    /// Drops the chunks of a station, here and at its clients.
    pub(super) fn flush_station(&mut self, station: usize) {
        if let Some(tap) = self.stations.get_mut(station) {
            tap.drain();
            tap.log.clear();
            self.rejoin_listeners(station);
        }
    }

    /// Makes all sessions of a station join it anew.
    fn rejoin_listeners(&mut self, station: usize) {
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            if let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token)
                && peer.station == Some(station)
            {
                let station = peer.continues_on.as_ref().map_or(station, |next| next.station);
                let session = SessionId::new(self.index, token);
                self.with_peer(session, |peer, taps| match taps.get(station) {
                    Some(tap) => peer.join(station, tap),
                    None => Ok(()),
                });
                self.pump(token, SLICE_BYTES, false);
            }
        }
    }

    pub(super) fn join_station(&mut self, session: SessionId, station: usize) {
        self.with_peer(session, |peer, taps| {
            let tap = taps.get_mut(station).ok_or(SessionEndCause::Kicked)?;
            tap.drain();
            peer.join(station, tap)
        });
        self.pump(session.token(), SLICE_BYTES, false);
    }

    /// Lets the web listeners of a mount continue with the next frames of another one.
    pub(super) fn move_listeners(&mut self, from: usize, to: usize) {
        let Some(tap) = self.stations.get_mut(to) else { return };
        tap.drain();
        for token in self.entities.tokens().collect::<Vec<u64>>() {
            if let Some(ReactorEntity::Listener(listener)) = self.entities.get_mut(token)
                && listener.station == from
            {
                listener.move_to(to, tap);
            }
        }
    }

    pub(super) fn remove_station(&mut self, station: usize) {
        let Some(tap) = self.stations.get_mut(station) else { return };
        tap.close();
        self.end_srt_pushes(station);
        let tokens: Vec<u64> = self.entities.tokens().collect();
        for token in tokens {
            match self.entities.get_mut(token) {
                Some(ReactorEntity::Peer(peer)) if peer.station == Some(station) => {
                    match peer.continues_on.as_ref().map(|next| next.station) {
                        Some(next) => {
                            self.join_station(SessionId::new(self.index, token), next);
                        }
                        None => {
                            let session = SessionId::new(self.index, token);
                            self.with_peer(session, |peer, _| peer.leave());
                        }
                    }
                }
                Some(ReactorEntity::Listener(listener)) if listener.station == station => {
                    self.close(token, SessionEndCause::Kicked);
                }
                _ => {}
            }
        }
    }

    /// As for a web stream: the receiver would need another beginning.
    fn end_srt_pushes(&mut self, station: usize) {
        let now = SystemClock::now();
        for mut push in self.srt_pushes.extract_if(.., |push| push.station == station) {
            push.end(now);
        }
    }
}
