//! Starts, replaces and ends stations.

use std::io;
use std::sync::Arc;

use aulos_config::{SoundSettings, Station};
use aulos_core::{Frames, HEADROOM, Span};
use aulos_engine::encode::Encoder;
use aulos_engine::fanout::TimedChunk;
use aulos_engine::loudness_processor::LoudnessControl;
use aulos_engine::rendition::WriteHeader;
use aulos_engine::status::StationStatus;
use aulos_engine::{encode, station, switch};
use aulos_io::SystemClock;
use aulos_io::reactor::StationDescriptor;
use aulos_proto::snap;
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, Producer, ring};

use super::announcements::StationAnnouncements;
use super::{AudioState, RunningStation, pushes, recordings, rtp, sources};

/// Starts a station and returns its number: a free one or a new one.
pub(super) fn start(config: &Station, inner: &mut AudioState) -> io::Result<usize> {
    let (number, running) = run(config, None, inner)?;
    if let Some(slot) = inner.stations.get_mut(number) {
        *slot = Some(running);
    }
    recordings::start(number, inner);
    Ok(number)
}

/// Starts a station under the number of another one, which ends.
pub(super) fn replace(number: usize, config: &Station, inner: &mut AudioState) -> io::Result<()> {
    let (_, mut running) = run(config, Some(number), inner)?;
    if let Some(old) = inner.stations.get(number).and_then(Option::as_ref) {
        running.title = Arc::clone(&old.title);
        pushes::show_title(&running.pushes, &running.title);
    }
    let old = inner.stations.get_mut(number).and_then(|slot| slot.replace(running));
    if let Some(mut old) = old {
        recordings::reattach(inner, number, std::mem::take(&mut old.recordings));
        end(old, inner);
    }
    Ok(())
}

/// Ends a station that has no clients left.
pub(super) fn end(old: RunningStation, inner: &mut AudioState) {
    rtp::end(&old, inner);
    inner.workers.remove(old.worker_slot);
    inner.finished_announcements.extend(old.announcements.end_all());
}

/// One encoding of a station: encoder, buffers, rings and the reactors' channel.
pub(super) struct EncodingParts {
    pub(super) encoder: Box<dyn Encoder>,
    pub(super) quantum: Frames,
    pub(super) pool: Pool<Vec<u8>>,
    pub(super) outputs: Vec<Producer<TimedChunk>>,
    pub(super) channel: StationDescriptor,
    pub(super) taps: Vec<Consumer<TimedChunk>>,
}

impl EncodingParts {
    pub(super) fn new(config: &Station, name: &str, reactors: usize) -> io::Result<Self> {
        let chunk = Span::from_millis(i64::from(config.chunk_ms));
        let quantum = config.spec.rate.frames(chunk);
        let encoder =
            encode::make_encoder(config.codec, config.spec, quantum).map_err(io::Error::other)?;
        let header =
            snap::wire::codec_header(config.codec.codec(), encoder.spec(), encoder.header());
        let channel = StationDescriptor {
            name: name.to_owned(),
            codec: config.codec.codec(),
            bitrate: config.codec.bitrate(),
            spec: encoder.spec(),
            stream_header: encoder.header().to_vec(),
            // A codec that Snapcast does not have is for web listeners only.
            codec_header: header.unwrap_or_default().into(),
            buffer: Span::from_millis(i64::from(config.buffer_ms)),
            chunk,
        };
        let (outputs, taps) = (0..reactors).map(|_| ring(RING_CHUNKS)).unzip();
        let pool = pool(&channel, quantum);
        Ok(Self { encoder, quantum, pool, outputs, channel, taps })
    }
}

/// Registers a channel with the reactors, under `number`, a free number or a new one.
pub(super) fn register_channel(
    number: Option<usize>,
    channel: &StationDescriptor,
    taps: Vec<Consumer<TimedChunk>>,
    inner: &mut AudioState,
) -> usize {
    let is_free = |number: &usize| inner.renditions.iter().all(|mapped| mapped.number != *number);
    let empty = || {
        let stations = inner.stations.iter().enumerate();
        let mut empty = stations.filter(|(_, slot)| slot.is_none()).map(|(number, _)| number);
        empty.find(is_free)
    };
    match number.or_else(empty) {
        Some(number) => {
            inner.context.replace_station(number, channel, taps);
            number
        }
        None => {
            inner.context.add_station(channel, taps);
            inner.stations.push(None);
            inner.stations.len() - 1
        }
    }
}

/// Opens the sources, builds the station, registers it with the reactors and hands it to a worker.
fn run(
    config: &Station,
    number: Option<usize>,
    inner: &mut AudioState,
) -> io::Result<(usize, RunningStation)> {
    let parts = EncodingParts::new(config, &config.name, inner.context.reactors())?;
    let last_resort = config.last_resort.as_ref();
    let last_resort =
        last_resort.map(|sound| sources::last_resort(sound, config, parts.quantum)).transpose()?;
    let EncodingParts { encoder, quantum, pool, outputs, channel, taps } = parts;
    let opened = config.sources.iter().map(|source| sources::open(source, config, quantum, inner));
    let opened: io::Result<Vec<_>> = opened.collect();
    let (inputs, watches) = opened?.into_iter().unzip();
    let now = SystemClock::now();
    let (published, status) = aulos_rt::latest(StationStatus::new(now));
    let number = register_channel(number, &channel, taps, inner);
    let station_config = station::StationConfig {
        quantum,
        switch: switch::Config {
            failback_delay: Span::from_secs(i64::from(config.switch.hold_in_s)),
            failback: config.switch.comeback,
            startup_wait: config.switch.immediate.then_some(switch::DEFAULT_STARTUP_WAIT),
        },
        crossfade: Span::from_millis(i64::from(config.switch.crossfade_ms)),
        write_header: WRITE_HEADER,
    };
    let mut station =
        station::Station::new(station_config, now, inputs, encoder, pool, outputs, published);
    let resets = (0, station.loudness_resets());
    let announcements = StationAnnouncements::new(station.announcement_queue());
    let outlets = station.output_bus();
    let mut loudness_control = station.loudness_control();
    apply_sound(&mut loudness_control, &config.sound).map_err(io::Error::other)?;
    let (source_preference, switched) = (station.preference_requests(), station.switch_events());
    if let Some(sound) = last_resort {
        station.set_last_resort(sound);
    }
    let place = inner.workers.add(station);
    inner.station_runs += 1;
    let pushes = pushes::start(config, inner);
    let rtp = rtp::start(config, inner);
    let (config, run) = (config.clone(), inner.station_runs);
    let running = RunningStation {
        config,
        status,
        channel,
        sources: watches,
        loudness_resets: resets,
        announcements,
        pushes,
        rtp,
        recordings: Vec::new(),
        output_bus: outlets,
        loudness_control,
        source_preference,
        switch_events: switched,
        flush_at: None,
        title: Arc::from(""),
        run,
        worker_slot: place,
    };
    Ok((number, running))
}

/// Applies normalizer and equalizer settings to a station.
pub(super) fn apply_sound(
    control: &mut LoudnessControl,
    sound: &SoundSettings,
) -> Result<(), String> {
    control.set_normalizer(sound.normalize.as_ref()).map_err(|error| error.to_string())?;
    control.set_equalizer(&sound.equalizer).map_err(|error| error.to_string())
}

/// Writes the chunk header of the Snapcast protocol.
pub(super) const WRITE_HEADER: WriteHeader = snap::wire::write_chunk_header;

/// Buffers for every chunk that a log or a ring can hold, and for those being written.
fn pool(channel: &StationDescriptor, quantum: Frames) -> Pool<Vec<u8>> {
    let kept = channel.lifetime().as_nanos() / channel.chunk.as_nanos().max(1);
    let count = usize::try_from(kept).unwrap_or(0) + RING_CHUNKS + CHUNKS_IN_FLIGHT;
    // No codec makes a chunk larger than 4 bytes per sample plus a header.
    let samples = quantum.as_usize() * channel.spec.layout.channels();
    Pool::new(count, || Vec::with_capacity(HEADROOM + samples * 4 + MAX_CODEC_OVERHEAD))
}

/// Chunks between a station and a reactor: more than a second at 20 ms. A reactor polls five times
/// a second.
const RING_CHUNKS: usize = 64;

/// Chunks being encoded, with a margin.
const CHUNKS_IN_FLIGHT: usize = 8;

/// Overhead of a codec for samples that it cannot compress.
const MAX_CODEC_OVERHEAD: usize = 256;
