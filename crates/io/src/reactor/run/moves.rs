//! Sessions on their way from one rendition of a station to another.
//!
//! A session moves at the first chunk that its new rendition has and the session has not. One that
//! is behind that chunk, because its turn comes ten times a second, is sent what it lacks at once:
//! an announcement waits until all its sessions have moved.

use aulos_core::{Instant, Span};

use super::super::SessionId;
use super::super::moves::Continuation;
use super::{Reactor, ReactorEntity, SLICE_BYTES};

impl Reactor {
    /// Lets a session of `from` continue elsewhere as soon as that is possible.
    pub(super) fn continue_session(
        &mut self,
        session: SessionId,
        from: usize,
        next: Continuation,
        now: Instant,
    ) {
        let (token, to) = (session.token(), next.station);
        let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token) else { return };
        if peer.station != Some(from) {
            let continues_on = peer.continues_on.as_ref().map(|next| next.station);
            if peer.station == Some(to) && continues_on == Some(from) {
                // It is to stay where it still is.
                peer.continues_on = None;
            }
            return;
        }
        peer.continues_on = (from != to).then_some(next);
        let header = |station: usize| Some(&self.stations.get(station)?.descriptor.codec_header);
        if header(from) != header(to) {
            return self.join_station(session, to);
        }
        self.continue_pending(token);
        let is_moving = self.entities.get(token).is_some_and(ReactorEntity::is_moving);
        if is_moving && self.moving.len() < MAX_HURRIED {
            if self.moving.is_empty() {
                self.next_move = now;
            }
            self.moving.push((token, now + HURRY));
        }
    }

    /// Sends to sessions that continue elsewhere what they lack until there.
    pub(super) fn hurry_moves(&mut self, now: Instant) {
        let mut moving = std::mem::take(&mut self.moving);
        moving.retain(|(token, until)| {
            self.pump(*token, SLICE_BYTES, false);
            now < *until && self.entities.get(*token).is_some_and(ReactorEntity::is_moving)
        });
        self.moving = moving;
        self.next_move = now + MOVE_INTERVAL;
    }

    /// Moves a peer to the station on which it is to continue, if that has its next chunk.
    pub(super) fn continue_pending(&mut self, token: u64) {
        let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token) else { return };
        let Some(to) = peer.continues_on.as_ref().map(|next| next.station) else { return };
        let Some(from) = peer.station else { return };
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
}

/// How often these sessions are looked after; a chunk is longer.
const MOVE_INTERVAL: Span = Span::from_millis(5);

/// For how long: one whose connection is blocked moves in its turn.
const HURRY: Span = Span::from_millis(500);

/// How many at a time: sends to more are spread over their turns, as always.
const MAX_HURRIED: usize = 64;
