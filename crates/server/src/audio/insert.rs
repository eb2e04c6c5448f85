//! The insert of a station: its program on a reactor.

use aulos_config::{InsertSettings, StationSettings};
use aulos_core::{Frames, SampleSpec};
use aulos_engine::insert::{InsertConfig, insert};
use aulos_engine::station::Station;
use aulos_io::feed::{
    InsertFeedStatus, InsertFeeder, InsertOutput, InsertProgram, LogLine, ProcessConfig,
    split_arguments,
};

use super::insert_monitor::InsertMonitor;
use super::state::AudioState;
use crate::feeder::log_line;

/// Starts the program of a station's insert and gives its stage to the station, if it has one.
pub(super) fn start(
    config: &StationSettings,
    quantum: Frames,
    station: &mut Station,
    inner: &mut AudioState,
) -> Option<InsertMonitor> {
    let settings = config.insert.as_ref()?;
    let SampleSpec { rate, layout, .. } = config.spec;
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
    station.set_insert(stage);
    Some(InsertMonitor { state, program: settings.path.clone(), spec: config.spec })
}
