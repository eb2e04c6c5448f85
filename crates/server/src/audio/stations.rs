//! Starts, replaces and ends stations.

use std::io;
use std::sync::Arc;

use aulos_config::{ProcessingSettings, StationSettings};
use aulos_engine::fanout::TimedChunk;
use aulos_engine::rendition::Rendition;
use aulos_engine::station;
use aulos_engine::station::StationHandle;
use aulos_io::SystemClock;
use aulos_rt::ring::Consumer;

use super::announcements::StationAnnouncements;
use super::encoding::{EncodingHandles, SNAPCAST_CHUNK_HEADER, register_stream};
use super::state::{AudioState, RunningStation};
use super::{insert, mounts, pushes, recordings, rtp};
use crate::audio::sources;
use crate::audio::sources::{OpenedInputs, nats};
use crate::hls::{self, HlsParts, HlsTitle};

/// Starts a station and returns its number: a free one or a new one.
pub(super) fn start(config: &StationSettings, inner: &mut AudioState) -> io::Result<usize> {
    let (number, running) = run(config, None, inner)?;
    if let Some(slot) = inner.stations.get_mut(number) {
        *slot = Some(running);
    }
    recordings::start(number, inner);
    Ok(number)
}

/// Starts a station under the number of another one, which ends.
pub(super) fn replace(
    number: usize,
    config: &StationSettings,
    inner: &mut AudioState,
) -> io::Result<()> {
    let (_, mut running) = run(config, Some(number), inner)?;
    if let Some(old) = inner.stations.get(number).and_then(Option::as_ref) {
        running.title = Arc::clone(&old.title);
        pushes::show_title(&running.pushes, &running.title);
        if let Some(hls) = running.hls.as_ref().filter(|_| !running.title.is_empty()) {
            hls.set(&running.title);
        }
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
    inner.finished_events.extend(old.announcements.end_all());
}

/// Opens the sources, builds the station, registers it with the reactors and hands it to a worker.
fn run(
    config: &StationSettings,
    number: Option<usize>,
    inner: &mut AudioState,
) -> io::Result<(usize, RunningStation)> {
    // A published station has one more reader of its chunks, and HLS of passed ones is another.
    let chunks_for_hls = hls::reads_chunks(config);
    let readers =
        inner.context.reactors() + usize::from(config.publish) + usize::from(chunks_for_hls);
    let parts = match &config.mount {
        Some(mount) => mounts::encoding(config, mount, readers),
        None => EncodingHandles::new(config, &config.name, readers)?,
    };
    let last_resort = sources::last_resort(config, parts.quantum)?;
    let EncodingHandles { encoder, quantum, pool, mut outputs, channel, mut taps } = parts;
    let OpenedInputs { inputs, monitors, frames } =
        sources::open_all(config, (quantum, &channel), inner)?;
    let chunks = chunks_for_hls.then(|| taps.pop()).flatten();
    let hls = start_hls(config, chunks, inner)?;
    let published = config.publish.then(|| taps.pop()).flatten();
    let publication = published.map(|chunks| nats::publish(config, &channel, chunks, inner));
    let publication = publication.transpose()?;
    let now = SystemClock::now();
    let number = register_stream(number, &channel, taps, inner);
    let StationSettings { switch, crossfade, .. } = *config;
    let station_config = station::StationConfig { quantum, switch, crossfade };
    let mount_outputs = config.mount.as_ref().map(|mount| (mount, std::mem::take(&mut outputs)));
    let main = Rendition::new(encoder, pool, outputs, SNAPCAST_CHUNK_HEADER)
        .with_demand(channel.demand.clone());
    let (mut station, mut handle) = station::Station::new(station_config, now, inputs, main);
    apply_sound(&mut handle, &config.sound).map_err(io::Error::other)?;
    let mount = mount_outputs.map(|(mount, outputs)| {
        let parts = mounts::parts(config, mount, (&channel, quantum), (outputs, frames), inner);
        mounts::start(parts, &mut handle, inner)
    });
    let hls = hls.map(|parts| add_hls(parts, &mut handle, inner));
    if let Some(sound) = last_resort {
        station.set_last_resort(sound);
    }
    let insert = insert::start(config, quantum, &mut station, inner);
    let place = inner.workers.add(station);
    inner.station_runs += 1;
    let pushes = pushes::start(config, inner);
    let rtp = rtp::start(config, inner);
    let (config, run) = (config.clone(), inner.station_runs);
    let running = RunningStation {
        config,
        handle,
        channel,
        publication,
        sources: monitors,
        announcements: StationAnnouncements::default(),
        pushes,
        rtp,
        recordings: Vec::new(),
        insert,
        flush_at: None,
        title: Arc::from(""),
        hls: hls.transpose()?,
        mount: mount.transpose()?,
        run,
        worker_slot: place,
    };
    Ok((number, running))
}

/// Adds the segments of a station to its outputs.
fn add_hls(
    HlsParts { tap, job, title }: HlsParts,
    handle: &mut StationHandle,
    inner: &mut AudioState,
) -> io::Result<HlsTitle> {
    tap.map_or(Ok(0), |tap| handle.add_output(tap)).map_err(io::Error::other)?;
    inner.codecs.add(job);
    Ok(title)
}

/// The parts of a station's HLS, if it has one.
fn start_hls(
    config: &StationSettings,
    chunks: Option<Consumer<TimedChunk>>,
    inner: &mut AudioState,
) -> io::Result<Option<HlsParts>> {
    let Some(settings) = &config.hls else {
        inner.hls.remove(&config.name);
        return Ok(None);
    };
    let worker = &mut inner.recorder_manager.upload_worker;
    inner.hls.start(config, settings, chunks, worker).map(Some)
}

/// Applies normalizer and equalizer settings to a station.
pub(super) fn apply_sound(
    handle: &mut StationHandle,
    sound: &ProcessingSettings,
) -> Result<(), String> {
    handle.set_normalizer(sound.normalize.as_ref()).map_err(|error| error.to_string())?;
    handle.set_equalizer(&sound.equalizer).map_err(|error| error.to_string())
}

/// Shows a station's new title on all its channels.
pub(super) fn show_title(inner: &mut AudioState, station: usize, title: &Arc<str>) {
    let Some(running) = inner.station(station) else { return };
    running.title = Arc::clone(title);
    pushes::show_title(&running.pushes, title);
    if let Some(hls) = &running.hls {
        hls.set(title);
    }
    inner.context.set_title(station, title);
    for mapped in inner.renditions.iter().filter(|mapped| mapped.station == station) {
        inner.context.set_title(mapped.number, title);
    }
}
