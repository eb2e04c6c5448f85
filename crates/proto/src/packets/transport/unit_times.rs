//! Units of an elementary stream: which of them a time belongs to.

use std::collections::VecDeque;

use aulos_core::Span;

use super::super::SplitterEvent;
use crate::mpegts::{TsTime, TsTimeline};

/// A unit, and the position in the elementary stream at which it begins.
pub(super) type Unit = (SplitterEvent, u64);

/// Times of an elementary stream, each with the position from which it counts: it is that of the
/// first unit that begins there or behind it (ISO/IEC 13818-1, 2.4.3.7).
#[derive(Debug, Default)]
pub(super) struct UnitTimes {
    line: TsTimeline,
    times: VecDeque<(u64, Span)>,
}

impl UnitTimes {
    pub(super) fn extend(&mut self, time: Option<(u64, TsTime)>) {
        let Some((at, time)) = time else { return };
        if self.times.len() == MAX_TIMES {
            self.times.pop_front();
        }
        self.times.push_back((at, self.line.extend(time)));
    }

    /// The time of the unit that begins at this position.
    pub(super) fn take(&mut self, at: u64) -> Option<Span> {
        let mut found = None;
        while let Some((from, time)) = self.times.front()
            && *from <= at
        {
            found = Some(*time);
            self.times.pop_front();
        }
        found
    }
}

/// Times that wait for their unit: a unit is complete after a few packets.
const MAX_TIMES: usize = 64;
