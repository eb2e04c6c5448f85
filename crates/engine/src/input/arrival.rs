//! The arriving side of an input: from a block of the source to staged frames.

use aulos_core::{Block, ChannelLayout, Frames, Instant, Span};
use aulos_dsp::silence::SilenceDetector;
use aulos_dsp::{Resampler, remix};

use super::earlier_rates::EarlierRate;
use super::{Input, InputNormalizer, staging_capacity};
use crate::source::Pacing;

impl Input {
    /// Takes in the block.
    pub(super) fn accept(&mut self, now: Instant) {
        let arrival = if self.block.received == Instant::ZERO { now } else { self.block.received };
        let since_last = self.last_arrival.map(|last| arrival.since(last));
        let pause = since_last.filter(|since| *since >= self.max_gap());
        if pause.is_some() {
            self.meter.interrupt();
        }
        self.last_arrival = Some(arrival);
        self.record(arrival, pause);
        self.update_servo(arrival);
        // A new sender follows one whose audio is played out.
        self.at_sender_start |= self.ended && self.staged.is_empty();
        (self.ended, self.lost) = (false, false);
        if self.block.rate() == self.source_rate {
            self.stage();
        } else if self.earlier_rates.is_full() {
            self.block_pending = true;
        } else {
            self.begin_rate();
        }
    }

    /// Updates the estimate of the sender's clock from the block.
    fn update_servo(&mut self, arrival: Instant) {
        if !self.has_clock() {
            return;
        }
        if self.ended || self.lost || self.block.rate() != self.source_rate {
            self.servo.interrupt();
        }
        self.servo.push_arrival(arrival, self.block.frames(), self.block.rate());
    }

    pub(super) fn has_clock(&self) -> bool {
        matches!(self.source.pacing(), Pacing::Live | Pacing::Streamed)
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
            Some(normalizer) => normalizer.push(samples, &mut self.staged),
            None => self.staged.extend(samples),
        }
    }

    /// Empties the look-ahead, because nothing follows for now.
    pub(super) fn drain(&mut self) {
        if let Some(normalizer) = &mut self.normalizer {
            normalizer.drain(&mut self.staged);
        }
    }

    /// Empties the look-ahead of a live sender that has been silent for so long that it may be
    /// gone.
    pub(super) fn drain_if_idle(&mut self, now: Instant) {
        let patience = match self.source.pacing() {
            Pacing::Streamed => self.max_gap(),
            _ => self.timeout.min(self.buffer).max(MIN_DRAIN_DELAY),
        };
        if self.source.pacing() != Pacing::OnDemand
            && self.last_arrival.is_some_and(|last| now.since(last) >= patience)
        {
            self.drain();
        }
    }

    /// Reserves room for the maximum number of buffered frames.
    pub(super) fn reserve_staging(&mut self) {
        let ahead = self.normalizer.as_ref().map_or(0, InputNormalizer::latency);
        let most = self.usual_limit().max(self.onset_limit());
        let wanted = staging_capacity(most + ahead, self.layout);
        self.staged.reserve(wanted.saturating_sub(self.staged.len()));
    }

    /// Pushes the last frames out of the resampler's memory.
    pub(super) fn flush(&mut self) {
        self.drain();
        if !self.ended {
            let tail = self.resampler.latency().as_usize() * self.layout.channels();
            self.staged.extend(core::iter::repeat_n(0.0, tail));
        }
    }

    /// Once the audio of the oldest rate is played, continues with the next; a block that has been
    /// waiting is taken in. False if nothing has changed.
    pub(super) fn finish_earlier_rate(&mut self, now: Instant) -> bool {
        let finished = self.earlier_rates.pop_played();
        if self.block_pending && !self.earlier_rates.is_full() {
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
        let mut resampler = Resampler::new(self.layout.channels(), rate, self.rate);
        resampler.set_drift(self.drift);
        if self.current_frames() > 0 {
            self.flush();
            let (rate, frames) = (self.source_rate, self.current_frames());
            let resampler = core::mem::replace(&mut self.resampler, resampler);
            self.earlier_rates.push(EarlierRate { rate, frames, resampler });
        } else {
            self.resampler = resampler;
        }
        self.source_rate = rate;
        self.normalizer.iter_mut().for_each(|normalizer| normalizer.set_rate(rate));
        self.reserve_staging();
        self.detector = SilenceDetector::new(self.silence, rate, self.layout.channels());
        self.meter.set_format(rate, self.layout);
        self.servo.restart();
        self.stage();
    }

    /// The longest gap in the data after which new audio still belongs to the audio before.
    pub(super) fn max_gap(&self) -> Span {
        match self.source.pacing() {
            Pacing::Streamed => self.timeout.max(self.buffer).max(MOMENTARY),
            _ => self.timeout.max(MOMENTARY),
        }
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

/// The shortest loudness window: older audio does not belong to the current loudness.
const MOMENTARY: Span = Span::from_millis(400);

/// Shortest interruption after which the look-ahead is emptied.
const MIN_DRAIN_DELAY: Span = Span::from_millis(100);
