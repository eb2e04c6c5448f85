//! Streams that are pushed to other servers, as far as the audio knows of them.

use std::sync::Arc;

use aulos_config::{PushSettings, Station};
use aulos_io::reactor::{ListenerOptions, media_type};
use aulos_proto::icecast::StreamMetadata;
use aulos_rt::channel::Receiver;
use tokio::sync::watch;

use super::{AudioState, renditions, take_matching};
use crate::push::{OpenedPush, PushParts, PushState, PushStatusHandle};

/// A push that runs.
pub(super) struct RunningPush {
    config: PushSettings,
    opened: Receiver<OpenedPush>,
    watch: PushStatusHandle,
    titles: watch::Sender<Arc<str>>,
}

impl std::fmt::Debug for RunningPush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pushed").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Begins every push of a station.
pub(super) fn start(station: &Station, inner: &mut AudioState) -> Vec<RunningPush> {
    station.pushes.iter().map(|push| start_push(push, station, inner)).collect()
}

/// Lets a station that runs push to these from now on; what is the same goes on.
pub(super) fn change(inner: &mut AudioState, number: usize, wanted: &[PushSettings]) {
    let Some(running) = inner.station(number) else { return };
    running.config.pushes = wanted.to_vec();
    let (config, title) = (running.config.clone(), Arc::clone(&running.title));
    let mut old = std::mem::take(&mut running.pushes);
    let mut all = Vec::new();
    for push in wanted {
        let there = take_matching(&mut old, |one| one.config == *push);
        all.push(there.unwrap_or_else(|| start_push(push, &config, inner)));
    }
    if let Some(running) = inner.station(number) {
        running.pushes = all;
        show_title(&running.pushes, &title);
    }
}

/// Lets the reactors have the servers that wait for a stream.
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
            // Whoever opened it learns by the line's end that nobody took it.
            match renditions::listen(inner, number, Some(codec)) {
                Ok(heard) => {
                    let wish = ListenerOptions {
                        titles: false,
                        rendition_guard: heard.keep_alive,
                        push: Some(line),
                    };
                    inner.context.add_web_listener(socket, heard.number, wish);
                }
                Err(error) => tracing::warn!(%error, "a stream cannot be pushed now"),
            }
        }
    }
}

/// A station plays something else.
pub(super) fn show_title(pushes: &[RunningPush], title: &Arc<str>) {
    for push in pushes {
        push.titles.send_replace(Arc::clone(title));
    }
}

impl RunningPush {
    pub(super) fn status(&self) -> PushState {
        self.watch.state()
    }
}

fn start_push(push: &PushSettings, station: &Station, inner: &mut AudioState) -> RunningPush {
    let PushParts { opened, status: watch, titles, task: chore } =
        inner.pusher.start(push, stream_info(push, station), inner.seeds.next());
    inner.background_tasks.push(chore);
    RunningPush { config: push.clone(), opened, watch, titles }
}

/// What the server may know of the programme.
fn stream_info(push: &PushSettings, station: &Station) -> StreamMetadata {
    let (rate, channels) = (station.spec.rate.hz(), station.spec.layout.channels());
    let mut audio_info = format!("ice-samplerate={rate};ice-channels={channels}");
    if let Some(bitrate) = push.codec.bitrate() {
        audio_info += &format!(";ice-bitrate={}", bitrate / 1_000);
    }
    StreamMetadata {
        content_type: media_type(push.codec.codec()).to_owned(),
        name: Some(push.name.clone().unwrap_or_else(|| station.name.clone())),
        description: push.description.clone(),
        genre: push.genre.clone(),
        site: push.site.clone(),
        public: push.public,
        audio_info,
    }
}
