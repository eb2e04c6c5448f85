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
use aulos_io::reactor::{SessionId, StationDescriptor};

use super::listen::ListenTarget;
use super::stations::{self, EncodingParts};
use super::{AudioState, RunningStation, pushes};

/// A rendition that runs.
#[derive(Debug)]
pub(super) struct RunningRendition {
    /// Whose it is.
    pub(super) station: usize,
    kind: RenditionKind,
    /// What the reactors call it.
    pub(super) number: usize,
    /// What its station calls it.
    output_id: u64,
    channel: StationDescriptor,
    since: Instant,
    unused_since: Option<Instant>,
    /// Every web listener holds one of these.
    listeners: Arc<()>,
}

/// What is different in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenditionKind {
    /// Other channels.
    Map(ChannelMap),
    /// Another codec, or other settings of its encoder.
    Codec(CodecConfig),
}

/// A session that goes over as soon as there is enough of a past to play.
#[derive(Debug)]
pub(super) struct PendingMove {
    session: SessionId,
    station: usize,
    map: ChannelMap,
}

/// Lets a session play a station through a map. False when its reactor has no place for the order
/// now.
pub(super) fn play(
    inner: &mut AudioState,
    session: SessionId,
    station: usize,
    map: ChannelMap,
) -> bool {
    inner.pending_moves.retain(|other| other.session != session);
    if map != ChannelMap::Stereo {
        match rendition_for_map(inner, station, map) {
            Ok(Some(_)) => {
                inner.pending_moves.push(PendingMove { session, station, map });
                complete_moves(inner);
                return true;
            }
            // Nothing to choose from.
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, %map, "a client hears all channels instead"),
        }
    }
    inner.context.set_station(session, station)
}

/// Lets those go over who can: their new channels have as much of a past as they have buffered, so
/// that they play on without a hole.
pub(super) fn complete_moves(inner: &mut AudioState) {
    let now = SystemClock::now();
    let AudioState { pending_moves: moves, renditions: mapped, stations, context, .. } = inner;
    moves.retain(|one| {
        let buffer = stations
            .get(one.station)
            .and_then(Option::as_ref)
            .map(|running| Span::from_millis(i64::from(running.config.buffer_ms)));
        let there =
            mapped.iter().find(|mapped| mapped.matches(one.station, RenditionKind::Map(one.map)));
        let (Some(buffer), Some(there)) = (buffer, there) else { return false };
        now.since(there.since) < buffer || !context.set_station(one.session, there.number)
    });
}

/// Ends what nobody wants any more.
pub(super) fn remove_unused(inner: &mut AudioState, wanted: &[(usize, ChannelMap)]) {
    let now = SystemClock::now();
    let mut over = Vec::new();
    for (at, mapped) in inner.renditions.iter_mut().enumerate() {
        let is_heard = match mapped.kind {
            RenditionKind::Map(map) => wanted.contains(&(mapped.station, map)),
            // One of the references is ours.
            RenditionKind::Codec(_) => Arc::strong_count(&mapped.listeners) > 1,
        };
        if is_heard {
            mapped.unused_since = None;
        } else if now.since(*mapped.unused_since.get_or_insert(now)) > LINGER {
            over.push(at);
        }
    }
    for at in over.into_iter().rev() {
        let mapped = &inner.renditions[at];
        let running = inner.stations.get_mut(mapped.station).and_then(Option::as_mut);
        // A station without time for it is asked again the next time.
        if running.is_none_or(|running| running.output_bus.remove(mapped.output_id)) {
            inner.context.remove_station(mapped.number);
            inner.renditions.swap_remove(at);
        }
    }
}

/// A station has begun anew, and what was made of the old one has to be made of this one.
pub(super) fn rebuild(inner: &mut AudioState, station: usize) {
    let mut mapped = std::mem::take(&mut inner.renditions);
    mapped.retain_mut(|mapped| {
        if mapped.station != station {
            return true;
        }
        match create(inner, station, mapped.kind, Some(mapped.number)) {
            Ok((_, outlet, channel)) => {
                (mapped.output_id, mapped.since) = (outlet, SystemClock::now());
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
    inner.renditions = mapped;
}

/// A station has ended.
pub(super) fn end(inner: &mut AudioState, station: usize) {
    let AudioState { renditions: mapped, context, .. } = inner;
    mapped.retain(|mapped| {
        if mapped.station == station {
            context.remove_station(mapped.number);
        }
        mapped.station != station
    });
}

/// The rendition's number; none where a station has one channel only.
fn rendition_for_map(
    inner: &mut AudioState,
    station: usize,
    map: ChannelMap,
) -> io::Result<Option<usize>> {
    let running = inner.stations.get(station).and_then(Option::as_ref);
    if running.is_none_or(|running| running.config.spec.layout.channels() < 2) {
        return Ok(None);
    }
    get_or_create(inner, station, RenditionKind::Map(map)).map(|mapped| Some(mapped.number))
}

/// The rendition of a kind, made if it is not there.
fn get_or_create(
    inner: &mut AudioState,
    station: usize,
    kind: RenditionKind,
) -> io::Result<&mut RunningRendition> {
    let at = match inner.renditions.iter().position(|mapped| mapped.matches(station, kind)) {
        Some(at) => at,
        None => {
            let (number, outlet, channel) = create(inner, station, kind, None)?;
            let (since, listeners) = (SystemClock::now(), Arc::default());
            let unwanted_since = None;
            inner.renditions.push(RunningRendition {
                station,
                kind,
                number,
                output_id: outlet,
                channel,
                since,
                unused_since: unwanted_since,
                listeners,
            });
            inner.renditions.len() - 1
        }
    };
    let there = inner.renditions.get_mut(at).ok_or_else(|| io::Error::other("it is gone"))?;
    there.unused_since = None;
    Ok(there)
}

/// A station in a codec with the settings that it has there itself, or the default ones.
pub(super) fn listen_in_codec(
    inner: &mut AudioState,
    station: usize,
    codec: Codec,
) -> io::Result<ListenTarget> {
    let running = inner.stations.get(station).and_then(Option::as_ref);
    let config = running.map(|running| running.config.codec.or_default_of(codec));
    listen(inner, station, Some(config.unwrap_or_else(|| codec.into())))
}

/// A station for a web listener, in this codec, or in its own.
pub(super) fn listen(
    inner: &mut AudioState,
    station: usize,
    codec: Option<CodecConfig>,
) -> io::Result<ListenTarget> {
    let gone = || io::Error::other("the station is gone");
    let running = inner.stations.get(station).and_then(Option::as_ref).ok_or_else(gone)?;
    let config = &running.config;
    // Its own is what there is already, but for 24 bits in 4 bytes, which no file has.
    let own = codec.is_none_or(|codec| codec == config.codec)
        && (codec.is_none() || station_in_codec(config, config.codec).spec == config.spec);
    if own {
        let channel = running.channel.clone();
        return Ok(ListenTarget { number: station, channel, keep_alive: None });
    }
    let codec = codec.unwrap_or(config.codec);
    let RunningRendition { number, channel, listeners, .. } =
        get_or_create(inner, station, RenditionKind::Codec(codec))?;
    let (channel, keeps) = (channel.clone(), Some(Arc::clone(listeners)));
    Ok(ListenTarget { number: *number, channel, keep_alive: keeps })
}

/// The same station in another codec, in what that can carry of it.
fn station_in_codec(config: &Station, codec: CodecConfig) -> Station {
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
pub(super) fn show_title(inner: &mut AudioState, station: usize, title: &Arc<str>) {
    let Some(running) = inner.station(station) else { return };
    running.title = Arc::clone(title);
    pushes::show_title(&running.pushes, title);
    inner.context.set_title(station, title);
    for mapped in inner.renditions.iter().filter(|mapped| mapped.station == station) {
        inner.context.set_title(mapped.number, title);
    }
}

/// How many there are, by names that never change.
pub(super) fn counters(all: &[RunningRendition]) -> [(&'static str, u64); 2] {
    let maps =
        all.iter().filter(|mapped| matches!(mapped.kind, RenditionKind::Map(_))).count() as u64;
    [("channel_maps", maps), ("listener_codecs", all.len() as u64 - maps)]
}

/// Hangs a rendition on a station, and tells the reactors of it.
fn create(
    inner: &mut AudioState,
    station: usize,
    kind: RenditionKind,
    number: Option<usize>,
) -> io::Result<(usize, u64, StationDescriptor)> {
    let gone = || io::Error::other("the station is gone");
    let reactors = inner.context.reactors();
    let running = inner.station(station).ok_or_else(gone)?;
    let RunningStation { config, output_bus: outlets, title, .. } = running;
    let title = Arc::clone(title);
    let (config, name, map) = match kind {
        RenditionKind::Map(map) => (config.clone(), format!("{} ({map})", config.name), map),
        RenditionKind::Codec(codec) => {
            (station_in_codec(config, codec), config.name.clone(), ChannelMap::Stereo)
        }
    };
    let parts = EncodingParts::new(&config, &name, reactors)?;
    let EncodingParts { encoder, quantum, pool, outputs, channel, taps } = parts;
    let rendition = Rendition::new(encoder, pool, outputs, stations::WRITE_HEADER);
    let busy = || io::Error::other("the station has no time for it");
    let outlet = outlets.add(rendition.with_channel_map(map, quantum)).ok_or_else(busy)?;
    let number = stations::register_channel(number, &channel, taps, inner);
    inner.context.set_title(number, &title);
    Ok((number, outlet, channel))
}

impl PendingMove {
    pub(super) const fn session(&self) -> SessionId {
        self.session
    }
}

impl RunningRendition {
    fn matches(&self, station: usize, kind: RenditionKind) -> bool {
        self.station == station && self.kind == kind
    }
}

/// A client that loses its connection for a moment finds its channels still there.
const LINGER: Span = Span::from_secs(2);
