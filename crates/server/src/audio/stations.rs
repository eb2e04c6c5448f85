//! From a station's configuration to a station that runs.

use std::io;
use std::sync::Arc;

use aulos_config::{Sound, Station};
use aulos_core::{Frames, HEADROOM, Span};
use aulos_engine::encode::Encoder;
use aulos_engine::fanout::Stamped;
use aulos_engine::rendition::WriteHeader;
use aulos_engine::status::StationStatus;
use aulos_engine::steady::Knobs;
use aulos_engine::{encode, station, switch};
use aulos_io::SystemClock;
use aulos_io::reactor::Channel;
use aulos_proto::snap;
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, Producer, ring};

use super::announcements::Announcements;
use super::{Inner, Running, pushes, recordings, rtp, sources};

/// Starts a station and gives its number: one that was free, or a new one.
pub(super) fn start(config: &Station, inner: &mut Inner) -> io::Result<usize> {
    let (number, running) = run(config, None, inner)?;
    if let Some(slot) = inner.stations.get_mut(number) {
        *slot = Some(running);
    }
    recordings::start(number, inner);
    Ok(number)
}

/// Starts a station in the place of another, which ends.
pub(super) fn replace(number: usize, config: &Station, inner: &mut Inner) -> io::Result<()> {
    let (_, mut running) = run(config, Some(number), inner)?;
    if let Some(old) = inner.stations.get(number).and_then(Option::as_ref) {
        running.title = Arc::clone(&old.title);
        pushes::show_title(&running.pushes, &running.title);
    }
    let old = inner.stations.get_mut(number).and_then(|slot| slot.replace(running));
    if let Some(mut old) = old {
        recordings::take_over(inner, number, std::mem::take(&mut old.recordings));
        end(old, inner);
    }
    Ok(())
}

/// Lets a station end that nobody is to hear any more.
pub(super) fn end(old: Running, inner: &mut Inner) {
    rtp::end(&old, inner);
    inner.workers.remove(old.place);
    inner.announced.extend(old.announcements.abandon());
}

/// One encoding of a station, and what the reactors have to know of it.
pub(super) struct Parts {
    pub(super) encoder: Box<dyn Encoder>,
    pub(super) quantum: Frames,
    pub(super) pool: Pool<Vec<u8>>,
    pub(super) outputs: Vec<Producer<Stamped>>,
    pub(super) channel: Channel,
    pub(super) taps: Vec<Consumer<Stamped>>,
}

impl Parts {
    pub(super) fn new(config: &Station, name: &str, reactors: usize) -> io::Result<Self> {
        let chunk = Span::from_millis(i64::from(config.chunk_ms));
        let quantum = config.spec.rate.frames(chunk);
        let encoder = encode::make(config.codec, config.spec, quantum).map_err(io::Error::other)?;
        let header =
            snap::wire::codec_header(config.codec.codec(), encoder.spec(), encoder.header());
        let channel = Channel {
            name: name.to_owned(),
            codec: config.codec.codec(),
            bitrate: config.codec.bitrate(),
            spec: encoder.spec(),
            stream_header: encoder.header().to_vec(),
            // What no client of Snapcast can play is only for web listeners.
            codec_header: header.unwrap_or_default().into(),
            buffer: Span::from_millis(i64::from(config.buffer_ms)),
            chunk,
        };
        let (outputs, taps) = (0..reactors).map(|_| ring(RING_CHUNKS)).unzip();
        let pool = pool(&channel, quantum);
        Ok(Self { encoder, quantum, pool, outputs, channel, taps })
    }
}

/// Tells the reactors of what can be played, under this number, or one that is free, or a new one.
pub(super) fn serve(
    number: Option<usize>,
    channel: &Channel,
    taps: Vec<Consumer<Stamped>>,
    inner: &mut Inner,
) -> usize {
    let is_free = |number: &usize| inner.mapped.iter().all(|mapped| mapped.number != *number);
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

/// Opens the sources, makes the station, tells the reactors of it, and lets a worker run it.
fn run(config: &Station, number: Option<usize>, inner: &mut Inner) -> io::Result<(usize, Running)> {
    let parts = Parts::new(config, &config.name, inner.context.reactors())?;
    let last_resort = config.last_resort.as_ref();
    let last_resort =
        last_resort.map(|sound| sources::last_resort(sound, config, parts.quantum)).transpose()?;
    let Parts { encoder, quantum, pool, outputs, channel, taps } = parts;
    let opened = config.sources.iter().map(|source| sources::open(source, config, quantum, inner));
    let opened: io::Result<Vec<_>> = opened.collect();
    let (inputs, watches) = opened?.into_iter().unzip();
    let now = SystemClock::now();
    let (published, status) = aulos_rt::latest(StationStatus::new(now));
    let number = serve(number, &channel, taps, inner);
    let wishes = station::Config {
        quantum,
        switch: switch::Config {
            hold_in: Span::from_secs(i64::from(config.switch.hold_in_s)),
            comeback: config.switch.comeback,
            patience: config.switch.immediate.then_some(switch::PATIENCE),
        },
        crossfade: Span::from_millis(i64::from(config.switch.crossfade_ms)),
        write_header: WRITE_HEADER,
    };
    let mut station = station::Station::new(wishes, now, inputs, encoder, pool, outputs, published);
    let resets = (0, station.loudness_resets());
    let announcements = Announcements::new(station.desk());
    let outlets = station.outlets();
    let mut knobs = station.knobs();
    turn(&mut knobs, &config.sound).map_err(io::Error::other)?;
    let (wishes, switched) = (station.wishes(), station.events());
    if let Some(sound) = last_resort {
        station.set_last_resort(sound);
    }
    let place = inner.workers.add(station);
    inner.runs += 1;
    let pushes = pushes::start(config, inner);
    let rtp = rtp::start(config, inner);
    let (config, run) = (config.clone(), inner.runs);
    let running = Running {
        config,
        status,
        channel,
        sources: watches,
        resets,
        announcements,
        pushes,
        rtp,
        recordings: Vec::new(),
        outlets,
        knobs,
        wishes,
        switched,
        flush_at: None,
        title: Arc::from(""),
        run,
        place,
    };
    Ok((number, running))
}

/// Tells a station what is done to its programme.
pub(super) fn turn(knobs: &mut Knobs, sound: &Sound) -> Result<(), String> {
    knobs.normalise(sound.normalize.as_ref()).map_err(|error| error.to_string())?;
    knobs.equalise(&sound.equalizer).map_err(|error| error.to_string())
}

/// The wire that our sessions speak.
pub(super) const WRITE_HEADER: WriteHeader = snap::wire::write_chunk_header;

/// Buffers for every chunk that a log or a ring can hold, and for those that are being written.
fn pool(channel: &Channel, quantum: Frames) -> Pool<Vec<u8>> {
    let kept = channel.lifetime().as_nanos() / channel.chunk.as_nanos().max(1);
    let count = usize::try_from(kept).unwrap_or(0) + RING_CHUNKS + IN_FLIGHT;
    // No codec makes more of a chunk than 4 bytes a sample, but for a header.
    let samples = quantum.as_usize() * channel.spec.layout.channels();
    Pool::new(count, || Vec::with_capacity(HEADROOM + samples * 4 + CODEC_HEADER))
}

/// Chunks between a station and a reactor: more than a second at 20 ms, and a reactor comes by five
/// times a second.
const RING_CHUNKS: usize = 64;

/// Chunks that are being made, and a few to spare.
const IN_FLIGHT: usize = 8;

/// What a codec puts around samples that it cannot compress.
const CODEC_HEADER: usize = 256;
