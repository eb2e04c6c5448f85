//! Pushes of a station's stream to other servers, on the audio side.

use std::sync::Arc;

use aulos_config::{PushSettings, StationSettings};
use aulos_io::reactor::ListenerOptions;
use aulos_proto::icecast::StreamMetadata;

use super::renditions;
use super::running_push::RunningPush;
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
            .filter_map(|push| Some((push.opened.try_recv().ok()?, push.config.codec)))
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
    }
}

/// Sends the station's new title to its push targets.
pub(super) fn show_title(pushes: &[RunningPush], title: &Arc<str>) {
    for push in pushes {
        push.titles.send_replace(Arc::clone(title));
    }
}

fn start_push(
    push: &PushSettings,
    station: &StationSettings,
    inner: &mut AudioState,
) -> RunningPush {
    let PushHandles { opened, status: watch, titles, task } =
        inner.pusher.start(push, stream_info(push, station), inner.seeds.next_u64());
    inner.background_tasks.push(task);
    RunningPush { config: push.clone(), opened, watch, titles }
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
