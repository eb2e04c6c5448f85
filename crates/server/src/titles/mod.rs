//! The titles of stations: files that say them, outputs that are told, and the files in which they
//! are kept.
//!
//! ```text
//!  text file --> TitleFiles (a thread) --> control --> ShownTitle --> output (a task) --> TCP, UDP, HTTP
//!                      ^                                                  |
//!                      '------------------------- files ------------------'
//! ```
//!
//! A task for each output and no queue: only the newest title waits for it
//! ([`aulos_session::title_output`]).

mod encoder;
mod files;
mod output;
pub(crate) mod store;

use std::sync::Arc;

use aulos_config::TitleOutputSettings;
use aulos_control::Control;
use tokio::task::JoinHandle;

use self::files::{TitleFiles, WatchedFile};
use self::output::OutputTask;
use crate::dial::Dialer;

/// The tasks of all outputs, and the thread of files.
#[derive(Debug, Default)]
pub(crate) struct TitleTasks {
    dialer: Arc<Dialer>,
    files: TitleFiles,
    running: Vec<(OutputConfig, JoinHandle<()>)>,
}

/// An output of a station.
#[derive(Clone, Debug, PartialEq)]
struct OutputConfig {
    station: String,
    settings: TitleOutputSettings,
}

impl TitleTasks {
    /// Starts and ends tasks so that the configured ones run, and watches the configured files.
    pub(crate) async fn update(&mut self, control: &Arc<Control>) {
        let stations = control.stations();
        let mut wanted: Vec<OutputConfig> = Vec::new();
        let mut watched = Vec::new();
        for station in &stations {
            let now_playing = &station.now_playing;
            let outputs = now_playing.outputs.iter().map(|settings| OutputConfig {
                station: station.name.clone(),
                settings: settings.clone(),
            });
            wanted.extend(outputs);
            watched.extend(now_playing.file.as_ref().map(|path| {
                WatchedFile::new(station.name.clone(), path.clone(), now_playing.charset)
            }));
        }
        self.files.watch(watched, control);
        // The task of a station that was removed has ended by itself.
        let (stay, go) = std::mem::take(&mut self.running).into_iter().partition::<Vec<_>, _>(
            |(config, task)| wanted.contains(config) && !task.is_finished(),
        );
        self.running = stay;
        for (_, task) in go {
            abort_and_wait(task).await;
        }
        wanted.retain(|config| !self.running.iter().any(|(running, _)| running == config));
        for config in wanted {
            let OutputConfig { station, settings } = config.clone();
            let files = self.files.writer(&settings.target, control);
            let control = Arc::clone(control);
            let dialer = Arc::clone(&self.dialer);
            let task = OutputTask { control, dialer, files, station, settings };
            self.running.push((config, tokio::spawn(task.run())));
        }
    }

    /// Ends all tasks. A title that waits is not sent.
    pub(crate) async fn end(self) {
        for (_, task) in self.running {
            abort_and_wait(task).await;
        }
    }
}

async fn abort_and_wait(task: JoinHandle<()>) {
    task.abort();
    task.await.ok();
}
