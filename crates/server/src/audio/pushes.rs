//! Pushes of a station's stream to other servers, on the audio side.

use std::sync::Arc;

use aulos_config::{PushSettings, PushTarget, StationSettings};
use aulos_io::reactor::{ListenerOptions, SrtPush};
use aulos_proto::icecast::StreamMetadata;

use super::renditions;
use super::running_push::{RunningPush, RunningPushKind, RunningSrtPush};
use super::sources::srt::make_link;
use super::state::{AudioState, take_matching};
use crate::push::{OpenedPush, PushHandles};

/// Starts every push of a station.
pub(super) fn start(station: &StationSettings, inner: &mut AudioState) -> Vec<RunningPush> {
    station.pushes.iter().map(|push| start_push(push, station, inner)).collect()
}

/// Replaces the pushes of a running station; unchanged ones continue.
pub(super) fn change(inner: &mut AudioState, number: usize, wanted: &[PushSettings]) {
    let Some(running) = inner.station(number) else { return };
    running.config.pushes = wanted.to_vec();
    let (config, title) = (running.config.clone(), Arc::clone(&running.title));
    let mut old = std::mem::take(&mut running.pushes);
    let mut all = Vec::new();
    for push in wanted {
        let existing = take_matching(&mut old, |one| one.config == *push);
        all.push(existing.unwrap_or_else(|| start_push(push, &config, inner)));
    }
    if let Some(running) = inner.station(number) {
        running.pushes = all;
        show_title(&running.pushes, &title);
    }
}

/// Hands the connections that are ready for a stream to the reactors.
pub(super) fn hand_over(inner: &mut AudioState) {
    for number in 0..inner.stations.len() {
        let Some(running) = inner.station(number) else {
            continue;
        };
        let opened: Vec<_> = running
            .pushes
            .iter_mut()
            .filter_map(|push| match &mut push.kind {
                RunningPushKind::Icecast { opened, .. } => {
                    Some((opened.try_recv().ok()?, push.config.codec))
                }
                RunningPushKind::Srt(_) => None,
            })
            .collect();
        for (OpenedPush { socket, line }, codec) in opened {
            // The push task sees that its channel closes without a stream.
            match renditions::listen(inner, number, Some(codec)) {
                Ok(target) => {
                    let options = ListenerOptions {
                        allow_origin: None,
                        titles: false,
                        rendition_guard: target.keep_alive,
                        session: None,
                        push: Some(line),
                    };
                    inner.context.add_web_listener(socket, target.number, options);
                }
                Err(error) => tracing::warn!(%error, "cannot push a stream"),
            }
        }
        start_srt(inner, number);
    }
}

/// Starts the pushes over SRT that do not run: at first, and when the station was replaced.
fn start_srt(inner: &mut AudioState, number: usize) {
    let pushes = inner.station(number).map_or(0, |running| running.pushes.len());
    for at in 0..pushes {
        let Some((config, progress)) = inner.station(number).and_then(|running| {
            let push = running.pushes.get_mut(at)?;
            let RunningPushKind::Srt(srt) = &mut push.kind else { return None };
            let progress = srt.progress();
            let is_idle = srt.monitor.is_none() || progress.has_ended;
            is_idle.then(|| (push.config.clone(), progress))
        }) else {
            continue;
        };
        let PushTarget::Srt(target) = &config.target else { continue };
        let rendition = match renditions::listen(inner, number, Some(config.codec)) {
            Ok(rendition) => rendition,
            Err(error) => {
                if srt_push(inner, number, at)
                    .is_some_and(|srt| srt.has_new_error(error.to_string()))
                {
                    tracing::warn!(%error, "cannot push a stream");
                }
                continue;
            }
        };
        let link = make_link(target, inner.seeds.next_u64());
        let retry = link.retry_time();
        let (push, monitor) = SrtPush::new(link, rendition.number, rendition.keep_alive, progress);
        inner.context.add_srt_push(push);
        if let Some(srt) = srt_push(inner, number, at) {
            srt.started(monitor, retry);
        }
    }
}

fn srt_push(inner: &mut AudioState, station: usize, at: usize) -> Option<&mut RunningSrtPush> {
    match &mut inner.station(station)?.pushes.get_mut(at)?.kind {
        RunningPushKind::Srt(srt) => Some(srt),
        RunningPushKind::Icecast { .. } => None,
    }
}

/// Sends the station's new title to its push targets.
pub(super) fn show_title(pushes: &[RunningPush], title: &Arc<str>) {
    for push in pushes {
        if let RunningPushKind::Icecast { titles, .. } = &push.kind {
            titles.send_replace(Arc::clone(title));
        }
    }
}

fn start_push(
    push: &PushSettings,
    station: &StationSettings,
    inner: &mut AudioState,
) -> RunningPush {
    let kind = match &push.target {
        PushTarget::Icecast(target) => {
            let seed = inner.seeds.next_u64();
            let PushHandles { opened, status: watch, titles, task } =
                inner.pusher.start(push, target, stream_info(push, station), seed);
            inner.background_tasks.push(task);
            RunningPushKind::Icecast { opened, watch, titles }
        }
        PushTarget::Srt(_) => RunningPushKind::Srt(Box::default()),
    };
    RunningPush { config: push.clone(), kind }
}

/// The stream description that is sent to the server.
fn stream_info(push: &PushSettings, station: &StationSettings) -> StreamMetadata {
    let (rate, channels) = (station.spec.rate.hz(), station.spec.layout.channels());
    let mut audio_info = format!("ice-samplerate={rate};ice-channels={channels}");
    if let Some(bitrate) = push.codec.bitrate(station.spec) {
        audio_info += &format!(";ice-bitrate={}", bitrate / 1_000);
    }
    StreamMetadata {
        content_type: push.codec.codec().info().media_type.to_owned(),
        name: Some(push.name.clone().unwrap_or_else(|| station.name.clone())),
        description: push.description.clone(),
        genre: push.genre.clone(),
        site: push.site.clone(),
        public: push.public,
        audio_info,
    }
}
