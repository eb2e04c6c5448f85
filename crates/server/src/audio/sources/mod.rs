//! Opens a station's inputs from the configuration.

pub(super) mod counters;
pub(super) mod djs;
mod feed;
mod file;
pub(super) mod links;
pub(super) mod live_input;
pub(super) mod nats;
mod playlist;
mod radio;
mod sendspin;
pub(super) mod snapcast;
pub(super) mod snapcast_monitor;
pub(super) mod source_monitor;
pub(super) mod srt;
pub(super) mod station_link;

use std::io;
use std::path::Path;

use aulos_config::source::{GeneratedSource, PlayedFile};
use aulos_config::{SourceConfig, StationSettings};
use aulos_core::{Block, Frames, SampleSpec, Span};
use aulos_engine::generate::{LoopSource, MAX_LOOP_SAMPLES};
use aulos_engine::input::{Input, InputConfig};
use aulos_engine::source::{BLOCK_SAMPLES, Source};
use aulos_engine::standby::{StandbyHandle, standby_channel};
use aulos_files::decode::{FileDecodeOptions, FileDecodeStatus, UniformDecoder};
use aulos_io::feed::{FrameReader, FrameWriter, frame_channel};
use aulos_io::reactor::StationDescriptor;

use crate::audio::rtp;
use crate::audio::sources::snapcast::PassThroughHandles;
use crate::audio::sources::source_monitor::{NoMonitor, OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;

/// The sources of a station, opened, in order of priority.
pub(super) struct OpenedInputs {
    pub(super) inputs: Vec<Input>,
    pub(super) monitors: Vec<Box<dyn SourceMonitor>>,
    /// The encoded frames of each, for a mount.
    pub(super) frames: Vec<Option<FrameReader>>,
}

/// Opens the sources of a station. One that cannot be opened now is retried, and its state holds
/// the error.
pub(super) fn open_all(
    station: &StationSettings,
    about: (Frames, &StationDescriptor),
    inner: &mut AudioState,
) -> io::Result<OpenedInputs> {
    let (inputs, monitors, frames) = Default::default();
    let mut opened = OpenedInputs { inputs, monitors, frames };
    for source in &station.sources {
        let (input, monitor, frames) = open(source, station, about, inner)?;
        opened.inputs.push(input);
        opened.monitors.push(monitor);
        opened.frames.push(frames);
    }
    Ok(opened)
}

fn open(
    source: &aulos_config::StationSource,
    station: &StationSettings,
    (quantum, channel): (Frames, &StationDescriptor),
    inner: &mut AudioState,
) -> io::Result<(Input, Box<dyn SourceMonitor>, Option<FrameReader>)> {
    let mut config = source.input;
    let (control, handle) = standby_channel(config.standby);
    let mut standby = Some(handle);
    let (pass, queue) = match source.config.is_passed() {
        true => {
            (config.buffer, config.timeout) = (PASS_BUFFER, PASS_TIMEOUT);
            let (pass, queue) = snapcast::pass_parts(channel, quantum, config.buffer);
            (Some(pass), Some(queue))
        }
        false => (None, None),
    };
    let (frames, reader) = station.mount.as_ref().map(|_| frame_channel()).unzip();
    let (name, spec, buffer) = (&station.name, station.spec, config.buffer);
    let delay = buffer + Span::from_millis(i64::from(station.buffer_ms));
    let mut about = SourceContext { station: name, spec, quantum, buffer, delay, pass, frames };
    let (opened, watch) = open_config(&source.config, &mut about, &mut standby, inner);
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
    let input = if standby.is_none() { input.with_standby(control) } else { input };
    // A source that has samples alone leaves the writer.
    let frames = reader.filter(|_| about.frames.is_none());
    Ok((input, watch, frames))
}

/// Logs what keeps chunks from being passed, when it changes.
pub(super) fn log_obstacles(inner: &mut AudioState) {
    for running in inner.stations.iter_mut().flatten() {
        for source in &mut running.sources {
            source.log_obstacle(&running.config.name);
        }
    }
}

/// Opens the last resort, if there is one. A file is decoded completely and kept in memory.
pub(super) fn last_resort(station: &StationSettings, quantum: Frames) -> io::Result<Option<Input>> {
    let Some(config) = &station.last_resort else { return Ok(None) };
    let sound: Box<dyn Source> = match config {
        SourceConfig::Generated(GeneratedSource { generator, spec }) => {
            generator.source(*spec, quantum)
        }
        SourceConfig::File(PlayedFile { path, spec, .. }) => Box::new(load_recording(path, *spec)?),
        other => {
            let message = format!("last_resort cannot be a {} source", other.scheme());
            return Err(io::Error::other(message));
        }
    };
    let input = Input::new(sound, station.spec.rate, station.spec.layout, InputConfig::default());
    Ok(Some(input))
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
    /// From the input until players sound, without what the station looks ahead.
    delay: Span,
    /// For a source whose chunks are passed.
    pass: Option<PassThroughHandles>,
    /// For a source of a mount, whose frames are passed.
    frames: Option<FrameWriter>,
}

fn open_config(
    config: &SourceConfig,
    about: &mut SourceContext<'_>,
    standby: &mut Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    match config {
        SourceConfig::Rtp(_) | SourceConfig::Sdp(_) => {
            rtp::open(config, about.buffer, standby.take(), inner)
        }
        SourceConfig::Generated(GeneratedSource { generator, spec }) => {
            (generator.source(*spec, about.quantum), Box::new(NoMonitor))
        }
        SourceConfig::File(config) => file::open(config, &mut about.frames, standby, inner),
        SourceConfig::Playlist(options) => {
            playlist::open(options, about.spec, standby.take(), inner)
        }
        SourceConfig::Http(config) => {
            radio::open(config, about.frames.take(), standby.take(), inner)
        }
        SourceConfig::Snapcast(other) => {
            snapcast::open(other, (about.station, about.pass.take()), standby.take(), inner)
        }
        SourceConfig::Sendspin(source) => {
            let SourceContext { station: name, spec, buffer: input_buffer, delay, .. } = *about;
            let station = sendspin::SendspinStation { name, spec, delay, input_buffer };
            sendspin::open(source, &station, standby.take(), inner)
        }
        SourceConfig::Nats(other) => nats::open(other, about.pass.take(), standby.take(), inner),
        SourceConfig::Icecast(mount) => {
            djs::open(mount, about.frames.take(), standby.take(), inner)
        }
        SourceConfig::Srt(config) => srt::open(config, about.frames.take(), standby.take(), inner),
        SourceConfig::Station(played) => links::open(played, inner),
        raw => feed::open(raw, raw.spec().unwrap_or(about.spec), standby.take(), inner),
    }
}

/// A source whose chunks are passed is exact by its server's clock: its input covers no more than
/// the pauses of a reactor. The time-out is shorter than that, so that the next source follows
/// without a gap.
const PASS_BUFFER: Span = Span::from_millis(150);
const PASS_TIMEOUT: Span = Span::from_millis(100);
