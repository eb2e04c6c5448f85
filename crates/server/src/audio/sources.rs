//! From a source's configuration to an input of a station.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aulos_config::{PipeMode, SourceConfig, Station, TitleKind, Titles};
use aulos_core::{Block, Frames, Span};
use aulos_dsp::silence;
use aulos_engine::generate::{Demo, MAX_RECORDING, Recording, Tone};
use aulos_engine::input::{self, Input};
use aulos_engine::patch::patch;
use aulos_engine::source::{BLOCK_SAMPLES, Pacing, RingSource, Source};
use aulos_engine::standby::{Keeper, gate};
use aulos_io::decode::{Decoded, FileDecoder, Options};
use aulos_io::feed::{
    ByteFeed, FeedState, Feeder, Fifo, FifoCounters, FifoMode, FileSource, FileState, Process,
    ProcessConfig, Stdin, TcpClient, TcpServer, split_arguments,
};
use aulos_proto::http::HttpUrl;
use aulos_rt::Reader;

use super::Inner;
use super::djs::{self, Booth};
use super::links::Link;
use super::rtp::{self, Received};
use crate::radio::{self, Radio};

/// How the state of a source can be seen.
#[derive(Debug)]
pub(super) enum Watch {
    /// It is made here, or by another station, and cannot fail.
    Generated,
    /// Bytes from outside.
    Feed(Reader<FeedState>),
    /// A decoded file.
    File(Reader<FileState>),
    /// Web radio.
    Radio(radio::Watch),
    /// A place for a DJ.
    Dj(Box<Booth>),
    /// Packets of RTP.
    Rtp(Box<Received>),
}

/// Opens a source as far as that is possible now; what cannot be opened is tried again, and its
/// state says why.
pub(super) fn open(
    source: &aulos_config::Source,
    station: &Station,
    quantum: Frames,
    inner: &mut Inner,
) -> io::Result<(Input, Watch)> {
    let (gate, keeper) = gate(source.standby);
    let mut line = Some(keeper);
    let buffer = Span::from_millis(i64::from(source.input_buffer_ms));
    let (opened, watch) = make(&source.config, quantum, buffer, &mut line, inner);
    let config = input::Config {
        buffer,
        timeout: Span::from_millis(i64::from(source.timeout_ms)),
        gain: source.gain,
        silence: silence::Config {
            below: source.silence.below,
            span: source.silence.span,
            dc: source.silence.dc,
            dead_channel: source.silence.dead_channel,
        },
        standby: source.standby,
    };
    let input = Input::new(opened, station.spec.rate, station.spec.layout, config);
    let input = match &source.normalize {
        Some(wish) => input.normalised(wish).map_err(io::Error::other)?,
        None => input,
    };
    // Nobody took the line: what is made here, or by another station, is always there.
    Ok((if line.is_none() { input.gated(gate) } else { input }, watch))
}

/// Opens what is heard when no source has sound. A file is decoded as a whole, and kept.
pub(super) fn last_resort(
    config: &SourceConfig,
    station: &Station,
    quantum: Frames,
) -> io::Result<Input> {
    let sound: Box<dyn Source> = match config {
        SourceConfig::Tone { hz, dbfs, spec } => {
            Box::new(Tone::new(*hz, *dbfs, spec.rate, spec.layout, quantum))
        }
        SourceConfig::File { path, spec, .. } => Box::new(recording(path, *spec)?),
        _ => Box::new(Demo::new(station.spec.rate, quantum)),
    };
    Ok(Input::new(sound, station.spec.rate, station.spec.layout, input::Config::default()))
}

fn recording(path: &Path, raw: Option<aulos_core::SampleSpec>) -> io::Result<Recording> {
    let fail = |why: String| io::Error::other(format!("last_resort {}: {why}", path.display()));
    let mut decoder = FileDecoder::open(path, Options { looped: false, raw })
        .map_err(|error| fail(error.to_string()))?;
    let (rate, layout) = (decoder.info().rate, decoder.info().layout);
    let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
    let mut samples = Vec::new();
    while decoder.next(&mut block).map_err(|error| fail(error.to_string()))? == Decoded::Block {
        if (block.rate(), block.layout()) != (rate, layout) {
            return Err(fail("its rate or its channels change in its middle".to_owned()));
        }
        if samples.len() + block.samples().len() > MAX_RECORDING {
            let seconds = MAX_RECORDING / layout.channels() / rate.hz() as usize;
            return Err(fail(format!("it is kept in memory, and {seconds} s is the most")));
        }
        samples.extend_from_slice(block.samples());
    }
    Recording::new(samples, rate, layout).ok_or_else(|| fail("there is no sound in it".to_owned()))
}

fn make(
    config: &SourceConfig,
    quantum: Frames,
    buffer: Span,
    line: &mut Option<Keeper>,
    inner: &mut Inner,
) -> (Box<dyn Source>, Watch) {
    match config {
        SourceConfig::Rtp(_) | SourceConfig::Sdp { .. } => {
            let (source, received) = rtp::open(config, buffer, line.take(), inner);
            (source, Watch::Rtp(Box::new(received)))
        }
        SourceConfig::Demo { spec } => (Box::new(Demo::new(spec.rate, quantum)), Watch::Generated),
        SourceConfig::Tone { hz, dbfs, spec } => {
            let tone = Tone::new(*hz, *dbfs, spec.rate, spec.layout, quantum);
            (Box::new(tone), Watch::Generated)
        }
        SourceConfig::File { path, repeat, spec } => {
            let options = Options { looped: *repeat, raw: *spec };
            let (file, items, state) = FileSource::new(path.clone(), options, inner.seeds.next());
            inner.codecs.add(match line.take() {
                Some(keeper) => Box::new(file.kept(keeper)),
                None => Box::new(file),
            });
            (Box::new(RingSource::new(items, Pacing::OnDemand)), Watch::File(state))
        }
        SourceConfig::Http { url } => radio(url, line.take(), inner),
        SourceConfig::Stdin { spec } => feed(inner, line, *spec, |feed| Box::new(Stdin::new(feed))),
        SourceConfig::Pipe { path, mode, spec } => {
            let mode = match mode {
                PipeMode::Create => FifoMode::Create,
                PipeMode::Read => FifoMode::Read,
            };
            let counters = Arc::clone(&inner.fifo_counters);
            feed(inner, line, *spec, |feed| {
                Box::new(Fifo::new(path.clone(), mode, feed).counted(counters))
            })
        }
        SourceConfig::Process { path, params, spec, log_stderr, titles } => {
            let process = process(path, params, *log_stderr, titles.as_ref());
            feed(inner, line, *spec, |feed| Box::new(Process::new(process, feed)))
        }
        SourceConfig::Icecast(mount) => djs::open(mount, line.take(), inner),
        SourceConfig::Station { name } => {
            let (patch, source) = patch();
            inner.links.push(Link::new(name, patch));
            (Box::new(source), Watch::Generated)
        }
        SourceConfig::TcpServer { address, spec } => {
            let refused = Arc::clone(&inner.source_requests);
            let server = |feed| TcpServer::new(address.to_string(), feed).counting(refused);
            feed(inner, line, *spec, |feed| Box::new(server(feed)))
        }
        SourceConfig::TcpClient { address, spec } => {
            feed(inner, line, *spec, |feed| Box::new(TcpClient::new(address.to_string(), feed)))
        }
    }
}

fn process(path: &Path, params: &str, log_stderr: bool, titles: Option<&Titles>) -> ProcessConfig {
    let mut process = ProcessConfig {
        program: path.to_path_buf(),
        arguments: split_arguments(params),
        log_stderr,
        log_to: None,
    };
    match titles {
        Some(Titles { kind: TitleKind::Librespot, fifo }) => process.log_to = Some(fifo.clone()),
        Some(Titles { kind: TitleKind::Airplay, fifo }) => {
            let pipe = format!("--metadata-pipename={}", fifo.display());
            let enable = ["--metadata-enable".to_owned(), "--get-coverart".to_owned(), pipe];
            process.arguments.extend(enable);
        }
        None => {}
    }
    process
}

fn radio(url: &HttpUrl, keeper: Option<Keeper>, inner: &mut Inner) -> (Box<dyn Source>, Watch) {
    let radio = inner.tuner.tune(url.clone(), keeper, inner.seeds.next());
    let Radio { feed, source, items, watch, chore } = radio;
    inner.context.add_feeder(Box::new(feed));
    inner.codecs.add(Box::new(source));
    inner.chores.push(chore);
    (Box::new(RingSource::new(items, Pacing::Streamed)), Watch::Radio(watch))
}

fn feed(
    inner: &mut Inner,
    line: &mut Option<Keeper>,
    spec: aulos_core::SampleSpec,
    make: impl FnOnce(ByteFeed) -> Box<dyn Feeder>,
) -> (Box<dyn Source>, Watch) {
    let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
    let (feed, items) = ByteFeed::new(spec, publisher, inner.seeds.next());
    let feed = match line.take() {
        Some(keeper) => feed.kept(keeper),
        None => feed,
    };
    inner.context.add_feeder(make(feed));
    (Box::new(RingSource::new(items, Pacing::Live)), Watch::Feed(state))
}

/// What became of FIFOs, by names that never change.
pub(super) fn counters(fifos: &FifoCounters) -> [(&'static str, u64); 3] {
    [
        ("fifos_recreated", &fifos.recreated),
        ("fifos_reopened", &fifos.reopened),
        ("fifos_blocked", &fifos.blocked),
    ]
    .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
}
