//! The arriving side of an input: from a block of the source to staged frames.

use aulos_core::{Block, ChannelLayout, Frames, Instant, Span};
use aulos_dsp::remix;
use aulos_dsp::silence::SilenceDetector;

use super::{Input, InputNormalizer, staging_frames};

impl Input {
    /// Takes in the block.
    pub(super) fn accept(&mut self, now: Instant) {
        let arrival = if self.block.received == Instant::ZERO { now } else { self.block.received };
        let since_last = self.last_arrival.map(|last| arrival.since(last));
        let pause = since_last.filter(|since| *since >= self.timing.max_gap());
        if pause.is_some() {
            self.meter.interrupt();
        }
        self.last_arrival = Some(arrival);
        self.arrived = self.block.pts + self.block.frames();
        self.record(arrival, pause);
        if self.timing.has_clock() {
            if self.ended || self.lost || self.block.rate() != self.staged.rate() {
                self.servo.mark_discontinuity();
            }
            self.servo.push_arrival(arrival, self.block.frames(), self.block.rate());
        }
        // A new sender follows one whose audio is played out.
        self.at_sender_start |= self.ended && self.staged.is_empty();
        (self.ended, self.lost) = (false, false);
        if self.block.rate() == self.staged.rate() {
            self.stage();
        } else if self.staged.has_too_many_rates() {
            self.block_pending = true;
        } else {
            self.begin_rate();
        }
    }

    /// Hands the block to the recorders, unchanged.
    fn record(&mut self, received: Instant, pause: Option<Span>) {
        if self.record_taps.is_empty() {
            return;
        }
        // The pause is the time since the block before, so it contains the frames of this one.
        let frames = self.block.frames();
        let interrupted =
            pause.map_or(Frames::ZERO, |pause| self.block.rate().frames(pause) - frames);
        let samples = remixed(&self.block, &mut self.remixed, self.layout);
        for (_, tap) in &mut self.record_taps {
            tap.push_samples(samples, self.block.rate(), received, interrupted);
        }
    }

    fn stage(&mut self) {
        let to = self.layout.channels();
        let samples = remixed(&self.block, &mut self.remixed, self.layout);
        self.detector.update(samples, to);
        self.meter.push(samples);
        match &mut self.normalizer {
            Some(normalizer) => normalizer.push(samples, self.staged.samples()),
            None => self.staged.samples().extend(samples),
        }
    }

    /// Empties the look-ahead, because nothing follows for now.
    pub(super) fn drain(&mut self) {
        if let Some(normalizer) = &mut self.normalizer {
            normalizer.drain(self.staged.samples());
        }
    }

    /// Empties the look-ahead of a live sender that has been silent for so long that it may be
    /// gone.
    pub(super) fn drain_if_idle(&mut self, now: Instant) {
        let Some((delay, last)) = self.timing.drain_delay().zip(self.last_arrival) else { return };
        if now.since(last) >= delay {
            self.drain();
        }
    }

    /// Reserves room for the maximum number of buffered frames.
    pub(super) fn reserve_staging(&mut self) {
        let ahead = self.normalizer.as_ref().map_or(0, InputNormalizer::latency);
        let most = self.timing.max_frames_in_silence(self.staged.rate());
        self.staged.reserve(staging_frames(most + ahead));
    }

    /// Pushes the last frames out of the resampler's memory.
    pub(super) fn flush(&mut self) {
        self.drain();
        if !self.ended {
            self.staged.push_tail();
        }
    }

    /// Once the audio of the oldest rate is played, continues with the next; a block that has been
    /// waiting is taken in. False if nothing has changed.
    pub(super) fn finish_earlier_rate(&mut self, now: Instant) -> bool {
        let finished = self.staged.finish_earlier_rate();
        if self.block_pending && !self.staged.has_too_many_rates() {
            self.block_pending = false;
            self.begin_rate();
            self.refill(now);
            return true;
        }
        finished
    }

    /// Takes in the block, which has another rate than the audio before it.
    fn begin_rate(&mut self) {
        self.drain();
        let rate = self.block.rate();
        if self.staged.has_current_frames() {
            self.flush();
        }
        self.staged.begin_rate(rate);
        self.normalizer.iter_mut().for_each(|normalizer| normalizer.set_rate(rate));
        self.reserve_staging();
        self.detector = SilenceDetector::new(self.silence, rate, self.layout.channels());
        self.meter.set_format(rate, self.layout);
        self.servo.restart();
        self.stage();
    }
}

/// The block's samples in the station's channels.
fn remixed<'a>(block: &'a Block, room: &'a mut Vec<f32>, layout: ChannelLayout) -> &'a [f32] {
    let (from, to) = (block.layout().channels(), layout.channels());
    if from == to {
        return block.samples();
    }
    // Within the capacity.
    room.resize(block.frames().as_usize() * to, 0.0);
    remix(block.samples(), from, room, to);
    room
}
