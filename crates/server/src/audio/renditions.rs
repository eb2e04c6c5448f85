//! Renditions: further encodings of a station, for clients that play one channel or a mono mix and
//! for web listeners that ask for another container.
//!
//! Each station has at most one rendition of a kind. It is made for the first user and ended after
//! the last. To the reactors a rendition is a station with its own number; the rest of the program
//! does not see it. Channels are not mapped per client, so that clients share bytes
//! (`docs/decisions/chunk-log.md`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_config::StationSettings;
use aulos_core::{ChannelMap, Codec, SampleFormat, SampleSpec, Span, StreamContainer};
use aulos_engine::encode::CodecConfig;
use aulos_engine::output_bus::BusOutput;
use aulos_engine::rendition::Rendition;
use aulos_engine::tapped_rendition::TappedRendition;
use aulos_io::reactor::{SessionId, StationDescriptor};
use aulos_io::{Job, JobStatus, SystemClock};

use super::encoding::{EncodingHandles, SNAPCAST_CHUNK_HEADER, register_stream};
use super::running_rendition::{PendingMove, RenditionKind, RunningRendition};
use super::state::{AudioState, RunningStation};

/// The channel that a listener gets.
pub(super) struct ListenTarget {
    /// The channel's number in the reactors.
    pub(super) number: usize,
    pub(super) channel: StationDescriptor,
    /// A reference that keeps a rendition alive; none for the station's own codec.
    pub(super) keep_alive: Option<Arc<()>>,
}

/// Lets a session play a station through a channel map. Returns false when the reactor's queue is
/// full.
pub(super) fn play(
    inner: &mut AudioState,
    session: SessionId,
    station: usize,
    map: ChannelMap,
) -> bool {
    inner.pending_moves.retain(|other| other.session != session);
    inner.overlays.iter_mut().for_each(|overlay| overlay.forget(session));
    if map != ChannelMap::Stereo {
        match rendition_for_map(inner, station, map) {
            Ok(Some(_)) => {
                inner.pending_moves.push(PendingMove { session, station, map });
                complete_moves(inner);
                return true;
            }
            // A mono station needs no map.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, %map, "cannot create a channel map; the client gets all channels");
            }
        }
    }
    inner.context.set_station(session, station)
}

/// Moves sessions whose rendition has as much history as they have buffered, so that playback has
/// no gap.
pub(super) fn complete_moves(inner: &mut AudioState) {
    let now = SystemClock::now();
    let AudioState { pending_moves: moves, renditions: mapped, stations, context, .. } = inner;
    moves.retain(|one| {
        let buffer = stations
            .get(one.station)
            .and_then(Option::as_ref)
            .map(|running| Span::from_millis(i64::from(running.config.buffer_ms)));
        let rendition =
            mapped.iter().find(|mapped| mapped.matches(one.station, RenditionKind::Map(one.map)));
        let (Some(buffer), Some(rendition)) = (buffer, rendition) else { return false };
        now.since(rendition.since) < buffer || !context.set_station(one.session, rendition.number)
    });
}

/// Ends renditions that have been unused for [`LINGER`].
pub(super) fn remove_unused(inner: &mut AudioState, wanted: &[(usize, ChannelMap)]) {
    let now = SystemClock::now();
    let mut over = Vec::new();
    for (at, mapped) in inner.renditions.iter_mut().enumerate() {
        let is_heard = match mapped.kind {
            RenditionKind::Map(map) => wanted.contains(&(mapped.station, map)),
            // One of the references is the table's own.
            RenditionKind::Codec(_) => Arc::strong_count(&mapped.listeners) > 1,
            // `overlays` ends it.
            RenditionKind::Overlay => true,
        };
        if is_heard {
            mapped.unused_since = None;
        } else if now.since(*mapped.unused_since.get_or_insert(now)) > LINGER {
            over.push(at);
        }
    }
    for at in over.into_iter().rev() {
        let mapped = &inner.renditions[at];
        if let Some(running) = inner.stations.get_mut(mapped.station).and_then(Option::as_mut) {
            running.handle.remove_output(mapped.output_id);
        }
        inner.context.remove_station(mapped.number);
        inner.renditions.swap_remove(at);
    }
}

/// Makes the renditions of a replaced station again, from its successor.
pub(super) fn rebuild(inner: &mut AudioState, station: usize) {
    let mut mapped = std::mem::take(&mut inner.renditions);
    mapped.retain_mut(|mapped| {
        if mapped.station != station || mapped.kind == RenditionKind::Overlay {
            return true;
        }
        match create(inner, station, mapped.kind, Some(mapped.number)) {
            Ok((_, outlet, channel)) => {
                (mapped.output_id, mapped.since) = (outlet, SystemClock::now());
                mapped.channel = channel;
            }
            Err(error) => {
                tracing::warn!(%error, kind = ?mapped.kind, "cannot recreate a rendition of a station");
                inner.context.remove_station(mapped.number);
                return false;
            }
        }
        true
    });
    inner.renditions = mapped;
}

/// Ends the renditions and overlays of a station that is removed.
pub(super) fn end(inner: &mut AudioState, station: usize) {
    let AudioState { renditions: mapped, overlays, context, .. } = inner;
    overlays.retain(|overlay| overlay.station != station);
    mapped.retain(|mapped| {
        if mapped.station == station {
            context.remove_station(mapped.number);
        }
        mapped.station != station
    });
}

/// The number of the rendition for a map; none for a station with one channel.
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

/// The rendition of this kind; created if it does not exist.
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
    let rendition = inner
        .renditions
        .get_mut(at)
        .ok_or_else(|| io::Error::other("the rendition has been removed"))?;
    rendition.unused_since = None;
    Ok(rendition)
}

/// A listen target in this codec, with the station's settings for it.
pub(super) fn listen_target_in_codec(
    inner: &mut AudioState,
    station: usize,
    codec: Codec,
) -> io::Result<ListenTarget> {
    let running = inner.stations.get(station).and_then(Option::as_ref);
    let config = running.map(|running| running.config.codec_settings(codec));
    listen(inner, station, Some(config.unwrap_or_else(|| codec.into())))
}

/// A listen target in this codec, or in the station's own.
pub(super) fn listen(
    inner: &mut AudioState,
    station: usize,
    codec: Option<CodecConfig>,
) -> io::Result<ListenTarget> {
    let gone = || io::Error::other("the station has been removed");
    let running = inner.stations.get(station).and_then(Option::as_ref).ok_or_else(gone)?;
    let config = &running.config;
    // A station that already has this codec serves its own chunks, except for 24 bits in 4 bytes,
    // which no file format has, and for chunks of another server, whose headers and frame numbers
    // begin anew at each change.
    let passes = config.sources.iter().any(|source| source.config.is_passed());
    let own = !passes
        && codec.is_none_or(|codec| codec == config.codec)
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

/// The station's configuration with another codec, in the nearest sample format of that codec.
pub(super) fn station_in_codec(config: &StationSettings, codec: CodecConfig) -> StationSettings {
    let info = codec.codec().info();
    let format = match (info.container, info.nearest_format(config.spec.format)) {
        // On Snapcast's wire, 24-bit samples occupy 4 bytes, in a file 3.
        (StreamContainer::Wave, SampleFormat::S24In32Le) => SampleFormat::S24Le,
        (_, nearest) => nearest,
    };
    let spec = SampleSpec { format, ..config.spec };
    StationSettings { codec, spec, ..config.clone() }
}

/// Counters for the status; their names are stable.
pub(super) fn counters(
    all: &[RunningRendition],
    lost_chunks: &AtomicU64,
) -> [(&'static str, u64); 4] {
    let count = |is_counted: fn(&RenditionKind) -> bool| {
        all.iter().filter(|mapped| is_counted(&mapped.kind)).count() as u64
    };
    let lost = lost_chunks.load(Ordering::Relaxed);
    [
        ("channel_maps", count(|kind| matches!(kind, RenditionKind::Map(_)))),
        ("listener_codecs", count(|kind| matches!(kind, RenditionKind::Codec(_)))),
        ("announcement_overlays", count(|kind| matches!(kind, RenditionKind::Overlay))),
        ("listener_chunks_lost", lost),
    ]
}

/// Adds a rendition to a station and registers it with the reactors.
fn create(
    inner: &mut AudioState,
    station: usize,
    kind: RenditionKind,
    number: Option<usize>,
) -> io::Result<(usize, u64, StationDescriptor)> {
    let gone = || io::Error::other("the station has been removed");
    let reactors = inner.context.reactors();
    let lost_chunks = Arc::clone(&inner.lost_chunks);
    let running = inner.station(station).ok_or_else(gone)?;
    let RunningStation { config, handle, title, .. } = running;
    let title = Arc::clone(title);
    let (config, name, map) = match kind {
        RenditionKind::Map(map) => (config.clone(), format!("{} ({map})", config.name), map),
        RenditionKind::Overlay => {
            return Err(io::Error::other("an overlay is not created as a rendition"));
        }
        RenditionKind::Codec(codec) => {
            (station_in_codec(config, codec), config.name.clone(), ChannelMap::Stereo)
        }
    };
    let parts = EncodingHandles::new(&config, &name, reactors)?;
    let EncodingHandles { encoder, quantum, pool, outputs, channel, taps } = parts;
    let rendition = Rendition::new(encoder, pool, outputs, SNAPCAST_CHUNK_HEADER)
        .with_demand(channel.demand.clone());
    let rendition = rendition.with_channel_map(map, quantum);
    let (output, job): (BusOutput, _) = if channel.codec.info().is_for_stations {
        (rendition.into(), None)
    } else {
        let (rendition, tap) = TappedRendition::new(rendition, quantum);
        (tap.into(), Some(EncodingJob { rendition, counted: 0, lost_chunks }))
    };
    let outlet = handle.add_output(output).map_err(io::Error::other)?;
    if let Some(job) = job {
        inner.codecs.add(Box::new(job));
    }
    let number = register_stream(number, &channel, taps, inner);
    inner.context.set_title(number, &title);
    Ok((number, outlet, channel))
}

/// A rendition on the codec pool; ends with its output on the station.
struct EncodingJob {
    rendition: TappedRendition,
    /// What `lost_chunks` has of it.
    counted: u64,
    lost_chunks: Arc<AtomicU64>,
}

impl Job for EncodingJob {
    fn step(&mut self) -> JobStatus {
        let goes_on = self.rendition.process(SystemClock::now());
        let lost = self.rendition.lost_chunks();
        self.lost_chunks.fetch_add(lost - self.counted, Ordering::Relaxed);
        self.counted = lost;
        if goes_on { JobStatus::Pending } else { JobStatus::Done }
    }
}

/// A client that reconnects within this time still finds its rendition, and an announcement that
/// follows another one its overlay.
pub(super) const LINGER: Span = Span::from_secs(2);
