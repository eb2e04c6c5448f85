//! Tasks that provide stream metadata, control scripts and readers of programs' titles, and those
//! that send titles to outputs.

use std::path::PathBuf;
use std::sync::Arc;

use aulos_config::{Plugin, TitleFifo};
use aulos_control::plugin::{script_ended, scripts};
use aulos_control::titles::title_sources;
use aulos_control::{Control, plugin, titles};
use tokio::task::JoinHandle;

use crate::titles::TitleTasks;

/// Tasks that provide stream metadata: control scripts, and readers of programs' titles; and those
/// that send titles.
pub(super) struct MetadataTasks {
    running: Vec<(MetadataTask, JoinHandle<()>)>,
    titles: TitleTasks,
    port: u16,
}

/// A task, with its stream.
#[derive(Clone, PartialEq)]
enum MetadataTask {
    /// A control script, and the directory in which it is looked up.
    Script(String, Plugin, PathBuf),
    /// The FIFO of a program.
    Titles(String, TitleFifo),
}

impl MetadataTasks {
    pub(super) fn new(port: u16) -> Self {
        Self { running: Vec::new(), titles: TitleTasks::default(), port }
    }

    /// Starts and ends tasks so that the configured ones run.
    pub(super) async fn update(&mut self, control: &Arc<Control>) {
        self.titles.update(control).await;
        let (stations, by_rpc) = (control.stations(), control.config().streams.plugins_by_rpc);
        let folder = control.config().streams.plugin_dir.clone();
        let script = |(stream, plugin)| MetadataTask::Script(stream, plugin, folder.clone());
        let titles = |(stream, titles)| MetadataTask::Titles(stream, titles);
        let mut wanted: Vec<MetadataTask> =
            scripts(&stations, by_rpc).into_iter().map(script).collect();
        wanted.extend(title_sources(&stations).into_iter().map(titles));
        let (stay, go) = std::mem::take(&mut self.running)
            .into_iter()
            .partition::<Vec<_>, _>(|(metadata_task, _)| wanted.contains(metadata_task));
        self.running = stay;
        for (metadata_task, task) in go {
            abort_and_wait(task).await;
            if let MetadataTask::Script(stream, ..) = metadata_task {
                script_ended(control, &stream);
            }
        }
        wanted.retain(|metadata_task| {
            !self.running.iter().any(|(running, _)| running == metadata_task)
        });
        for metadata_task in wanted {
            let control = Arc::clone(control);
            let task = match metadata_task.clone() {
                MetadataTask::Script(stream, plugin, _) => {
                    tokio::spawn(plugin::run(control, stream, plugin, self.port))
                }
                MetadataTask::Titles(stream, titles) => {
                    tokio::spawn(titles::run(control, stream, titles))
                }
            };
            self.running.push((metadata_task, task));
        }
    }

    pub(super) async fn end_all(self) {
        for (_, task) in &self.running {
            task.abort();
        }
        for (_, task) in self.running {
            abort_and_wait(task).await;
        }
        self.titles.end().await;
    }
}

/// A script is killed when its task is dropped, at the task's last await.
async fn abort_and_wait(task: JoinHandle<()>) {
    task.abort();
    task.await.ok();
}
