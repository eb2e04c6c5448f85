//! Renditions: further encodings of a station, for clients with channels or a sound of their own,
//! for Sendspin players that cannot play its codec, and for web listeners that ask for another
//! container.
//!
//! Each station has one rendition of a key, and more only while sounds change. It is made for the
//! first user and ended after the last. To the reactors a rendition is a station with its own
//! number; the rest of the program does not see it. Nothing is processed per client, so that
//! clients share bytes (`docs/decisions/chunk-log.md`).

pub(super) mod client_sounds;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_config::StationSettings;
use aulos_control::backend::ClientSound;
use aulos_core::{ChannelMap, Codec, SampleFormat, SampleSpec, Span, StreamContainer};
use aulos_dsp::sound::SoundProgram;
use aulos_engine::encode::CodecConfig;
use aulos_engine::output_bus::BusOutput;
use aulos_engine::rendition::Rendition;
use aulos_engine::tapped_rendition::TappedRendition;
use aulos_io::reactor::StationDescriptor;
use aulos_io::{Job, JobStatus, SystemClock};

use super::encoding::{EncodingHandles, SNAPCAST_CHUNK_HEADER, register_stream};
use super::running_rendition::{
    RenditionKey, RenditionKind, RunningRendition, SoundChange, WantedRendition,
};
use super::state::{AudioState, RunningStation};

/// The channel that a listener gets.
pub(super) struct ListenTarget {
    /// The channel's number in the reactors.
    pub(super) number: usize,
    pub(super) channel: StationDescriptor,
    /// A reference that keeps a rendition alive; none for the station's own codec.
    pub(super) keep_alive: Option<Arc<()>>,
}

/// Ends renditions that have been unused for [`LINGER`].
pub(super) fn remove_unused(inner: &mut AudioState, wanted: &[WantedRendition]) {
    let now = SystemClock::now();
    let mut over = Vec::new();
    let AudioState { renditions, playing, .. } = &mut *inner;
    for (at, mapped) in renditions.iter_mut().enumerate() {
        let is_heard = match &mapped.kind {
            RenditionKind::Shared(_) => {
                playing.iter().any(|one| one.number == mapped.number)
                    || wanted.iter().any(|one| mapped.matches(one.station, &one.key))
                    // One of the references is the table's own.
                    || Arc::strong_count(&mapped.listeners) > 1
            }
            // `overlays` ends it.
            RenditionKind::Overlay => true,
            RenditionKind::Leaving { .. } => false,
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
        if let RenditionKind::Leaving { to, sessions } = &mapped.kind {
            // Those that have not read for so long go there at once.
            for session in sessions {
                let _taken = inner.context.continue_on(*session, mapped.number, *to);
            }
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
        let Some(key) = mapped.key() else {
            inner.context.remove_station(mapped.number);
            return false;
        };
        let has_chain = key.sound.chain.is_some();
        match create(inner, station, key, None, Some(mapped.number)) {
            Ok((_, outlet, channel)) => {
                (mapped.output_id, mapped.since) = (outlet, SystemClock::now());
                (mapped.has_processor, mapped.channel) = (has_chain, channel);
                // A client that has not come yet still comes.
                mapped.change.take_if(|change| !matches!(change, SoundChange::Warm { .. }));
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
    let AudioState { renditions: mapped, overlays, context, playing, .. } = inner;
    playing.retain(|one| one.station != station);
    overlays.retain(|overlay| overlay.station != station);
    mapped.retain(|mapped| {
        if mapped.station == station {
            context.remove_station(mapped.number);
        }
        mapped.station != station
    });
}

/// The place in the list of the rendition of this key, rather of one that does not change.
pub(super) fn find(inner: &AudioState, station: usize, key: &RenditionKey) -> Option<usize> {
    let is_it = |one: &RunningRendition| one.matches(station, key);
    let all = &inner.renditions;
    let steady = all.iter().position(|one| is_it(one) && one.change.is_none());
    steady.or_else(|| all.iter().position(is_it))
}

/// The rendition of this key; created if it does not exist.
pub(super) fn get_or_create(
    inner: &mut AudioState,
    station: usize,
    key: RenditionKey,
) -> io::Result<&mut RunningRendition> {
    let at = match find(inner, station, &key) {
        Some(at) => at,
        None => {
            let new = make(inner, station, key, None)?;
            inner.renditions.push(new);
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

/// The coefficients of a sound on this station.
pub(super) fn program(
    inner: &mut AudioState,
    station: usize,
    sound: &ClientSound,
) -> io::Result<SoundProgram> {
    let running = inner.station(station);
    let running = running.ok_or_else(|| io::Error::other("the station has been removed"))?;
    let config = &running.config;
    Ok(sound.chain.as_ref().map_or_else(SoundProgram::identity, |chain| {
        SoundProgram::new(chain, config.spec.rate, config.sound.ceiling())
    }))
}

/// A rendition of this key; with a `program`, one that still runs that in place of its sound.
pub(super) fn make(
    inner: &mut AudioState,
    station: usize,
    key: RenditionKey,
    program: Option<&SoundProgram>,
) -> io::Result<RunningRendition> {
    let (number, output_id, channel) = create(inner, station, &key, program, None)?;
    let has_chain = key.sound.chain.is_some();
    Ok(RunningRendition {
        station,
        kind: RenditionKind::Shared(key),
        number,
        output_id,
        channel,
        since: SystemClock::now(),
        has_processor: has_chain || program.is_some(),
        change: None,
        unused_since: None,
        listeners: Arc::default(),
    })
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
    let key = RenditionKey { codec: Some(codec), ..RenditionKey::default() };
    let RunningRendition { number, channel, listeners, .. } = get_or_create(inner, station, key)?;
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

/// The station's configuration with the encoding of this key.
pub(super) fn settings_for(config: &StationSettings, key: &RenditionKey) -> StationSettings {
    key.codec.map_or_else(|| config.clone(), |codec| station_in_codec(config, codec))
}

/// Counters for the status; their names are stable.
pub(super) fn counters(
    all: &[RunningRendition],
    lost_chunks: &AtomicU64,
) -> [(&'static str, u64); 5] {
    let count = |is_counted: fn(&RunningRendition) -> bool| {
        all.iter().filter(|mapped| is_counted(mapped)).count() as u64
    };
    let lost = lost_chunks.load(Ordering::Relaxed);
    [
        ("channel_maps", count(|one| encodes(one, true))),
        ("client_sounds", count(|one| one.has_processor)),
        ("listener_codecs", count(|one| encodes(one, false))),
        ("announcement_overlays", count(|one| matches!(one.kind, RenditionKind::Overlay))),
        ("listener_chunks_lost", lost),
    ]
}

/// Whether it encodes without filters, with mapped channels or with all of them.
fn encodes(rendition: &RunningRendition, is_mapped: bool) -> bool {
    let has_map = |key: &RenditionKey| key.sound.map != ChannelMap::Stereo;
    !rendition.has_processor && rendition.key().is_some_and(|key| has_map(key) == is_mapped)
}

/// Adds a rendition to a station and registers it with the reactors.
fn create(
    inner: &mut AudioState,
    station: usize,
    key: &RenditionKey,
    program: Option<&SoundProgram>,
    number: Option<usize>,
) -> io::Result<(usize, u64, StationDescriptor)> {
    let gone = || io::Error::other("the station has been removed");
    let sound = &key.sound;
    let program = match (program, &sound.chain) {
        (Some(program), _) => Some(*program),
        (None, Some(_)) => Some(self::program(inner, station, sound)?),
        (None, None) => None,
    };
    let reactors = inner.context.reactors();
    let lost_chunks = Arc::clone(&inner.lost_chunks);
    let running = inner.station(station).ok_or_else(gone)?;
    let RunningStation { config, handle, title, .. } = running;
    let title = Arc::clone(title);
    let name = match sound.is_plain() {
        true => config.name.clone(),
        false => format!("{} ({})", config.name, sound.map),
    };
    let parts = EncodingHandles::new(&settings_for(config, key), &name, reactors)?;
    let EncodingHandles { encoder, quantum, pool, outputs, channel, taps } = parts;
    let rendition = Rendition::new(encoder, pool, outputs, SNAPCAST_CHUNK_HEADER)
        .with_demand(channel.demand.clone());
    let mut rendition = rendition.with_channel_map(sound.map, quantum);
    if let Some(program) = &program {
        rendition = rendition.with_sound(program, quantum);
    }
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
