//! One running stream: inputs -> switch -> normaliser -> announcements -> limiter -> meters ->
//! encoder -> fan-out, on one clock.
//!
//! The station's media time is the only truth: it advances by exactly the frames that went out, and
//! a chunk's timestamp is that count put through the timeline. A late source is filled with
//! silence, it never bends the clock. (Re-stamping from the wall clock at each late read is what
//! makes clients of other servers stutter.)

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_dsp::meter::History;
use aulos_dsp::{Crossfade, Level, add};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Pool, Publisher, Reader};

use crate::announce::{self, Booth, Desk};
use crate::encode::Encoder;
use crate::fanout::Stamped;
use crate::input::{Input, RESERVE};
use crate::loudness::Gauge;
use crate::outlet::{self, Outlets, Rack};
use crate::rendition::{Rendition, WriteHeader};
use crate::status::{InputState, Output, StationStatus};
use crate::steady::{self, Knobs, Leveller};
use crate::switch::{Changed, Facts, Fault, Health, Preference, Switch};
use crate::{source, switch};
use handover::{Handover, Voice};

mod handover;

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
    wishes: Option<Reader<Wish>>,
    events: Option<Producer<Switched>>,
    /// What is heard when no input has any sound; without it, silence.
    last_resort: Option<Box<Input>>,
    /// What is heard now.
    voice: Voice,
    fade: Option<Handover>,
    block: Block,
    /// The sum of what goes out in a fade, and one part of it.
    other: Block,
    part: Vec<f32>,
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

/// What somebody wishes to hear: an input and for how long, or what the switch chooses.
pub type Wish = Option<(usize, Option<Span>)>;

/// A change of the input on air, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// The media time of the block in which it began.
    pub at: MediaTime,
    /// What changed, and why.
    pub changed: Changed,
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
            wishes: None,
            events: None,
            last_resort: None,
            voice: Voice::Nothing,
            fade: None,
            other: block.clone(),
            part: vec![0.0; samples],
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

    /// The end from which somebody can wish for an input.
    #[must_use]
    pub fn wishes(&mut self) -> Publisher<Wish> {
        let (publisher, reader) = aulos_rt::latest(None);
        self.wishes = Some(reader);
        publisher
    }

    /// The end where every change of the input on air comes out. One that finds no room, because
    /// nobody looks, is left out.
    #[must_use]
    pub fn events(&mut self) -> Consumer<Switched> {
        let (events, consumer) = ring(MAX_EVENTS);
        self.events = Some(events);
        consumer
    }

    /// Plays `sound`, which gives when it is asked and never ends, while no input has any.
    pub fn set_last_resort(&mut self, sound: Input) {
        self.last_resort = Some(Box::new(sound));
        self.voice = Voice::LastResort;
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
            rack.take_orders(&mut self.inputs);
        }
        if let Some(wish) = self.wishes.as_mut().and_then(Reader::read_new) {
            let until = |span| now + span;
            let wish = wish.map(|(input, span)| Preference { input, until: span.map(until) });
            self.switch.prefer(wish);
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
        for input in self.inputs.iter_mut().chain(self.last_resort.as_deref_mut()) {
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
        let silent = (quantum.as_usize() - filled) as u64;
        self.status.silent_frames += silent;
        let resorts = self.voice == Voice::LastResort && silent == 0;
        self.status.last_resort_frames += if resorts { quantum.0 } else { 0 };
        let mut real = if resorts { 0 } else { filled };
        if let Some(leveller) = &mut self.leveller {
            real = leveller.programme(self.block.samples_mut(), real);
        }
        if self.rack.as_mut().is_some_and(Rack::take_flush) {
            // What is left goes within this quantum, so that nobody hears a click.
            match &mut self.leveller {
                Some(leveller) => leveller.flush(self.block.samples_mut()),
                None => Crossfade::fade_out(self.block.samples_mut(), self.layout.channels()),
            }
            self.inputs.iter_mut().for_each(|input| input.clear(now));
        }
        self.keep_fresh(now, quantum);
        if let Some(rack) = &mut self.rack {
            // What is said here is for those who are here: another station gets the programme, as
            // loud as it is here, and goes on to what it has itself when this one has none.
            rack.tap(now, &self.block, real);
        }
        if let Some(booth) = &mut self.booth {
            booth.mix(now, self.block.samples_mut(), self.layout.channels());
        }
        if let Some(leveller) = &mut self.leveller {
            leveller.limit(self.block.samples_mut());
        }
        if let Some(rack) = &mut self.rack {
            rack.record(&self.block, self.timeline);
        }
        self.level.update(self.block.samples());
        self.gauge.hear(self.block.samples());
    }

    /// Asks the switch; a change begins a cross-fade at frame `at` of the block.
    fn choose(&mut self, now: Instant, at: usize) -> bool {
        self.facts.clear();
        self.facts.extend(self.inputs.iter().map(Input::facts));
        let changed = self.switch.decide(now, &self.facts);
        if let Some(changed) = changed {
            self.status.switched(now, changed);
            if let Some(events) = &mut self.events {
                let _ = events.push(Switched { at: self.next, changed });
            }
            self.begin_fade(now, changed.to, at);
        }
        for (index, input) in self.inputs.iter_mut().enumerate() {
            let heard = self.fade.as_ref().is_some_and(|fade| fade.has(index));
            input.want(now, heard || self.switch.is_wanted(index));
        }
        changed.is_some()
    }

    fn begin_fade(&mut self, now: Instant, to: Option<usize>, at: usize) {
        let (to, starts) = match (to.and_then(|to| self.inputs.get_mut(to)), to) {
            (Some(input), Some(to)) => {
                input.restart_servo();
                let starts = input.is_fresh();
                let heard = self.fade.as_ref().is_some_and(|fade| fade.has(to));
                if !starts && !heard {
                    input.enter(now, &mut self.part);
                }
                (Voice::Input(to), starts)
            }
            _ => match &mut self.last_resort {
                Some(sound) => {
                    sound.rewind(now, &mut self.part);
                    (Voice::LastResort, false)
                }
                None => (Voice::Nothing, false),
            },
        };
        let from = core::mem::replace(&mut self.voice, to);
        // In the middle of a quantum the old input has nothing left: the new one only fades in.
        let spent =
            |input: usize| self.inputs.get(input).is_none_or(|old| old.left() <= Span::ZERO);
        let from = match from {
            _ if at > 0 => Voice::Nothing,
            Voice::Input(input) if spent(input) => Voice::Nothing,
            from => from,
        };
        if from == Voice::Nothing && starts {
            // Out of silence a sound begins as its sender made it begin.
            self.fade = None;
            return;
        }
        let length = self.rate.frames(self.config.crossfade);
        self.fade = Some(match (from, self.fade.take()) {
            // Who comes out of silence, or after one who left none, is not kept waiting.
            (Voice::Nothing, _) => Handover::new(from, at, length.min(self.rate.frames(FADE_IN))),
            (_, Some(last)) => Handover::after(&last, from, to, length),
            (_, None) => Handover::new(from, at, length),
        });
    }

    /// Reads what is on air into the block from frame `start` on; returns the end of what is real.
    fn fill(&mut self, now: Instant, start: usize) -> usize {
        let channels = self.layout.channels();
        let out = &mut self.block.samples_mut()[start * channels..];
        let active = match (self.voice, &mut self.last_resort) {
            (Voice::Input(active), _) => active,
            (Voice::LastResort, Some(sound)) => return start + sound.read(now, out).frames,
            _ => return start,
        };
        let Some(input) = self.inputs.get_mut(active) else { return start };
        let wanted = self.config.quantum.as_usize() - start;
        let dry = input.is_running_dry(Frames::from(wanted));
        let read = input.read(now, out);
        let end = start + read.frames;
        if read.starved || dry {
            // Less than a fade would be left for the next quantum, so the fade is now.
            let tail = self.rate.frames(RESERVE).as_usize().min(read.frames);
            let samples = &mut self.block.samples_mut()[(end - tail) * channels..end * channels];
            Crossfade::fade_out(samples, channels);
            self.status.underruns += 1;
            self.switch.starved(now, active);
        }
        end
    }

    /// Lays what goes off air over the block, as long as the fade lasts.
    fn mix_outgoing(&mut self, now: Instant) {
        let Some(mut fade) = self.fade.take() else { return };
        self.hurry(&mut fade);
        let channels = self.layout.channels();
        let start = core::mem::take(&mut fade.start) * channels;
        let wanted = fade.curve.remaining().min(self.config.quantum).as_usize() * channels;
        self.other.reset(self.rate, self.layout);
        self.other.resize(self.config.quantum);
        for (voice, gain) in fade.outgoing() {
            let input = match voice {
                Voice::Input(input) => self.inputs.get_mut(input),
                Voice::LastResort => self.last_resort.as_deref_mut(),
                Voice::Nothing => None,
            };
            let Some(input) = input else { continue };
            let part = self.part.get_mut(..wanted).unwrap_or_default();
            let read = input.read(now, part).frames * channels;
            add(&part[..read], gain, self.other.samples_mut());
        }
        let outgoing = &self.other.samples()[start..];
        fade.curve.mix(outgoing, &mut self.block.samples_mut()[start..], channels);
        self.fade = (fade.curve.remaining() > Frames::ZERO).then_some(fade);
    }

    /// A fade is over before what goes out of a sender that has stopped.
    fn hurry(&self, fade: &mut Handover) {
        for (voice, _) in fade.outgoing() {
            let Voice::Input(index) = voice else { continue };
            let Some(input) = self.inputs.get(index) else { continue };
            let stopped = matches!(
                self.switch.health(index),
                Health::Suspect(Fault::Late | Fault::Error)
                    | Health::Failed(_)
                    | Health::Backoff
                    | Health::Connecting
            );
            if stopped || input.has_stopped() {
                let left = self.rate.frames(input.left());
                fade.curve = fade.curve.hurried(left);
            }
        }
    }

    fn keep_fresh(&mut self, now: Instant, quantum: Frames) {
        let (due, elapsed) = (self.poll_timeout(), self.rate.span(quantum));
        let active = self.switch.active();
        for (index, input) in self.inputs.iter_mut().enumerate() {
            if Some(index) == active {
                input.follow(due, elapsed);
            } else if self.fade.as_ref().is_some_and(|fade| fade.has(index)) {
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
        self.status.preference = self.switch.preference();
        self.status.output = match (self.voice, &self.fade) {
            (Voice::Input(to), Some(fade)) => Output::Fade { from: fade.from(), to: Some(to) },
            (_, Some(fade)) => Output::Fade { from: fade.from(), to: None },
            (Voice::Input(active), None) => Output::Active(active),
            (_, None) => Output::LastResort,
        };
        self.status.level.read(&self.level, self.layout.channels());
        self.status.loudness = self.gauge.loudness();
        if self.next.since(self.looked) >= self.rate.frames(LOOK) {
            self.looked = self.next;
            self.status.steadiness = self.leveller.as_mut().and_then(Leveller::steadiness);
        }
        for (index, input) in self.inputs.iter().enumerate().take(self.status.inputs.len()) {
            self.status.inputs[index] = InputState {
                health: self.switch.health(index),
                verdict: input.facts().verdict,
                failures: self.switch.failures(index),
                standby: input.facts().standby,
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

/// Out of silence, and after a sender that left nothing to fade from.
const FADE_IN: Span = Span::from_millis(20);

/// Changes that wait for somebody to look, who comes ten times a second.
const MAX_EVENTS: usize = 64;

/// How far a station may fall behind and still send everything it missed.
const MAX_CATCH_UP: Span = Span::from_millis(1_000);

/// How often the normaliser's figures are read, which takes a pass over two histograms.
const LOOK: Span = Span::from_millis(100);

#[cfg(test)]
mod tests;
