//! Renditions for clients that play one channel, or both in each speaker.
//!
//! One of each kind for a station, made when the first client wants it and ended when the last one
//! has gone. To the reactors it is a station like any other, under a number of its own; to everybody
//! else it does not exist. A channel map in the client's own copy of a chunk was rejected: the bytes
//! would no longer be the same for all, and what is compressed cannot be cut into channels.

use std::io;

use aulos_core::{ChannelMap, Instant, Span};
use aulos_engine::rendition::Rendition;
use aulos_io::SystemClock;
use aulos_io::reactor::SessionId;

use super::stations::{self, Parts};
use super::{Inner, Running};

/// A rendition that runs.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Whose it is.
    pub(super) station: usize,
    map: ChannelMap,
    /// What the reactors call it.
    pub(super) number: usize,
    /// What its station calls it.
    outlet: u64,
    since: Instant,
    unwanted_since: Option<Instant>,
}

/// A session that goes over as soon as there is enough of a past to play.
#[derive(Debug)]
pub(super) struct Move {
    session: SessionId,
    station: usize,
    map: ChannelMap,
}

/// Lets a session play a station through a map. False when its reactor has no place for the order
/// now.
pub(super) fn play(inner: &mut Inner, session: SessionId, station: usize, map: ChannelMap) -> bool {
    inner.moves.retain(|other| other.session != session);
    if map != ChannelMap::Stereo {
        match wanted(inner, station, map) {
            Ok(Some(_)) => {
                inner.moves.push(Move { session, station, map });
                go_over(inner);
                return true;
            }
            // Nothing to choose from.
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, %map, "a client hears all channels instead"),
        }
    }
    inner.context.play(session, station)
}

/// Lets those go over who can: their new channels have as much of a past as they have buffered, so
/// that they play on without a hole.
pub(super) fn go_over(inner: &mut Inner) {
    let now = SystemClock::now();
    let Inner { moves, mapped, stations, context, .. } = inner;
    moves.retain(|one| {
        let buffer = stations
            .get(one.station)
            .and_then(Option::as_ref)
            .map(|running| Span::from_millis(i64::from(running.config.buffer_ms)));
        let there = mapped.iter().find(|mapped| mapped.is(one.station, one.map));
        let (Some(buffer), Some(there)) = (buffer, there) else { return false };
        now.since(there.since) < buffer || !context.play(one.session, there.number)
    });
}

/// Ends what nobody wants any more.
pub(super) fn keep(inner: &mut Inner, wanted: &[(usize, ChannelMap)]) {
    let now = SystemClock::now();
    let mut over = Vec::new();
    for (at, mapped) in inner.mapped.iter_mut().enumerate() {
        if wanted.contains(&(mapped.station, mapped.map)) {
            mapped.unwanted_since = None;
        } else if now.since(*mapped.unwanted_since.get_or_insert(now)) > LINGER {
            over.push(at);
        }
    }
    for at in over.into_iter().rev() {
        let mapped = &inner.mapped[at];
        let running = inner.stations.get_mut(mapped.station).and_then(Option::as_mut);
        // A station without time for it is asked again the next time.
        if running.is_none_or(|running| running.outlets.remove(mapped.outlet)) {
            inner.context.remove_station(mapped.number);
            inner.mapped.swap_remove(at);
        }
    }
}

/// A station has begun anew, and what was made of the old one has to be made of this one.
pub(super) fn renew(inner: &mut Inner, station: usize) {
    let mut mapped = std::mem::take(&mut inner.mapped);
    mapped.retain_mut(|mapped| {
        if mapped.station != station {
            return true;
        }
        match make(inner, station, mapped.map, Some(mapped.number)) {
            Ok((_, outlet)) => (mapped.outlet, mapped.since) = (outlet, SystemClock::now()),
            Err(error) => {
                tracing::warn!(%error, map = %mapped.map, "a station has no such channels any more");
                inner.context.remove_station(mapped.number);
                return false;
            }
        }
        true
    });
    inner.mapped = mapped;
}

/// A station has ended.
pub(super) fn end(inner: &mut Inner, station: usize) {
    let Inner { mapped, context, .. } = inner;
    mapped.retain(|mapped| {
        if mapped.station == station {
            context.remove_station(mapped.number);
        }
        mapped.station != station
    });
}

/// The rendition's number; none where a station has one channel only.
fn wanted(inner: &mut Inner, station: usize, map: ChannelMap) -> io::Result<Option<usize>> {
    if let Some(there) = inner.mapped.iter_mut().find(|mapped| mapped.is(station, map)) {
        there.unwanted_since = None;
        return Ok(Some(there.number));
    }
    let running = inner.stations.get(station).and_then(Option::as_ref);
    if running.is_none_or(|running| running.config.spec.layout.channels() < 2) {
        return Ok(None);
    }
    let (number, outlet) = make(inner, station, map, None)?;
    let (since, unwanted_since) = (SystemClock::now(), None);
    inner.mapped.push(Mapped { station, map, number, outlet, since, unwanted_since });
    Ok(Some(number))
}

/// Hangs a rendition on a station, and tells the reactors of it.
fn make(
    inner: &mut Inner,
    station: usize,
    map: ChannelMap,
    number: Option<usize>,
) -> io::Result<(usize, u64)> {
    let gone = || io::Error::other("the station is gone");
    let reactors = inner.context.reactors();
    let running = inner.stations.get_mut(station).and_then(Option::as_mut).ok_or_else(gone)?;
    let Running { config, outlets, .. } = running;
    let parts = Parts::new(config, &format!("{} ({map})", config.name), reactors)?;
    let Parts { encoder, quantum, pool, outputs, channel, taps } = parts;
    let rendition = Rendition::new(encoder, pool, outputs, stations::WRITE_HEADER);
    let busy = || io::Error::other("the station has no time for it");
    let outlet = outlets.add(rendition.routed(map, quantum)).ok_or_else(busy)?;
    let number = stations::serve(number, &channel, taps, inner);
    Ok((number, outlet))
}

impl Move {
    pub(super) const fn session(&self) -> SessionId {
        self.session
    }
}

impl Mapped {
    fn is(&self, station: usize, map: ChannelMap) -> bool {
        self.station == station && self.map == map
    }
}

/// A client that loses its connection for a moment finds its channels still there.
const LINGER: Span = Span::from_secs(2);
