//! Opens a station's inputs from the configuration.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aulos_config::{PipeMode, SourceConfig, Station, TitleFifo, TitleFormat};
use aulos_core::{Block, Frames, Span};
use aulos_dsp::silence;
use aulos_engine::generate::{Demo, LoopSource, MAX_LOOP_SAMPLES, Tone};
use aulos_engine::input::{self, Input};
use aulos_engine::source::{BLOCK_SAMPLES, Pacing, RingSource, Source};
use aulos_engine::standby::{StandbyHandle, standby_channel};
use aulos_engine::swappable_source::swappable_source;
use aulos_files::decode::{FileDecodeOptions, FileDecodeStatus, FileDecoder};
use aulos_files::source::FileSource;
use aulos_io::feed::{
    ByteFeed, FeedState, Feeder, FifoCounters, FifoFeeder, FifoMode, ProcessConfig, ProcessFeeder,
    StdinFeeder, TcpClientFeeder, TcpServerFeeder, split_arguments,
};
use aulos_proto::http::HttpUrl;

use super::AudioState;
use super::djs;
use super::links::StationLink;
use super::rtp;
use super::source_monitor::SourceMonitor;
use crate::radio::RadioParts;

/// Opens a source. If it cannot be opened now, it is retried, and its state holds the error.
pub(super) fn open(
    source: &aulos_config::StationSource,
    station: &Station,
    quantum: Frames,
    inner: &mut AudioState,
) -> io::Result<(Input, SourceMonitor)> {
    let (control, handle) = standby_channel(source.standby);
    let mut standby = Some(handle);
    let buffer = Span::from_millis(i64::from(source.input_buffer_ms));
    let (opened, watch) = open_config(&source.config, quantum, buffer, &mut standby, inner);
    let config = input::Config {
        buffer,
        timeout: Span::from_millis(i64::from(source.timeout_ms)),
        gain: source.gain,
        silence: silence::Config {
            threshold: source.silence.below,
            duration: source.silence.span,
            dc: source.silence.dc,
            dead_channel: source.silence.dead_channel,
        },
        standby: source.standby,
    };
    let input = Input::new(opened, station.spec.rate, station.spec.layout, config);
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
        SourceConfig::Tone { hz, dbfs, spec } => {
            Box::new(Tone::new(*hz, *dbfs, spec.rate, spec.layout, quantum))
        }
        SourceConfig::File { path, spec, .. } => Box::new(load_recording(path, *spec)?),
        _ => Box::new(Demo::new(station.spec.rate, quantum)),
    };
    Ok(Input::new(sound, station.spec.rate, station.spec.layout, input::Config::default()))
}

fn load_recording(path: &Path, raw: Option<aulos_core::SampleSpec>) -> io::Result<LoopSource> {
    let fail = |why: String| io::Error::other(format!("last_resort {}: {why}", path.display()));
    let mut decoder = FileDecoder::open(path, FileDecodeOptions { looped: false, raw })
        .map_err(|error| fail(error.to_string()))?;
    let (rate, layout) = (decoder.info().rate, decoder.info().layout);
    let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
    let mut samples = Vec::new();
    while decoder.next(&mut block).map_err(|error| fail(error.to_string()))?
        == FileDecodeStatus::Block
    {
        if (block.rate(), block.layout()) != (rate, layout) {
            return Err(fail(
                "its sample rate or number of channels changes within the file".to_owned(),
            ));
        }
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

fn open_config(
    config: &SourceConfig,
    quantum: Frames,
    buffer: Span,
    standby: &mut Option<StandbyHandle>,
    inner: &mut AudioState,
) -> (Box<dyn Source>, SourceMonitor) {
    match config {
        SourceConfig::Rtp(_) | SourceConfig::Sdp { .. } => {
            let (source, received) = rtp::open(config, buffer, standby.take(), inner);
            (source, SourceMonitor::Rtp(Box::new(received)))
        }
        SourceConfig::Demo { spec } => {
            (Box::new(Demo::new(spec.rate, quantum)), SourceMonitor::Generated)
        }
        SourceConfig::Tone { hz, dbfs, spec } => {
            let tone = Tone::new(*hz, *dbfs, spec.rate, spec.layout, quantum);
            (Box::new(tone), SourceMonitor::Generated)
        }
        SourceConfig::File { path, repeat, spec } => {
            let options = FileDecodeOptions { looped: *repeat, raw: *spec };
            open_file(path.clone(), options, standby.take(), inner)
        }
        SourceConfig::Http { url } => open_radio(url, standby.take(), inner),
        SourceConfig::Stdin { spec } => {
            open_byte_source(inner, standby, *spec, |feed| Box::new(StdinFeeder::new(feed)))
        }
        SourceConfig::Pipe { path, mode, spec } => {
            let mode = match mode {
                PipeMode::Create => FifoMode::Create,
                PipeMode::Read => FifoMode::Read,
            };
            let counters = Arc::clone(&inner.fifo_counters);
            open_byte_source(inner, standby, *spec, |feed| {
                Box::new(FifoFeeder::new(path.clone(), mode, feed).with_counters(counters))
            })
        }
        SourceConfig::Process { path, params, spec, log_stderr, titles } => {
            let process = process_config(path, params, *log_stderr, titles.as_ref());
            open_byte_source(inner, standby, *spec, |feed| {
                Box::new(ProcessFeeder::new(process, feed))
            })
        }
        SourceConfig::Icecast(mount) => {
            let (source, input) = djs::open(mount, standby.take(), inner);
            (source, SourceMonitor::Dj(Box::new(input)))
        }
        SourceConfig::Station { name } => {
            let (patch, source) = swappable_source();
            inner.links.push(StationLink::new(name, patch));
            (Box::new(source), SourceMonitor::Generated)
        }
        SourceConfig::TcpServer { address, spec } => {
            let refused = Arc::clone(&inner.source_requests);
            let server = |feed| {
                TcpServerFeeder::new(address.to_string(), feed).with_refusal_counter(refused)
            };
            open_byte_source(inner, standby, *spec, |feed| Box::new(server(feed)))
        }
        SourceConfig::TcpClient { address, spec } => {
            open_byte_source(inner, standby, *spec, |feed| {
                Box::new(TcpClientFeeder::new(address.to_string(), feed))
            })
        }
    }
}

fn open_file(
    path: aulos_io::SourcePath,
    options: FileDecodeOptions,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> (Box<dyn Source>, SourceMonitor) {
    let (file, items, state) = FileSource::new(path, options, inner.seeds.next_u64());
    inner.codecs.add(match standby {
        Some(handle) => Box::new(file.with_standby(handle)),
        None => Box::new(file),
    });
    (Box::new(RingSource::new(items, Pacing::OnDemand)), SourceMonitor::File(state))
}

fn process_config(
    path: &Path,
    params: &str,
    log_stderr: bool,
    titles: Option<&TitleFifo>,
) -> ProcessConfig {
    let mut process = ProcessConfig {
        program: path.to_path_buf(),
        arguments: split_arguments(params),
        log_stderr,
        log_to: None,
    };
    match titles {
        Some(TitleFifo { kind: TitleFormat::Librespot, fifo }) => {
            process.log_to = Some(fifo.clone());
        }
        Some(TitleFifo { kind: TitleFormat::Airplay, fifo }) => {
            let pipe = format!("--metadata-pipename={}", fifo.display());
            let enable = ["--metadata-enable".to_owned(), "--get-coverart".to_owned(), pipe];
            process.arguments.extend(enable);
        }
        None => {}
    }
    process
}

fn open_radio(
    url: &HttpUrl,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> (Box<dyn Source>, SourceMonitor) {
    let radio = inner.radio_client.open(url.clone(), standby, inner.seeds.next_u64());
    let RadioParts { feed, source, items, status: watch, task } = radio;
    inner.context.add_feeder(Box::new(feed));
    inner.codecs.add(Box::new(source));
    inner.background_tasks.push(task);
    (Box::new(RingSource::new(items, Pacing::Streamed)), SourceMonitor::Radio(watch))
}

fn open_byte_source(
    inner: &mut AudioState,
    standby: &mut Option<StandbyHandle>,
    spec: aulos_core::SampleSpec,
    make: impl FnOnce(ByteFeed) -> Box<dyn Feeder>,
) -> (Box<dyn Source>, SourceMonitor) {
    let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
    let (feed, items) = ByteFeed::new(spec, publisher, inner.seeds.next_u64());
    let feed = match standby.take() {
        Some(handle) => feed.with_standby(handle),
        None => feed,
    };
    inner.context.add_feeder(make(feed));
    (Box::new(RingSource::new(items, Pacing::Live)), SourceMonitor::Feed(state))
}

/// FIFO counters for the status; their names are stable.
pub(super) fn counters(fifos: &FifoCounters) -> [(&'static str, u64); 3] {
    [
        ("fifos_recreated", &fifos.recreated),
        ("fifos_reopened", &fifos.reopened),
        ("fifos_blocked", &fifos.blocked),
    ]
    .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
}
