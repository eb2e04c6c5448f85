//! When a jingle is due.

/// When a jingle is played, always between two files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JingleRule {
    /// After this number of files.
    pub every: Option<u32>,
    /// At the first change of files from these minutes of an hour on, below 60.
    pub at_minutes: Vec<u8>,
}

/// Counts files and minutes.
#[derive(Debug)]
pub(super) struct JingleTimer {
    rule: JingleRule,
    /// Files since the last jingle.
    tracks: u32,
    /// The minute of the last question.
    asked: Option<i64>,
    is_minute_due: bool,
}

impl JingleTimer {
    pub(super) const fn new(rule: JingleRule) -> Self {
        Self { rule, tracks: 0, asked: None, is_minute_due: false }
    }

    /// Whether a jingle is to be played now. Nothing is due at the beginning; after a step of the
    /// clock, at most one jingle is.
    pub(super) fn is_due(&mut self, local_minute: i64) -> bool {
        let before = self.asked.replace(local_minute).unwrap_or(local_minute);
        // All minutes of an hour come in an hour; a clock that was set back passed none.
        let passed = (before + 1..=local_minute).take(MINUTES_OF_HOUR);
        let mut minutes = passed.map(|minute| minute.rem_euclid(MINUTES_OF_HOUR as i64));
        let marks = &self.rule.at_minutes;
        self.is_minute_due |= minutes.any(|minute| marks.iter().any(|at| i64::from(*at) == minute));
        self.is_minute_due || self.rule.every.is_some_and(|every| self.tracks >= every.max(1))
    }

    pub(super) const fn jingle_begins(&mut self) {
        (self.tracks, self.is_minute_due) = (0, false);
    }

    pub(super) const fn track_begins(&mut self) {
        self.tracks = self.tracks.saturating_add(1);
    }
}

const MINUTES_OF_HOUR: usize = 60;
