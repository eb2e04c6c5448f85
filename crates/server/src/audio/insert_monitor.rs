//! What is reported of the program of an insert.

use std::path::PathBuf;

use aulos_control::backend::{InsertFault, InsertReport, InsertStatus};
use aulos_core::{Instant, SampleSpec};
use aulos_io::feed::{FeedState, InsertFeedStatus};
use aulos_rt::LatestReader;

/// The state of the program.
#[derive(Debug)]
pub(super) struct InsertMonitor {
    pub(super) state: LatestReader<InsertFeedStatus>,
    pub(super) program: PathBuf,
    pub(super) spec: SampleSpec,
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
