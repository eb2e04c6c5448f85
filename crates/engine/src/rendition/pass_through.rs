//! A rendition that sends ready chunks of a source in place of encoding.

use aulos_core::{Instant, SampleRate, Span, Timeline};

use super::Rendition;
use super::stamps::{PassThrough, QuantumTime, max_slew};
use crate::ready_chunk::{ReadyChunk, ReadyChunkQueue};
use crate::status::StationStatus;

impl Rendition {
    /// Lets the rendition pass chunks.
    pub(crate) fn enable_pass_through(&mut self) {
        self.pass_through = Some(PassThrough::default());
    }

    /// Ends the passing of chunks; the next one is encoded.
    pub(crate) const fn stop_passing(&mut self) {
        if let Some(state) = &mut self.pass_through {
            state.passed = None;
        }
    }

    /// By how much the station's timeline, which has its next quantum at `next`, is to be delayed
    /// for the next chunk to begin with it; zero if it has another phase.
    pub(crate) fn alignment_delay(&self, next: Instant, quantum: Span) -> Span {
        let end = self.pass_through.as_ref().and_then(|state| state.end);
        let phase = end.map(|end| end - next);
        phase.filter(|phase| phase.abs() <= max_slew(quantum) * 2).unwrap_or(Span::ZERO)
    }

    /// Sends the chunks of `queue` that are due in this quantum; false if they are not there, and
    /// the quantum is to be encoded.
    ///
    /// # Real-time
    /// Does not wait, allocate, lock, or call the system.
    pub(crate) fn pass(
        &mut self,
        queue: &mut ReadyChunkQueue,
        time: QuantumTime,
        status: &mut StationStatus,
    ) -> bool {
        let rate = self.spec().rate;
        let Some(mut state) = self.pass_through.take() else { return false };
        let was_passing = state.passed.is_some();
        if state.retry_at.is_some_and(|at| time.now < at) {
            queue.drop_until(time.stamp, rate);
            self.pass_through = Some(state);
            return false;
        }
        // A chunk is due when half of it is. So what is passed keeps within half a chunk of the
        // station's timeline, whatever the two clocks do.
        let due = time.stamp + time.span / 2;
        let mut expected = state.passed.unwrap_or(time.stamp);
        while expected <= due {
            let Some(chunk) = next_chunk(queue, expected, rate) else { break };
            let span = rate.span(chunk.duration);
            expected = chunk.stamp + span;
            state.passed = Some(expected);
            let stamp = state.place(chunk.stamp, span);
            self.send_ready(chunk, stamp, time, status);
        }
        let is_complete = state.passed.is_some() && expected > due;
        if !is_complete {
            state.passed = None;
            if was_passing {
                status.pass_interruptions += 1;
                state.retry_at = Some(time.now + RETRY_PAUSE);
            }
        }
        self.pass_through = Some(state);
        is_complete
    }

    fn send_ready(
        &mut self,
        chunk: ReadyChunk,
        stamp: Instant,
        time: QuantumTime,
        status: &mut StationStatus,
    ) {
        let pts = Timeline::new(time.pts, time.stamp, self.spec().rate).media_at(stamp);
        let (duration, of_source) = (chunk.duration, (chunk.codec_header.clone(), chunk.origin));
        let bytes = chunk.into_bytes();
        self.fan_out(bytes, (pts, duration), (time.now, stamp), of_source, status);
        status.chunks_passed += 1;
    }
}

/// The chunk that continues at `expected`, within half of its duration. Older ones are dropped.
fn next_chunk(
    queue: &mut ReadyChunkQueue,
    expected: Instant,
    rate: SampleRate,
) -> Option<ReadyChunk> {
    loop {
        let front = queue.front()?;
        let (ahead, half) = (front.stamp - expected, rate.span(front.duration) / 2);
        if ahead > half {
            return None;
        }
        let chunk = queue.pop()?;
        if ahead >= -half {
            return Some(chunk);
        }
    }
}

/// Chunks that come too late once will do so again: a change back and forth with each of them would
/// be audible.
const RETRY_PAUSE: Span = Span::from_secs(2);
