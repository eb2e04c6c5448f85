//! The insert of a station: its program on a reactor.

use aulos_config::{InsertSettings, StationSettings};
use aulos_core::{Frames, SampleSpec};
use aulos_engine::insert::{Insert, InsertConfig, insert};
use aulos_io::feed::{
    InsertFeedStatus, InsertFeeder, InsertOutput, InsertProgram, LogLine, ProcessConfig,
    split_arguments,
};

use super::insert_monitor::InsertMonitor;
use super::state::AudioState;
use crate::feeder::log_line;

/// Starts the program of an insert; returns the stage for the station.
pub(super) fn open(
    settings: &InsertSettings,
    station: &StationSettings,
    quantum: Frames,
    inner: &mut AudioState,
) -> (Insert, InsertMonitor) {
    let SampleSpec { rate, layout, .. } = station.spec;
    let InsertSettings { latency, delay, .. } = *settings;
    let (stage, session) = insert(InsertConfig { rate, layout, quantum, latency, delay });
    let program = InsertProgram {
        process: ProcessConfig {
            program: settings.path.clone(),
            arguments: split_arguments(&settings.params),
            log_line: settings.log_stderr.then_some(log_line as LogLine),
            log_to: None,
        },
        format: settings.format,
        output: if settings.raw { InsertOutput::Raw } else { InsertOutput::Wave },
    };
    let (publisher, state) = aulos_rt::latest(InsertFeedStatus::default());
    let feeder = InsertFeeder::new(program, session, publisher, inner.seeds.next_u64());
    inner.context.add_feeder(Box::new(feeder));
    let monitor = InsertMonitor { state, program: settings.path.clone(), spec: station.spec };
    (stage, monitor)
}
