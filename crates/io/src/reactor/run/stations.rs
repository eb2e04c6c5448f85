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
                let station = peer.continues_on.unwrap_or(station);
                let session = SessionId::new(self.index, token);
                self.with_peer(session, |peer, taps| match taps.get(station) {
                    Some(tap) => peer.join(station, tap),
                    None => Ok(()),
                });
                self.pump(token, SLICE_BYTES, false);
            }
        }
    }

    /// Lets a session of `from` continue on `to` as soon as that is possible.
    pub(super) fn continue_session(&mut self, session: SessionId, from: usize, to: usize) {
        let token = session.token();
        match self.entities.get_mut(token) {
            Some(ReactorEntity::Peer(peer)) if peer.station == Some(from) => {
                peer.continues_on = (from != to).then_some(to);
            }
            // It is to stay where it still is.
            Some(ReactorEntity::Peer(peer))
                if peer.station == Some(to) && peer.continues_on == Some(from) =>
            {
                peer.continues_on = None;
                return;
            }
            _ => return,
        }
        let header = |station: usize| Some(&self.stations.get(station)?.descriptor.codec_header);
        if header(from) == header(to) {
            self.continue_pending(token);
        } else {
            self.join_station(session, to);
        }
    }

    /// Moves a peer to the station on which it is to continue, if that has its next chunk.
    pub(super) fn continue_pending(&mut self, token: u64) {
        let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token) else { return };
        let (Some(from), Some(to)) = (peer.station, peer.continues_on) else { return };
        // In this order, so that the second log is not behind where its chunks come first.
        for station in [from, to] {
            if let Some(tap) = self.stations.get_mut(station) {
                tap.drain();
            }
        }
        if let (Some(old), Some(new)) = (self.stations.get(from), self.stations.get(to)) {
            peer.continue_on(old, to, new);
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
                    match peer.continues_on {
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
