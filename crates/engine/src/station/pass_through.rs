//! Decides in each quantum whether the station's own rendition passes ready chunks or encodes.
//!
//! While chunks are passed that are as long as a quantum, the timeline follows their stamps. So the
//! other renditions keep the same times, and the encoder continues where the chunks end.

use aulos_core::{Instant, MediaTime};

use super::{ActiveInput, Station};
use crate::ready_chunk::PassThroughState;
use crate::rendition::QuantumTime;

impl Station {
    /// Sends the quantum through the station's own rendition.
    pub(super) fn send_main(&mut self, now: Instant, (pts, stamp): (MediaTime, Instant)) {
        let span = self.rate.span(self.config.quantum);
        let state = self.pass(QuantumTime { now, pts, stamp, span });
        self.status.pass_through = state;
        if state == PassThroughState::Passing {
            let phase = self.main.alignment_delay(self.timeline.local_at(self.next), span);
            self.timeline = self.timeline.delayed(phase);
        } else {
            self.main.stop_passing();
            self.main.send(&self.block, now, (pts, stamp), &mut self.status);
        }
    }

    fn pass(&mut self, time: QuantumTime) -> PassThroughState {
        let mut state = PassThroughState::NoSource;
        for (index, input) in self.inputs.iter_mut().enumerate() {
            let is_transparent = input.is_transparent();
            let Some(queue) = input.ready_chunks() else { continue };
            let is_active = self.active == ActiveInput::Input(index);
            let altered =
                self.altered.or_else(|| (!is_transparent).then_some(PassThroughState::Processing));
            match altered {
                None if is_active => {
                    let is_passed = self.main.pass(queue, time, &mut self.status);
                    let passed = is_passed.then_some(PassThroughState::Passing);
                    state = passed.unwrap_or(PassThroughState::NoChunk);
                }
                altered => {
                    queue.drop_until(time.stamp, self.rate);
                    if is_active {
                        state = altered.unwrap_or(state);
                    }
                }
            }
        }
        state
    }
}
