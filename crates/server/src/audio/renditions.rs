//! Renditions: for clients that play one channel, or both in each speaker, and for web listeners who
//! want another container than the station's.
//!
//! One of each kind for a station, made when the first one wants it and ended when the last one
//! has gone. To the reactors it is a station like any other, under a number of its own; to everybody
//! else it does not exist. A channel map in the client's own copy of a chunk was rejected: the bytes
//! would no longer be the same for all, and what is compressed cannot be cut into channels.

use std::io;
use std::sync::Arc;

use aulos_config::Station;
use aulos_core::{ChannelMap, Codec, Instant, SampleFormat, SampleSpec, Span};
use aulos_engine::encode::CodecConfig;
use aulos_engine::rendition::Rendition;
use aulos_io::SystemClock;
use aulos_io::reactor::{Channel, SessionId};

use super::listen::Heard;
use super::stations::{self, Parts};
use super::{Inner, Running, pushes};

/// A rendition that runs.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Whose it is.
    pub(super) station: usize,
    kind: Kind,
    /// What the reactors call it.
    pub(super) number: usize,
    /// What its station calls it.
    outlet: u64,
    channel: Channel,
    since: Instant,
    unwanted_since: Option<Instant>,
    /// Every web listener holds one of these.
    listeners: Arc<()>,
}

/// What is different in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Other channels.
    Map(ChannelMap),
    /// Another codec, or other settings of its encoder.
    Codec(CodecConfig),
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
        let there = mapped.iter().find(|mapped| mapped.is(one.station, Kind::Map(one.map)));
        let (Some(buffer), Some(there)) = (buffer, there) else { return false };
        now.since(there.since) < buffer || !context.play(one.session, there.number)
    });
}

/// Ends what nobody wants any more.
pub(super) fn keep(inner: &mut Inner, wanted: &[(usize, ChannelMap)]) {
    let now = SystemClock::now();
    let mut over = Vec::new();
    for (at, mapped) in inner.mapped.iter_mut().enumerate() {
        let is_heard = match mapped.kind {
            Kind::Map(map) => wanted.contains(&(mapped.station, map)),
            // One of the references is ours.
            Kind::Codec(_) => Arc::strong_count(&mapped.listeners) > 1,
        };
        if is_heard {
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
        match make(inner, station, mapped.kind, Some(mapped.number)) {
            Ok((_, outlet, channel)) => {
                (mapped.outlet, mapped.since) = (outlet, SystemClock::now());
                mapped.channel = channel;
            }
            Err(error) => {
                tracing::warn!(%error, kind = ?mapped.kind, "a station cannot be had so any more");
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
    let running = inner.stations.get(station).and_then(Option::as_ref);
    if running.is_none_or(|running| running.config.spec.layout.channels() < 2) {
        return Ok(None);
    }
    there_or_made(inner, station, Kind::Map(map)).map(|mapped| Some(mapped.number))
}

/// The rendition of a kind, made if it is not there.
fn there_or_made(inner: &mut Inner, station: usize, kind: Kind) -> io::Result<&mut Mapped> {
    let at = match inner.mapped.iter().position(|mapped| mapped.is(station, kind)) {
        Some(at) => at,
        None => {
            let (number, outlet, channel) = make(inner, station, kind, None)?;
            let (since, listeners) = (SystemClock::now(), Arc::default());
            let unwanted_since = None;
            inner.mapped.push(Mapped {
                station,
                kind,
                number,
                outlet,
                channel,
                since,
                unwanted_since,
                listeners,
            });
            inner.mapped.len() - 1
        }
    };
    let there = inner.mapped.get_mut(at).ok_or_else(|| io::Error::other("it is gone"))?;
    there.unwanted_since = None;
    Ok(there)
}

/// A station in a codec with the settings that it has there itself, or the default ones.
pub(super) fn listen_as(inner: &mut Inner, station: usize, codec: Codec) -> io::Result<Heard> {
    let running = inner.stations.get(station).and_then(Option::as_ref);
    let config = running.map(|running| running.config.codec.or_default_of(codec));
    listen(inner, station, Some(config.unwrap_or_else(|| codec.into())))
}

/// A station for a web listener, in this codec, or in its own.
pub(super) fn listen(
    inner: &mut Inner,
    station: usize,
    codec: Option<CodecConfig>,
) -> io::Result<Heard> {
    let gone = || io::Error::other("the station is gone");
    let running = inner.stations.get(station).and_then(Option::as_ref).ok_or_else(gone)?;
    let config = &running.config;
    // Its own is what there is already, but for 24 bits in 4 bytes, which no file has.
    let own = codec.is_none_or(|codec| codec == config.codec)
        && (codec.is_none() || suited(config, config.codec).spec == config.spec);
    if own {
        let channel = running.channel.clone();
        return Ok(Heard { number: station, channel, keeps: None });
    }
    let codec = codec.unwrap_or(config.codec);
    let Mapped { number, channel, listeners, .. } =
        there_or_made(inner, station, Kind::Codec(codec))?;
    let (channel, keeps) = (channel.clone(), Some(Arc::clone(listeners)));
    Ok(Heard { number: *number, channel, keeps })
}

/// The same station in another codec, in what that can carry of it.
fn suited(config: &Station, codec: CodecConfig) -> Station {
    let format = match (codec.codec(), config.spec.format) {
        (Codec::Opus, _) | (_, SampleFormat::S16Le) => SampleFormat::S16Le,
        (Codec::Flac, _) => SampleFormat::S24In32Le,
        (Codec::Pcm, SampleFormat::S24In32Le) => SampleFormat::S24Le,
        (Codec::Pcm, other) => other,
    };
    let spec = SampleSpec { format, ..config.spec };
    Station { codec, spec, ..config.clone() }
}

/// What a station plays has another title.
pub(super) fn show_title(inner: &mut Inner, station: usize, title: &Arc<str>) {
    let Some(running) = inner.station(station) else { return };
    running.title = Arc::clone(title);
    pushes::show_title(&running.pushes, title);
    inner.context.show_title(station, title);
    for mapped in inner.mapped.iter().filter(|mapped| mapped.station == station) {
        inner.context.show_title(mapped.number, title);
    }
}

/// How many there are, by names that never change.
pub(super) fn counters(all: &[Mapped]) -> [(&'static str, u64); 2] {
    let maps = all.iter().filter(|mapped| matches!(mapped.kind, Kind::Map(_))).count() as u64;
    [("channel_maps", maps), ("listener_codecs", all.len() as u64 - maps)]
}

/// Hangs a rendition on a station, and tells the reactors of it.
fn make(
    inner: &mut Inner,
    station: usize,
    kind: Kind,
    number: Option<usize>,
) -> io::Result<(usize, u64, Channel)> {
    let gone = || io::Error::other("the station is gone");
    let reactors = inner.context.reactors();
    let running = inner.station(station).ok_or_else(gone)?;
    let Running { config, outlets, title, .. } = running;
    let title = Arc::clone(title);
    let (config, name, map) = match kind {
        Kind::Map(map) => (config.clone(), format!("{} ({map})", config.name), map),
        Kind::Codec(codec) => (suited(config, codec), config.name.clone(), ChannelMap::Stereo),
    };
    let parts = Parts::new(&config, &name, reactors)?;
    let Parts { encoder, quantum, pool, outputs, channel, taps } = parts;
    let rendition = Rendition::new(encoder, pool, outputs, stations::WRITE_HEADER);
    let busy = || io::Error::other("the station has no time for it");
    let outlet = outlets.add(rendition.routed(map, quantum)).ok_or_else(busy)?;
    let number = stations::serve(number, &channel, taps, inner);
    inner.context.show_title(number, &title);
    Ok((number, outlet, channel))
}

impl Move {
    pub(super) const fn session(&self) -> SessionId {
        self.session
    }
}

impl Mapped {
    fn is(&self, station: usize, kind: Kind) -> bool {
        self.station == station && self.kind == kind
    }
}

/// A client that loses its connection for a moment finds its channels still there.
const LINGER: Span = Span::from_secs(2);
