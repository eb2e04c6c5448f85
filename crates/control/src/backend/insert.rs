//! The state of a station's insert in typed values.

use aulos_core::Span;
use aulos_engine::insert::{InsertFault, InsertStatus};
use aulos_io::feed::InsertFeedStatus;

/// State of a station's insert.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InsertReport {
    /// The stage of the station.
    pub stage: InsertStatus,
    /// The program.
    pub program: InsertFeedStatus,
    /// Latency of the stage.
    pub latency: Span,
    /// Why the program does not run, or did not run before.
    pub problem: Option<String>,
    /// Time until it is started again, if it does not run.
    pub retry_in: Option<Span>,
}

/// What a station plays of its insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a programme is processed or not")]
pub enum InsertState {
    /// The program has been started, and is not heard yet.
    Starting,
    /// The processed programme.
    Processing,
    /// The programme as it is, because the program has failed or is late.
    Bypassed,
}

impl InsertState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Starting, Self::Processing, Self::Bypassed];

    /// Its name in the API and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Processing => "processing",
            Self::Bypassed => "bypassed",
        }
    }
}

impl InsertReport {
    /// What is played.
    #[must_use]
    pub const fn state(&self) -> InsertState {
        let InsertStatus { is_processing, bypasses, needed, .. } = self.stage;
        if is_processing {
            InsertState::Processing
        } else if bypasses > 0 || needed.is_some() || self.program.fault.is_some() {
            InsertState::Bypassed
        } else {
            InsertState::Starting
        }
    }

    /// The cause of a bypass: the fault of the program, or that its frames come too late.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self.program.fault {
            Some(fault) if !self.program.is_running => InsertFault::name(fault),
            _ => LATE,
        }
    }

    /// The same for users.
    #[must_use]
    pub fn reason(&self) -> String {
        match (&self.problem, self.stage.needed) {
            (Some(problem), _) if !self.program.is_running => problem.clone(),
            (_, Some(_)) => "the program needs a longer latency".to_owned(),
            _ => "the program is late".to_owned(),
        }
    }

    /// The report without values that change all the time.
    pub(super) fn at_rest(self) -> Self {
        let mut rest = self;
        (rest.stage.processed_frames, rest.stage.bypassed_frames) = (0, 0);
        rest.stage.lag = None;
        rest.program.session.on_the_way = 0;
        (rest.program.retry_at, rest.retry_in) = (None, None);
        rest
    }
}

/// The cause of a bypass that is no fault of the program.
pub const LATE: &str = "late";
