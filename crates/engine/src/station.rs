//! One running stream: inputs -> switch -> insert -> normalizer -> announcements -> limiter ->
//! meters -> encoder -> fan-out, on one clock.
//!
//! The station's media time is the reference: it advances by exactly the frames that went out, and
//! a chunk's timestamp is that count mapped by the timeline. A late source is padded with silence;
//! it never shifts the clock. See `docs/decisions/media-time.md`.

use core::ops::Range;

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_dsp::meter::MeterHistory;
use aulos_dsp::{Crossfade, LevelMeter, mix_in};
use aulos_rt::LatestPublisher;

use crate::announce::{AnnouncementEnd, LayerMixer, MixerReport};
use crate::input::{FADE_RESERVE, Input};
use crate::insert::Insert;
use crate::loudness::LoudnessMeter;
use crate::loudness_processor::LoudnessProcessor;
use crate::output_bus::{BusOutput, OutputBus};
use crate::ready_chunk::PassThroughState;
use crate::recorder::OnAir;
use crate::rendition::Rendition;
use crate::source;
use crate::status::{InputState, MAX_SOURCES, StationOutput, StationStatus};
use crate::switch::{InputFacts, InputFault, InputHealth, Preference, Switch, SwitchConfig};
use handle::{StationCommand, StationPort, StationReply};
use input_crossfade::{ActiveInput, InputCrossfade};

mod handle;
mod input_crossfade;
mod pass_through;

pub use handle::{MAX_SWITCH_EVENTS, PreferenceRequest, StationEvent, StationHandle, SwitchEvent};

/// Configuration of a station.
#[derive(Clone, Copy, Debug)]
pub struct StationConfig {
    /// Frames per chunk.
    pub quantum: Frames,
    /// How the inputs are selected.
    pub switch: SwitchConfig,
    /// Duration of the cross-fade between inputs.
    pub crossfade: Span,
}

/// Renders one chunk after the other.
pub struct Station {
    config: StationConfig,
    rate: SampleRate,
    layout: ChannelLayout,
    timeline: Timeline,
    next: MediaTime,
    inputs: Vec<Input>,
    facts: Vec<InputFacts>,
    switch: Switch,
    port: StationPort,
    /// The buffered audio is discarded with the next quantum.
    flush: bool,
    /// Plays while no input has audio; without it, silence.
    last_resort: Option<Box<Input>>,
    /// The input that plays now.
    active: ActiveInput,
    fade: Option<InputCrossfade>,
    block: Block,
    /// The sum of the outgoing inputs of a fade, and one of them.
    other: Block,
    part: Vec<f32>,
    level: LevelMeter,
    meter: LoudnessMeter,
    /// Processes the programme first, with the help of another thread.
    insert: Option<Box<Insert>>,
    loudness_processor: LoudnessProcessor,
    /// Media time of the last read of the normalizer's status.
    normalizer_read_at: MediaTime,
    announcement_mixer: LayerMixer,
    /// What has changed the samples of the block.
    altered: Option<PassThroughState>,
    main: Rendition,
    output_bus: OutputBus,
    status: StationStatus,
    published: LatestPublisher<StationStatus>,
}

impl Station {
    /// A station whose first chunk is due one quantum after `now`, and its handle. `main` encodes
    /// its output.
    #[must_use]
    pub fn new(
        config: StationConfig,
        now: Instant,
        mut inputs: Vec<Input>,
        mut main: Rendition,
    ) -> (Self, StationHandle) {
        if inputs.iter_mut().any(|input| input.ready_chunks().is_some()) {
            main.enable_pass_through();
        }
        let spec = main.spec();
        let samples = config.quantum.as_usize() * spec.layout.channels();
        let block = Block::with_capacity(spec.rate, spec.layout, samples);
        let (published, status) = aulos_rt::latest(StationStatus::new(now));
        let (handle, port) = StationHandle::new(spec.rate, spec.layout, config.quantum, status);
        let station = Self {
            config,
            rate: spec.rate,
            layout: spec.layout,
            timeline: Timeline::new(MediaTime::ZERO, now, spec.rate),
            next: MediaTime::ZERO,
            facts: Vec::with_capacity(inputs.len()),
            switch: Switch::new(config.switch, inputs.len()),
            inputs,
            port,
            flush: false,
            last_resort: None,
            active: ActiveInput::Silence,
            fade: None,
            other: block.clone(),
            part: vec![0.0; samples],
            block,
            level: LevelMeter::new(spec.rate, spec.layout.channels()),
            meter: LoudnessMeter::new(spec.rate, spec.layout, MeterHistory::Histogram),
            insert: None,
            loudness_processor: LoudnessProcessor::new(spec.rate, spec.layout, config.quantum),
            normalizer_read_at: MediaTime::ZERO,
            announcement_mixer: LayerMixer::new(spec.rate),
            altered: None,
            main,
            output_bus: OutputBus::new(),
            status: StationStatus::new(now),
            published,
        };
        (station, handle)
    }

    /// Plays `sound`, which is paced on demand and endless, while no input has audio.
    pub fn set_last_resort(&mut self, sound: Input) {
        self.last_resort = Some(Box::new(sound));
        self.active = ActiveInput::LastResort;
    }

    /// Processes the programme with this insert; to be called before the first step.
    pub fn set_insert(&mut self, insert: Insert) {
        self.insert = Some(Box::new(insert));
    }

    /// Renders every chunk that is due at `now`.
    ///
    /// # Real-time
    /// Does not wait, lock, or call the system; allocates nothing of its own after warm-up.
    pub fn handle_timeout(&mut self, now: Instant) {
        let behind = now.since(self.poll_timeout());
        if behind > MAX_CATCH_UP {
            // The whole process stalled for longer than any client buffers. Sending all of it now
            // would be noise, so the timeline moves once, and the stall is counted.
            self.timeline = self.timeline.delayed(behind);
            self.status.stalls += 1;
        }
        self.handle_commands(now);
        while now >= self.poll_timeout() {
            self.render(now);
            self.send(now);
        }
        self.publish_status(now);
    }

    /// Counts how long a call of [`Self::handle_timeout`] took; it is published with the next one.
    ///
    /// # Real-time
    /// Does not wait, lock, allocate or call the system.
    pub const fn record_step(&mut self, took: Span) {
        self.status.steps.record(took);
    }

    /// When the next chunk is due: when its last frame has been "recorded".
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.timeline.local_at(self.next + self.config.quantum)
    }

    /// The mapping of the station's media time to the local clock.
    #[must_use]
    pub const fn timeline(&self) -> Timeline {
        self.timeline
    }

    fn handle_commands(&mut self, now: Instant) {
        let Self { port, inputs, output_bus, .. } = self;
        // Commands for normalizers are deferred while two of them are cross-faded. So many that no
        // further one has room delay everything behind them, for 50 ms at most.
        while self.loudness_processor.has_room()
            && let Some(command) = port.next()
        {
            let mut discard = |number, output| discard_output(port, number, output);
            match command {
                StationCommand::ResetLoudness => {
                    self.meter.reset();
                    inputs.iter_mut().for_each(Input::reset_loudness);
                }
                StationCommand::Prefer(request) => {
                    let preference = |(input, span): (_, Option<Span>)| Preference {
                        input,
                        until: span.map(|span| now + span),
                    };
                    self.switch.set_preference(request.map(preference));
                }
                StationCommand::Schedule(schedule) => self.switch.set_schedule(schedule),
                StationCommand::Flush => self.flush = true,
                StationCommand::AddOutput(number, output) => {
                    output_bus.attach(number, output, inputs, &mut discard);
                }
                StationCommand::RemoveOutput(number) => {
                    output_bus.detach(Some(number), inputs, &mut discard);
                }
                StationCommand::Loudness(command) => {
                    self.loudness_processor.handle_command(command);
                }
                StationCommand::Equalizer(bands) => {
                    self.loudness_processor.set_bands(&bands);
                    port.reply(StationReply::Bands(bands));
                }
                StationCommand::Sound(output, program) => {
                    output_bus.set_sound(output, &program);
                    port.reply(StationReply::Sound(program));
                }
                StationCommand::Play(announcement) => {
                    self.announcement_mixer.play(announcement, &mut reply(port));
                }
                StationCommand::PlayOn(overlay, announcement) => {
                    match output_bus.overlay(overlay) {
                        Some(overlay) => overlay.play(announcement, &mut reply(port)),
                        None => reply(port)(MixerReport::Ended(
                            announcement,
                            AnnouncementEnd::Cancelled,
                        )),
                    }
                }
                StationCommand::Cancel(id) => {
                    self.announcement_mixer.cancel(id, &mut reply(port));
                    output_bus.cancel(id, &mut reply(port));
                }
            }
        }
        let mut discard = |number, output| discard_output(port, number, output);
        output_bus.detach(None, inputs, &mut discard);
    }

    fn render(&mut self, now: Instant) {
        let quantum = self.config.quantum;
        for input in self.inputs.iter_mut().chain(self.last_resort.as_deref_mut()) {
            input.refill(now);
        }
        self.block.reset(self.rate, self.layout);
        self.block.resize(quantum);
        self.block.pts = self.next;
        self.altered = None;
        let (mut filled, mut silent, mut start) = (0, 0, 0);
        self.switch.follow_schedule(self.timeline.local_at(self.next));
        loop {
            let scheduled = self.next_scheduled_frame();
            let end = scheduled.map_or(quantum.as_usize(), |(frame, _)| frame.max(start));
            if start < end {
                let played = self.render_part(now, start..end);
                (filled, silent) = (filled.max(played), silent + (end - played) as u64);
            }
            let Some((_, at)) = scheduled else { break };
            self.switch.follow_schedule(at);
            start = end;
        }
        self.status.silent_frames += silent;
        let resorts = self.active == ActiveInput::LastResort && silent == 0;
        self.status.last_resort_frames += if resorts { quantum.0 } else { 0 };
        let real = if resorts { 0 } else { filled };
        self.process(now, real);
        self.level.update(self.block.samples());
        self.meter.push(self.block.samples());
    }

    /// Fills a part of the block between two changes of the schedule; returns the end of the real
    /// frames.
    fn render_part(&mut self, now: Instant, part: Range<usize>) -> usize {
        self.choose_input(now, part.start, false);
        let mut filled = self.fill(now, part.clone());
        // An input that ended inside this part is followed by the next one without a gap.
        for _ in 0..self.inputs.len() {
            if filled == part.end || !self.choose_input(now, filled, true) {
                break;
            }
            filled = self.fill(now, filled..part.end);
        }
        self.mix_outgoing_inputs(now, part);
        filled
    }

    /// The next change of the schedule in the block: its frame, and its time.
    fn next_scheduled_frame(&self) -> Option<(usize, Instant)> {
        let at = self.switch.next_scheduled()?;
        let current = self.timeline.media_at(at);
        let is_before = self.timeline.local_at(current) < at;
        let first = if is_before { current + Frames(1) } else { current };
        let frame = first.since(self.next);
        (frame < self.config.quantum).then_some((frame.as_usize(), at))
    }

    /// Processes the block, of which the first `real` frames come from a source, and feeds the
    /// taps.
    fn process(&mut self, now: Instant, real: usize) {
        let mut discard = |chain| self.port.reply(StationReply::Chain(chain));
        let (samples, processor) = (self.block.samples_mut(), &mut self.loudness_processor);
        let real = match &mut self.insert {
            Some(insert) => insert.process(samples, real),
            None => real,
        };
        let real = processor.process_programme(samples, real, &mut discard);
        if self.insert.is_some() || !processor.is_transparent() {
            self.altered = Some(PassThroughState::Processing);
        }
        if core::mem::take(&mut self.flush) {
            self.altered = Some(PassThroughState::Announcement);
            // The rest is faded out within this quantum, without a click.
            processor.flush(samples);
            self.insert.iter_mut().for_each(|insert| insert.flush());
            self.inputs.iter_mut().for_each(|input| input.clear(now));
        }
        self.update_inputs(now, self.config.quantum);
        // Announcements are for this station's listeners only. Another station gets the programme
        // at the same loudness, and falls back to its own sources when this one has none.
        self.status.tap_blocks_lost += self.output_bus.feed_station_taps(now, &self.block, real);
        if !self.announcement_mixer.is_transparent() {
            self.altered = Some(PassThroughState::Announcement);
        }
        let (samples, channels) = (self.block.samples_mut(), self.layout.channels());
        self.announcement_mixer.mix(now, samples, channels, &mut reply(&mut self.port));
        let mut discard = |chain| self.port.reply(StationReply::Chain(chain));
        self.loudness_processor.limit(samples, &mut discard);
        let on_air = self.on_air();
        self.output_bus.feed_record_taps(&self.block, self.timeline, on_air);
    }

    /// Runs the switch; a change starts a cross-fade at frame `at` of the block, where the last
    /// input may have ended.
    fn choose_input(&mut self, now: Instant, at: usize, has_ended: bool) -> bool {
        self.facts.clear();
        self.facts.extend(self.inputs.iter().map(Input::facts));
        let changed = self.switch.decide(now, &self.facts);
        if let Some(changed) = changed {
            self.status.record_switch(now, changed);
            let event = SwitchEvent { at: self.next, change: changed };
            if !self.port.notify(StationReply::Switched(event)) {
                self.status.switch_events_lost += 1;
            }
            self.begin_fade(now, changed.to, at, has_ended);
        }
        for (index, input) in self.inputs.iter_mut().enumerate() {
            let audible = self.fade.as_ref().is_some_and(|fade| fade.contains(index));
            input.set_needed(now, audible || self.switch.is_needed(index));
        }
        changed.is_some()
    }

    fn begin_fade(&mut self, now: Instant, to: Option<usize>, at: usize, has_ended: bool) {
        let (due, rest) = (self.poll_timeout(), self.config.quantum - Frames::from(at));
        let (to, starts) = match (to.and_then(|to| self.inputs.get_mut(to)), to) {
            (Some(input), Some(to)) => {
                input.restart_servo();
                let starts = input.is_at_sender_start();
                let audible = self.fade.as_ref().is_some_and(|fade| fade.contains(to));
                let is_live = input.facts().pacing != source::Pacing::OnDemand;
                if !audible && at > 0 && is_live && !has_ended {
                    // Off air it would have advanced with the quantum.
                    input.skip(now, Frames::from(at));
                }
                if !audible {
                    let held = if starts { input.latency() } else { Span::ZERO };
                    input.align(due, rest, held);
                }
                if !starts && !audible {
                    input.discard_resampler_tail(now, &mut self.part);
                }
                (ActiveInput::Input(to), starts)
            }
            _ => match &mut self.last_resort {
                Some(sound) => {
                    sound.rewind(now, &mut self.part);
                    (ActiveInput::LastResort, false)
                }
                None => (ActiveInput::Silence, false),
            },
        };
        let from = core::mem::replace(&mut self.active, to);
        // An input that has ended has nothing left: the new one only fades in.
        let spent =
            |input: usize| self.inputs.get(input).is_none_or(|old| old.remaining() <= Span::ZERO);
        let from = match from {
            _ if has_ended => ActiveInput::Silence,
            ActiveInput::Input(input) if spent(input) => ActiveInput::Silence,
            from => from,
        };
        if from == ActiveInput::Silence && starts {
            // After silence a sound starts exactly as its sender sent it.
            self.fade = None;
            return;
        }
        let length = self.rate.frames(self.config.crossfade);
        self.fade = Some(match (from, self.fade.take()) {
            // An input that follows silence, or one that left nothing to fade from, is not delayed.
            (ActiveInput::Silence, _) => {
                InputCrossfade::new(from, at, length.min(self.rate.frames(FADE_IN)))
            }
            (_, Some(last)) => InputCrossfade::after(&last, from, to, (at, length)),
            (_, None) => InputCrossfade::new(from, at, length),
        });
    }

    /// Reads the active input into a part of the block; returns the end of the real frames.
    fn fill(&mut self, now: Instant, part: Range<usize>) -> usize {
        let (channels, start, wanted) = (self.layout.channels(), part.start, part.len());
        let out = &mut self.block.samples_mut()[start * channels..part.end * channels];
        let active = match (self.active, &mut self.last_resort) {
            (ActiveInput::Input(active), _) => active,
            (ActiveInput::LastResort, Some(sound)) => return start + sound.read(now, out).frames,
            _ => return start,
        };
        let Some(input) = self.inputs.get_mut(active) else { return start };
        let dry = input.is_running_dry(Frames::from(wanted));
        let read = input.read(now, out);
        let end = start + read.frames;
        if read.starved || dry {
            // Less than a fade would be left for the next quantum, so it fades out now.
            let tail = self.rate.frames(FADE_RESERVE).as_usize().min(read.frames);
            let samples = &mut self.block.samples_mut()[(end - tail) * channels..end * channels];
            Crossfade::fade_out(samples, channels);
            self.status.underruns += 1;
            self.switch.report_underrun(now, active);
        }
        end
    }

    /// Mixes the outgoing inputs into a part of the block, as long as the fade lasts.
    fn mix_outgoing_inputs(&mut self, now: Instant, part: Range<usize>) {
        let Some(mut fade) = self.fade.take() else { return };
        self.altered = Some(PassThroughState::Crossfade);
        self.shorten_fade(&mut fade);
        let channels = self.layout.channels();
        let start = core::mem::take(&mut fade.start).max(part.start);
        let wanted = fade.curve.remaining().as_usize().min(part.end - start) * channels;
        let mixed = start * channels..part.end * channels;
        self.other.reset(self.rate, self.layout);
        self.other.resize(self.config.quantum);
        for (outgoing, gain) in fade.outgoing() {
            let input = match outgoing {
                ActiveInput::Input(input) => self.inputs.get_mut(input),
                ActiveInput::LastResort => self.last_resort.as_deref_mut(),
                ActiveInput::Silence => None,
            };
            let Some(input) = input else { continue };
            let outgoing = self.part.get_mut(..wanted).unwrap_or_default();
            let read = input.read(now, outgoing).frames * channels;
            mix_in(&outgoing[..read], gain, &mut self.other.samples_mut()[start * channels..]);
        }
        let outgoing = &self.other.samples()[mixed.clone()];
        fade.curve.mix(outgoing, &mut self.block.samples_mut()[mixed], channels);
        self.fade = (fade.curve.remaining() > Frames::ZERO).then_some(fade);
    }

    /// Shortens a fade so that it ends before the audio of an outgoing sender that has stopped.
    fn shorten_fade(&self, fade: &mut InputCrossfade) {
        for (outgoing, _) in fade.outgoing() {
            let ActiveInput::Input(index) = outgoing else { continue };
            let Some(input) = self.inputs.get(index) else { continue };
            let stopped = matches!(
                self.switch.health(index),
                InputHealth::Suspect(InputFault::Late | InputFault::Error)
                    | InputHealth::Failed(_)
                    | InputHealth::Backoff
                    | InputHealth::Connecting
            );
            if stopped || input.has_stopped() {
                let left = self.rate.frames(input.remaining());
                fade.curve = fade.curve.shortened(left);
            }
        }
    }

    /// The input on air, and how far all have been read.
    fn on_air(&self) -> OnAir {
        let mut positions = [MediaTime::ZERO; MAX_SOURCES];
        for (position, input) in positions.iter_mut().zip(&self.inputs) {
            *position = input.source_progress().position;
        }
        let input = if let ActiveInput::Input(input) = self.active { Some(input) } else { None };
        OnAir { input, positions }
    }

    fn update_inputs(&mut self, now: Instant, quantum: Frames) {
        let (due, elapsed) = (self.poll_timeout(), self.rate.span(quantum));
        let active = self.switch.active();
        for (index, input) in self.inputs.iter_mut().enumerate() {
            if Some(index) == active {
                input.update_drift(due, elapsed);
            } else if self.fade.as_ref().is_some_and(|fade| fade.contains(index)) {
                // It is still audible, and has been read.
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
        self.send_main(now, times);
        let report = &mut reply(&mut self.port);
        self.output_bus.send_renditions(&self.block, now, times, &mut self.status, report);
    }

    fn publish_status(&mut self, now: Instant) {
        self.status.timeline = Some(self.timeline);
        self.status.active = self.switch.active();
        self.status.preference = self.switch.preference();
        self.status.scheduled = self.switch.scheduled_input();
        self.status.output = match (self.active, &self.fade) {
            (ActiveInput::Input(to), Some(fade)) => {
                StationOutput::Fade { from: fade.from(), to: Some(to) }
            }
            (_, Some(fade)) => StationOutput::Fade { from: fade.from(), to: None },
            (ActiveInput::Input(active), None) => StationOutput::Active(active),
            (_, None) => StationOutput::LastResort,
        };
        self.status.level.update(&self.level, self.layout.channels());
        self.status.loudness = self.meter.loudness();
        self.status.insert = self.insert.as_ref().map(|insert| insert.status());
        if self.next.since(self.normalizer_read_at) >= self.rate.frames(NORMALIZER_READ_INTERVAL) {
            self.normalizer_read_at = self.next;
            self.status.normalizer = self.loudness_processor.status();
        }
        for (index, input) in self.inputs.iter().enumerate().take(self.status.inputs.len()) {
            let source = input.source_progress();
            self.status.inputs[index] = InputState {
                health: self.switch.health(index),
                verdict: input.facts().verdict,
                failures: self.switch.failures(index),
                has_started: self.switch.has_started(index),
                standby: input.facts().standby,
                buffered: input.buffered(),
                drift: input.drift(),
                rate: source.rate,
                channels: source.layout.channels(),
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

/// Passes reports of a mixer to the handle.
fn reply(port: &mut StationPort) -> impl FnMut(MixerReport) {
    |report| port.reply(StationReply::Announcement(report))
}

/// Returns an output to the handle, which frees it.
fn discard_output(port: &mut StationPort, number: u64, mut output: BusOutput) {
    if let BusOutput::Overlay(overlay) = &mut output {
        overlay.end_all(&mut reply(port));
    }
    port.reply(StationReply::Output(number, output));
}

/// Fade-in after silence, and after a sender that left nothing to fade from.
const FADE_IN: Span = Span::from_millis(20);

/// Backlog up to which a station still sends everything it missed.
const MAX_CATCH_UP: Span = Span::from_millis(1_000);

/// Interval at which the normalizer's figures are read, which takes a pass over two histograms.
const NORMALIZER_READ_INTERVAL: Span = Span::from_millis(100);

#[cfg(test)]
mod tests;
