//! The insert of a station: its program on a reactor, and what is reported of it.

use std::path::PathBuf;

use aulos_config::{InsertSettings, StationSettings};
use aulos_control::backend::{InsertFault, InsertReport, InsertStatus};
use aulos_core::{Frames, Instant, SampleSpec};
use aulos_engine::insert::{Insert, InsertConfig, insert};
use aulos_io::feed::{
    FeedState, InsertFeedStatus, InsertFeeder, InsertOutput, InsertProgram, LogLine, ProcessConfig,
    split_arguments,
};
use aulos_rt::LatestReader;

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

/// The state of the program.
#[derive(Debug)]
pub(super) struct InsertMonitor {
    state: LatestReader<InsertFeedStatus>,
    program: PathBuf,
    spec: SampleSpec,
}

impl InsertMonitor {
    /// The report, with the state of the stage.
    pub(super) fn report(&mut self, now: Instant, stage: InsertStatus) -> InsertReport {
        let program = *self.state.read();
        InsertReport {
            stage,
            program,
            latency: self.spec.rate.span(stage.latency),
            problem: program.fault.map(|fault| self.problem(fault, &program)),
            retry_in: program.retry_at.map(|at| at.since(now)),
        }
    }

    fn problem(&self, fault: InsertFault, status: &InsertFeedStatus) -> String {
        let text = match fault {
            InsertFault::NotStarted => {
                let problem = FeedState::Failed(status.error).program_problem(&self.program);
                return problem.unwrap_or_else(|| "the program cannot be started".to_owned());
            }
            InsertFault::Exited => {
                let exit = status.exit.map(|exit| exit.to_string());
                return exit.unwrap_or_else(|| "the program has exited".to_owned());
            }
            InsertFault::NoOutput => {
                let limit = InsertFault::SILENCE_LIMIT.as_millis();
                return format!("the program has written nothing for {limit} ms");
            }
            InsertFault::Format => {
                let (hz, channels) = (self.spec.rate.hz(), self.spec.layout.channels());
                return format!(
                    "the output of the program is no WAVE of {hz} Hz with {channels} channels"
                );
            }
            InsertFault::TooManyFrames => "the program writes more frames than it reads",
            InsertFault::TooFewFrames => "the program writes fewer frames than it reads",
            InsertFault::Unrecognized => {
                "the output of the program is no version of its input; `delay` states its delay"
            }
            InsertFault::NotReading => "the program has not read in time",
            _ => fault.name(),
        };
        text.to_owned()
    }
}
