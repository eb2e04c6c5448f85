//! Opens a station's inputs from the configuration.

pub(super) mod djs;
pub(super) mod links;
pub(super) mod live_input;
pub(super) mod nats;
pub(super) mod snapcast;
pub(super) mod snapcast_monitor;
pub(super) mod source_monitor;
pub(super) mod station_link;

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use aulos_config::{SourceConfig, Station};
use aulos_core::{Block, Frames, SampleSpec, Span};
use aulos_dsp::silence::SilenceConfig;
use aulos_engine::generate::{LoopSource, MAX_LOOP_SAMPLES};
use aulos_engine::input::{Input, InputConfig};
use aulos_engine::source::{BLOCK_SAMPLES, Pacing, RingSource, Source};
use aulos_engine::standby::{StandbyHandle, standby_channel};
use aulos_engine::swappable_source::swappable_source;
use aulos_files::decode::{FileDecodeOptions, FileDecodeStatus, UniformDecoder};
use aulos_files::source::FileSource;
use aulos_io::feed::{ByteFeed, FeedState, FifoCounters, spawn_feeder};
use aulos_io::reactor::StationDescriptor;
use aulos_proto::http::HttpUrl;
use aulos_proto::titles::TitleCharset;

use crate::audio::rtp;
use crate::audio::sources::snapcast::PassThroughHandles;
use crate::audio::sources::source_monitor::SourceMonitor;
use crate::audio::sources::station_link::StationLink;
use crate::audio::state::AudioState;
use crate::feeder::make_feeder;
use crate::radio::RadioHandles;

/// Opens a source. If it cannot be opened now, it is retried, and its state holds the error.
pub(super) fn open(
    source: &aulos_config::StationSource,
    station: &Station,
    (quantum, channel): (Frames, &StationDescriptor),
    inner: &mut AudioState,
) -> io::Result<(Input, SourceMonitor)> {
    let (control, handle) = standby_channel(source.standby);
    let mut standby = Some(handle);
    let (mut buffer, mut timeout) = (source.input_buffer_ms, source.timeout_ms);
    if source.config.is_passed() {
        (buffer, timeout) = (PASS_BUFFER_MS, PASS_TIMEOUT_MS);
    }
    let buffer = Span::from_millis(i64::from(buffer));
    let (pass, queue) = match source.config.is_passed() {
        true => {
            let (pass, queue) = snapcast::pass_parts(channel, quantum, buffer);
            (Some(pass), Some(queue))
        }
        false => (None, None),
    };
    let mut about =
        SourceContext { station: &station.name, spec: station.spec, quantum, buffer, pass };
    let (opened, watch) = open_config(&source.config, &mut about, &mut standby, inner);
    let config = InputConfig {
        buffer,
        timeout: Span::from_millis(i64::from(timeout)),
        gain: source.gain,
        silence: SilenceConfig {
            threshold: source.silence.below,
            duration: source.silence.span,
            dc: source.silence.dc,
            dead_channel: source.silence.dead_channel,
        },
        standby: source.standby,
    };
    let input = Input::new(opened, station.spec.rate, station.spec.layout, config);
    let input = match queue {
        Some(queue) => input.with_ready_chunks(queue),
        None => input,
    };
    let input = match &source.normalize {
        Some(normalizer) => input.with_normalizer(normalizer).map_err(io::Error::other)?,
        None => input,
    };
    // Generated sources and other stations leave the standby handle unused: they are always ready.
    Ok((if standby.is_none() { input.with_standby(control) } else { input }, watch))
}

/// Opens the last resort. A file is decoded completely and kept in memory.
pub(super) fn last_resort(
    config: &SourceConfig,
    station: &Station,
    quantum: Frames,
) -> io::Result<Input> {
    let sound: Box<dyn Source> = match config {
        SourceConfig::Generated { generator, spec } => generator.source(*spec, quantum),
        SourceConfig::File { path, spec, .. } => Box::new(load_recording(path, *spec)?),
        other => {
            let message = format!("last_resort cannot be a {} source", other.scheme());
            return Err(io::Error::other(message));
        }
    };
    Ok(Input::new(sound, station.spec.rate, station.spec.layout, InputConfig::default()))
}

fn load_recording(path: &Path, raw: Option<SampleSpec>) -> io::Result<LoopSource> {
    let fail = |why: String| io::Error::other(format!("last_resort {}: {why}", path.display()));
    let mut decoder = UniformDecoder::open(path, FileDecodeOptions { looped: false, raw })
        .map_err(|error| fail(error.to_string()))?;
    let (rate, layout) = (decoder.info().rate, decoder.info().layout);
    let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
    let mut samples = Vec::new();
    while decoder.next(&mut block).map_err(|error| fail(error.to_string()))?
        == FileDecodeStatus::Block
    {
        if samples.len() + block.samples().len() > MAX_LOOP_SAMPLES {
            let seconds = MAX_LOOP_SAMPLES / layout.channels() / rate.hz() as usize;
            return Err(fail(format!(
                "longer than {seconds} s, the maximum for a file that is kept in memory"
            )));
        }
        samples.extend_from_slice(block.samples());
    }
    LoopSource::new(samples, rate, layout)
        .ok_or_else(|| fail("the file contains no audio".to_owned()))
}

/// What sources need to know of their station.
struct SourceContext<'a> {
    station: &'a str,
    spec: SampleSpec,
    quantum: Frames,
    buffer: Span,
    /// For a source whose chunks are passed.
    pass: Option<PassThroughHandles>,
}

fn open_config(
    config: &SourceConfig,
    about: &mut SourceContext<'_>,
    standby: &mut Option<StandbyHandle>,
    inner: &mut AudioState,
) -> (Box<dyn Source>, SourceMonitor) {
    match config {
        SourceConfig::Rtp(_) | SourceConfig::Sdp { .. } => {
            let (source, received) = rtp::open(config, about.buffer, standby.take(), inner);
            (source, SourceMonitor::Rtp(Box::new(received)))
        }
        SourceConfig::Generated { generator, spec } => {
            (generator.source(*spec, about.quantum), SourceMonitor::Generated)
        }
        SourceConfig::File { path, repeat, spec } => {
            let options = FileDecodeOptions { looped: *repeat, raw: *spec };
            open_file(path.clone(), options, standby.take(), inner)
        }
        SourceConfig::Http { url, charset } => open_radio((url, *charset), standby.take(), inner),
        SourceConfig::Snapcast(other) => {
            snapcast::open(other, (about.station, about.pass.take()), standby.take(), inner)
        }
        SourceConfig::Nats(other) => nats::open(other, about.pass.take(), standby.take(), inner),
        SourceConfig::Icecast(mount) => {
            let (source, input) = djs::open(mount, standby.take(), inner);
            (source, SourceMonitor::Dj(Box::new(input)))
        }
        SourceConfig::Station { name } => {
            let (patch, source) = swappable_source();
            inner.links.push(StationLink::new(name, patch));
            (Box::new(source), SourceMonitor::Generated)
        }
        raw @ SourceConfig::Capture { spec, .. } => {
            open_byte_source(raw, spec.unwrap_or(about.spec), standby, inner)
        }
        raw @ (SourceConfig::Stdin { spec }
        | SourceConfig::Pipe { spec, .. }
        | SourceConfig::Process { spec, .. }
        | SourceConfig::TcpServer { spec, .. }
        | SourceConfig::TcpClient { spec, .. }) => open_byte_source(raw, *spec, standby, inner),
    }
}

fn open_file(
    path: aulos_io::SourcePath,
    options: FileDecodeOptions,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> (Box<dyn Source>, SourceMonitor) {
    let (file, items, state) = FileSource::new(path, options, inner.seeds.next_u64());
    let file = file.with_report(crate::file_warnings::log);
    let retry = file.retry_time();
    inner.codecs.add(match standby {
        Some(handle) => Box::new(file.with_standby(handle)),
        None => Box::new(file),
    });
    (Box::new(RingSource::new(items, Pacing::OnDemand)), SourceMonitor::File(state, retry))
}

fn open_radio(
    (url, charset): (&HttpUrl, TitleCharset),
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> (Box<dyn Source>, SourceMonitor) {
    let seed = inner.seeds.next_u64();
    let radio = inner.radio_client.open(url.clone(), charset, standby, seed);
    let RadioHandles { feed, source, items, status: watch, task } = radio;
    inner.context.add_feeder(Box::new(feed));
    inner.codecs.add(Box::new(source));
    inner.background_tasks.push(task);
    (Box::new(RingSource::new(items, Pacing::Streamed)), SourceMonitor::Radio(watch))
}

fn open_byte_source(
    config: &SourceConfig,
    spec: SampleSpec,
    standby: &mut Option<StandbyHandle>,
    inner: &mut AudioState,
) -> (Box<dyn Source>, SourceMonitor) {
    let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
    let (feed, items) = ByteFeed::new(spec, publisher, inner.seeds.next_u64());
    let feed = match standby.take() {
        Some(handle) => feed.with_standby(handle),
        None => feed,
    };
    let retry = feed.retry_time();
    if let Some(feeder) = make_feeder(config, feed, &inner.feeder_counters) {
        if !feeder.may_block() {
            inner.context.add_feeder(feeder);
        } else if let Err(error) = spawn_feeder(feeder) {
            tracing::error!(%error, source = config.scheme(), "no thread for a device");
        }
    }
    (Box::new(RingSource::new(items, Pacing::Live)), SourceMonitor::Feed(state, retry))
}

/// A source whose chunks are passed is exact by its server's clock: its input covers no more than
/// the pauses of a reactor. The time-out is shorter than that, so that the next source follows
/// without a gap.
const PASS_BUFFER_MS: u32 = 150;
const PASS_TIMEOUT_MS: u32 = 100;

/// FIFO counters for the status; their names are stable.
pub(super) fn counters(fifos: &FifoCounters) -> [(&'static str, u64); 3] {
    [
        ("fifos_recreated", &fifos.recreated),
        ("fifos_reopened", &fifos.reopened),
        ("fifos_blocked", &fifos.blocked),
    ]
    .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
}
