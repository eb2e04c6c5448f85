//! One running stream: inputs -> switch -> normaliser -> announcements -> limiter -> meters ->
//! encoder -> fan-out, on one clock.
//!
//! The station's media time is the only truth: it advances by exactly the frames that went out, and
//! a chunk's timestamp is that count put through the timeline. A late source is filled with
//! silence, it never bends the clock. (Re-stamping from the wall clock at each late read is what
//! makes clients of other servers stutter.)

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_dsp::meter::History;
use aulos_dsp::{Crossfade, Level};
use aulos_rt::ring::Producer;
use aulos_rt::{Pool, Publisher, Reader};

use crate::announce::{self, Booth, Desk};
use crate::encode::Encoder;
use crate::fanout::Stamped;
use crate::input::{Input, RESERVE};
use crate::loudness::Gauge;
use crate::outlet::{self, Outlets, Rack};
use crate::rendition::{Rendition, WriteHeader};
use crate::status::{InputState, StationStatus};
use crate::steady::{self, Knobs, Leveller};
use crate::switch::{Changed, Facts, Switch};
use crate::{source, switch};

/// The wishes of a station.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Frames of one chunk.
    pub quantum: Frames,
    /// How the inputs are chosen.
    pub switch: switch::Config,
    /// How long one input is faded into the next.
    pub crossfade: Span,
    /// The wire of the chunks.
    pub write_header: WriteHeader,
}

/// Renders chunk after chunk.
pub struct Station {
    config: Config,
    rate: SampleRate,
    layout: ChannelLayout,
    timeline: Timeline,
    next: MediaTime,
    inputs: Vec<Input>,
    facts: Vec<Facts>,
    switch: Switch,
    fade: Option<Fade>,
    block: Block,
    other: Block,
    level: Level,
    gauge: Gauge,
    resets: Option<Reader<u64>>,
    leveller: Option<Leveller>,
    /// When it was looked at last.
    looked: MediaTime,
    booth: Option<Booth>,
    main: Rendition,
    rack: Option<Rack>,
    status: StationStatus,
    published: Publisher<StationStatus>,
}

struct Fade {
    from: Option<usize>,
    /// The frame of the present block at which it begins.
    start: usize,
    curve: Crossfade,
}

impl Station {
    /// A station whose first chunk is due one quantum after `now`.
    ///
    /// `pool` gives the buffers of the chunks, each with room for headroom and payload; `outputs`
    /// are the rings to the reactors.
    #[must_use]
    pub fn new(
        config: Config,
        now: Instant,
        inputs: Vec<Input>,
        encoder: Box<dyn Encoder>,
        pool: Pool<Vec<u8>>,
        outputs: Vec<Producer<Stamped>>,
        published: Publisher<StationStatus>,
    ) -> Self {
        let spec = encoder.spec();
        let samples = config.quantum.as_usize() * spec.layout.channels();
        let block = Block::with_capacity(spec.rate, spec.layout, samples);
        Self {
            config,
            rate: spec.rate,
            layout: spec.layout,
            timeline: Timeline::new(MediaTime::ZERO, now, spec.rate),
            next: MediaTime::ZERO,
            facts: Vec::with_capacity(inputs.len()),
            switch: Switch::new(config.switch, inputs.len()),
            inputs,
            fade: None,
            other: block.clone(),
            block,
            level: Level::new(spec.rate, spec.layout.channels()),
            gauge: Gauge::new(spec.rate, spec.layout, History::Histogram),
            resets: None,
            leveller: None,
            looked: MediaTime::ZERO,
            booth: None,
            main: Rendition::new(encoder, pool, outputs, config.write_header),
            rack: None,
            status: StationStatus::new(now),
            published,
        }
    }

    /// The end from which loudness is measured anew: at every value that is published there, for
    /// the station and all of its inputs.
    #[must_use]
    pub fn loudness_resets(&mut self) -> Publisher<u64> {
        let (publisher, reader) = aulos_rt::latest(0);
        self.resets = Some(reader);
        publisher
    }

    /// The desk at which announcements for this station are handed in.
    #[must_use]
    pub fn desk(&mut self) -> Desk {
        let (desk, booth) = announce::desk(self.rate, self.layout, self.config.quantum);
        self.booth = Some(booth);
        desk
    }

    /// The end from which this station is normalised.
    #[must_use]
    pub fn knobs(&mut self) -> Knobs {
        let (knobs, leveller) = steady::steady(self.rate, self.layout, self.config.quantum);
        self.leveller = Some(leveller);
        knobs
    }

    /// The end from which taps and renditions are hung on this station while it runs.
    #[must_use]
    pub fn outlets(&mut self) -> Outlets {
        let (outlets, rack) = outlet::outlets();
        self.rack = Some(rack);
        outlets
    }

    /// Renders every chunk that is due at `now`.
    ///
    /// # Real-time
    /// Does not wait, lock, or call the system; allocates nothing of its own after warm-up.
    pub fn handle_timeout(&mut self, now: Instant) {
        let behind = now.since(self.poll_timeout());
        if behind > MAX_CATCH_UP {
            // The whole process stood still for longer than any client buffers. To send all of it
            // now would be noise; the timeline moves, once, and says so.
            self.timeline = self.timeline.delayed(behind);
            self.status.stalls += 1;
        }
        if self.resets.as_mut().is_some_and(|resets| resets.read_new().is_some()) {
            self.gauge.reset();
            self.inputs.iter_mut().for_each(Input::reset_loudness);
        }
        if let Some(rack) = &mut self.rack {
            rack.take_orders();
        }
        while now >= self.poll_timeout() {
            self.render(now);
            self.send(now);
        }
        self.report(now);
    }

    /// When the next chunk is due: when its last frame has been "recorded".
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.timeline.local_at(self.next + self.config.quantum)
    }

    /// The line from the station's media time to the local clock.
    #[must_use]
    pub const fn timeline(&self) -> Timeline {
        self.timeline
    }

    fn render(&mut self, now: Instant) {
        let quantum = self.config.quantum;
        for input in &mut self.inputs {
            input.refill(now);
        }
        self.choose(now, 0);
        self.block.reset(self.rate, self.layout);
        self.block.resize(quantum);
        self.block.pts = self.next;
        let mut filled = self.fill(now, 0);
        // An input that ended inside this quantum is followed by the next one without a hole.
        for _ in 0..self.inputs.len() {
            if filled == quantum.as_usize() || !self.choose(now, filled) {
                break;
            }
            filled = self.fill(now, filled);
        }
        self.mix_outgoing(now);
        let mut real = filled;
        if let Some(leveller) = &mut self.leveller {
            real = leveller.programme(self.block.samples_mut(), filled);
        }
        if self.rack.as_mut().is_some_and(Rack::take_flush) {
            // What is left goes within this quantum, so that nobody hears a click.
            match &mut self.leveller {
                Some(leveller) => leveller.flush(self.block.samples_mut()),
                None => Crossfade::fade_out(self.block.samples_mut(), self.layout.channels()),
            }
            self.inputs.iter_mut().for_each(|input| input.clear(now));
        }
        self.status.silent_frames += (quantum.as_usize() - filled) as u64;
        self.keep_fresh(now, quantum);
        if let Some(rack) = &mut self.rack {
            // What is said here is for those who are here: another station gets the programme, as
            // loud as it is here.
            rack.tap(now, &self.block, real);
        }
        if let Some(booth) = &mut self.booth {
            booth.mix(now, self.block.samples_mut(), self.layout.channels());
        }
        if let Some(leveller) = &mut self.leveller {
            leveller.limit(self.block.samples_mut());
        }
        self.level.update(self.block.samples());
        self.gauge.hear(self.block.samples());
    }

    /// Asks the switch; a change begins a cross-fade at frame `at` of the block.
    fn choose(&mut self, now: Instant, at: usize) -> bool {
        self.facts.clear();
        self.facts.extend(self.inputs.iter().map(Input::facts));
        let Some(changed) = self.switch.decide(now, &self.facts) else { return false };
        self.status.switched(now, changed);
        self.begin_fade(changed, at);
        true
    }

    fn begin_fade(&mut self, Changed { from, to, .. }: Changed, at: usize) {
        if let Some(input) = to.and_then(|to| self.inputs.get_mut(to)) {
            input.restart_servo();
        }
        // In the middle of a quantum the old input has nothing left: the new one only fades in.
        let from = if at == 0 { from } else { None };
        let starts = to.and_then(|to| self.inputs.get(to)).is_some_and(Input::is_fresh);
        if from.is_none() && starts {
            // Out of silence a sound begins as its sender made it begin.
            self.fade = None;
            return;
        }
        let frames = self.rate.frames(self.config.crossfade);
        self.fade = Some(Fade { from, start: at, curve: Crossfade::equal_power(frames) });
    }

    /// Reads the input on air into the block from frame `start` on; returns the end of what is
    /// real.
    fn fill(&mut self, now: Instant, start: usize) -> usize {
        let channels = self.layout.channels();
        let Some(active) = self.switch.active() else { return start };
        let Some(input) = self.inputs.get_mut(active) else { return start };
        let wanted = self.config.quantum.as_usize() - start;
        let dry = input.is_running_dry(Frames::from(wanted));
        let out = &mut self.block.samples_mut()[start * channels..];
        let read = input.read(now, out);
        let end = start + read.frames;
        if read.starved || dry {
            // Less than a fade would be left for the next quantum, so the fade is now.
            let tail = self.rate.frames(RESERVE).as_usize().min(read.frames);
            let samples = &mut self.block.samples_mut()[(end - tail) * channels..end * channels];
            Crossfade::fade_out(samples, channels);
            self.status.underruns += 1;
            self.switch.starved(active);
        }
        end
    }

    /// Lays the input that goes off air over the block, as long as the fade lasts.
    fn mix_outgoing(&mut self, now: Instant) {
        let Some(fade) = &mut self.fade else { return };
        let channels = self.layout.channels();
        self.other.reset(self.rate, self.layout);
        self.other.resize(self.config.quantum);
        let start = core::mem::take(&mut fade.start) * channels;
        if let Some(input) = fade.from.and_then(|from| self.inputs.get_mut(from)) {
            let wanted = fade.curve.remaining().min(self.config.quantum).as_usize() * channels;
            input.read(now, &mut self.other.samples_mut()[..wanted]);
        }
        let outgoing = &self.other.samples()[start..];
        fade.curve.mix(outgoing, &mut self.block.samples_mut()[start..], channels);
        if fade.curve.remaining() == Frames::ZERO {
            self.fade = None;
        }
    }

    fn keep_fresh(&mut self, now: Instant, quantum: Frames) {
        let (due, elapsed) = (self.poll_timeout(), self.rate.span(quantum));
        let active = self.switch.active();
        let outgoing = self.fade.as_ref().and_then(|fade| fade.from);
        for (index, input) in self.inputs.iter_mut().enumerate() {
            if Some(index) == active {
                input.follow(due, elapsed);
            } else if Some(index) == outgoing {
                // It is still heard, and has been read.
            } else if input.facts().pacing != source::Pacing::OnDemand {
                input.skip(now, quantum);
            }
        }
    }

    fn send(&mut self, now: Instant) {
        let timestamp = self.timeline.local_at(self.next);
        let (pts, duration) = (self.next, self.config.quantum);
        self.next += duration;
        self.status.position = self.next;
        let times = (pts, timestamp);
        self.main.send(&self.block, now, times, &mut self.status);
        if let Some(rack) = &mut self.rack {
            rack.send(&self.block, now, times, &mut self.status);
        }
    }

    fn report(&mut self, now: Instant) {
        self.status.timeline = Some(self.timeline);
        self.status.active = self.switch.active();
        self.status.level.read(&self.level, self.layout.channels());
        self.status.loudness = self.gauge.loudness();
        if self.next.since(self.looked) >= self.rate.frames(LOOK) {
            self.looked = self.next;
            self.status.steadiness = self.leveller.as_mut().and_then(Leveller::steadiness);
        }
        for (index, input) in self.inputs.iter().enumerate().take(self.status.inputs.len()) {
            self.status.inputs[index] = InputState {
                health: self.switch.health(index),
                silent: input.facts().silent,
                buffered: input.buffered(),
                drift: input.drift(),
                rate: input.source_spec().0,
                channels: input.source_spec().1.channels(),
                loudness: input.loudness(now),
            };
        }
        self.published.publish(self.status);
    }
}

impl core::fmt::Debug for Station {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Station").field("next", &self.next).finish_non_exhaustive()
    }
}

/// How far a station may fall behind and still send everything it missed.
const MAX_CATCH_UP: Span = Span::from_millis(1_000);

/// How often the normaliser's figures are read, which takes a pass over two histograms.
const LOOK: Span = Span::from_millis(100);

#[cfg(test)]
mod tests;
