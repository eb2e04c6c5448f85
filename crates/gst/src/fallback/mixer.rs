//! Chooses an input, and renders it without gaps: the element without GStreamer.
//!
//! Time is running time. A buffer of the output is rendered when it is due, so audio that is not
//! there by then is missing, however long a time-out may be. The switch is told so while there is
//! still enough of it for a fade.

use aulos_core::{Frames, Instant, SampleRate, Span};
use aulos_dsp::Crossfade;
use aulos_dsp::silence::SilenceConfig;
use aulos_engine::source::Pacing;
use aulos_engine::standby::{LinkState, Standby};
use aulos_engine::switch::{
    InputChange, InputFacts, InputHealth, Preference, Switch, SwitchCause, SwitchConfig,
};

use super::track::Track;

#[derive(Clone, Copy, Debug)]
pub(super) struct MixerConfig {
    pub(super) switch: SwitchConfig,
    pub(super) crossfade: Span,
    /// When a silent input counts as failed; `None` is never.
    pub(super) silence: Option<SilenceConfig>,
}

/// How the input is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// The switch, by priority and health.
    Auto,
    /// This input, or none, whatever its state.
    Manual(Option<usize>),
}

/// Result of [`Mixer::render`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RenderResult {
    pub(super) change: Option<InputChange>,
    /// No input had anything.
    pub(super) empty: bool,
}

pub(super) struct Mixer {
    config: MixerConfig,
    rate: SampleRate,
    channels: usize,
    quantum: usize,
    /// Frame of the running time that is rendered next.
    position: u64,
    /// Those of the inputs, then removed ones that are still heard.
    tracks: Vec<Track>,
    inputs: usize,
    facts: Vec<InputFacts>,
    switch: Switch,
    selection: Selection,
    /// The selected input, and the one that is read; they differ while a fade has to end first.
    chosen: Option<usize>,
    /// The chosen input was removed, which is not reported yet.
    is_chosen_removed: bool,
    audible: Option<usize>,
    fade: Option<Fade>,
    other: Vec<f32>,
}

/// A fade to what is heard.
struct Fade {
    from: Option<usize>,
    curve: Crossfade,
}

impl Mixer {
    /// A mixer whose first frame is due at `start`.
    pub(super) fn new(config: MixerConfig, rate: SampleRate, channels: usize, start: Span) -> Self {
        let quantum = rate.frames(QUANTUM).as_usize();
        Self {
            config,
            rate,
            channels,
            quantum,
            position: rate.frames(start).0,
            tracks: Vec::new(),
            inputs: 0,
            facts: Vec::new(),
            switch: Switch::new(config.switch, 0),
            selection: Selection::Auto,
            chosen: None,
            is_chosen_removed: false,
            audible: None,
            fade: None,
            other: vec![0.0; quantum * channels],
        }
    }

    /// Input n is from now on what input `inputs[n]` was, or a new one. One that is removed is
    /// faded.
    pub(super) fn rearrange(&mut self, inputs: &[Option<usize>]) {
        let mut kept = inputs.to_vec();
        for heard in [self.audible, self.fade.as_ref().and_then(|fade| fade.from)] {
            if heard.is_some() && !kept.contains(&heard) {
                kept.push(heard);
            }
        }
        let moved = |old: Option<usize>| {
            old.and_then(|old| kept.iter().position(|track| *track == Some(old)))
        };
        let is_input = |track: &usize| *track < inputs.len();
        self.switch.rearrange(inputs);
        if let Selection::Manual(input) = &mut self.selection {
            *input = moved(*input).filter(is_input);
        }
        let chosen = moved(self.chosen).filter(is_input);
        self.is_chosen_removed |= chosen.is_none() && self.chosen.is_some();
        (self.chosen, self.audible) = (chosen, moved(self.audible));
        if let Some(fade) = &mut self.fade {
            fade.from = moved(fade.from);
        }
        let mut old: Vec<_> = self.tracks.drain(..).map(Some).collect();
        let new = || Track::new(self.rate, self.channels, self.config.silence);
        let track = |from: &Option<usize>| from.and_then(|from| old.get_mut(from)?.take());
        self.tracks = kept.iter().map(track).map(|kept| kept.unwrap_or_else(new)).collect();
        self.inputs = inputs.len();
        self.tracks[self.inputs..].iter_mut().for_each(Track::end);
    }

    pub(super) fn track(&mut self, input: usize) -> Option<&mut Track> {
        self.tracks.get_mut(input)
    }

    /// Frame of the running time that is rendered next.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Whether more of `input` is to be pushed before the next call of [`Mixer::render`].
    pub(super) fn is_wanted(&self, input: usize) -> bool {
        let latency = self.rate.frames(LATENCY);
        self.tracks.get(input).is_some_and(|track| {
            track.buffered(self.position) < latency && track.has_room(self.position)
        })
    }

    /// Whether an input that has not ended has not enough for the next call of [`Mixer::render`].
    pub(super) fn is_starved(&self) -> bool {
        // What was sent after a gap does not make the gap late.
        let waits = |track: &Track| !track.has_ended() && !track.reaches_beyond(self.position);
        self.tracks.iter().any(|track| waits(track) && !self.has_reserve(track))
    }

    /// Whether every input has ended and was played. Without any, one may still come.
    pub(super) fn has_ended(&self) -> bool {
        self.inputs > 0 && self.tracks.iter().all(|track| self.is_over(track))
    }

    /// Whether some input has ended and was played.
    pub(super) fn has_any_ended(&self) -> bool {
        self.tracks[..self.inputs].iter().any(|track| self.is_over(track))
    }

    pub(super) fn select(&mut self, selection: Selection) {
        self.selection = selection;
    }

    /// Prefers an input until it fails or ends; or none.
    pub(super) fn prefer(&mut self, input: Option<usize>) {
        self.switch.set_preference(input.map(|input| Preference { input, until: None }));
    }

    /// The input that is chosen.
    pub(super) const fn chosen(&self) -> Option<usize> {
        self.chosen
    }

    pub(super) fn is_healthy(&self, input: usize) -> bool {
        matches!(self.switch.health(input), InputHealth::Healthy { .. })
    }

    /// Fills `out` with the next frames, [`Mixer::samples`] interleaved samples.
    pub(super) fn render(&mut self, out: &mut [f32]) -> RenderResult {
        let change = self.choose();
        self.begin_fade();
        out.fill(0.0);
        let track = self.audible.and_then(|input| self.tracks.get(input));
        let read = track.map_or(0, |track| track.read(self.position, out));
        let breaks_off = track.is_some_and(|track| self.breaks_off(track));
        if breaks_off {
            Crossfade::fade_out(&mut out[..read * self.channels], self.channels);
            self.audible = None;
            self.hasten_fade();
        }
        let faded = self.fade.as_ref().is_some_and(|fade| fade.from.is_some());
        self.mix(out);
        self.position += self.quantum as u64;
        for track in &mut self.tracks {
            track.discard_before(self.position);
        }
        let heard = self.audible.max(self.fade.as_ref().and_then(|fade| fade.from));
        self.tracks.truncate(self.inputs.max(heard.map_or(0, |last| last + 1)));
        RenderResult { change, empty: read == 0 && !faded }
    }

    /// Samples of one call of [`Mixer::render`].
    pub(super) const fn samples(&self) -> usize {
        self.quantum * self.channels
    }

    fn choose(&mut self) -> Option<InputChange> {
        let now = Instant::ZERO + self.rate.span(Frames(self.position));
        self.facts.clear();
        for track in &self.tracks[..self.inputs] {
            self.facts.push(self.facts_of(track));
        }
        let running_dry = self.audible.filter(|input| self.is_running_dry(*input));
        if let Some(input) = running_dry {
            self.switch.report_underrun(now, input);
        }
        let decided = self.switch.decide(now, &self.facts);
        let (to, cause) = match self.selection {
            Selection::Auto => (self.switch.active(), decided.map(|change| change.cause)),
            Selection::Manual(input) => (input, None),
        };
        let from = core::mem::replace(&mut self.chosen, to);
        let cause = cause.unwrap_or(SwitchCause::Manual);
        let changes = core::mem::take(&mut self.is_chosen_removed) || from != to;
        changes.then_some(InputChange { from, to, cause })
    }

    fn facts_of(&self, track: &Track) -> InputFacts {
        let buffered = track.buffered(self.position);
        // The end of an input that has ended is cross-faded, where another one can follow.
        let ends = track.has_ended() && buffered < self.rate.frames(RESERVE);
        let others =
            self.tracks[..self.inputs].iter().filter(|other| !core::ptr::eq(*other, track));
        let handed_over = ends && others.into_iter().any(|other| self.has_reserve(other));
        let buffered = if handed_over { Frames::ZERO } else { buffered };
        InputFacts {
            pacing: Pacing::Live,
            buffered: self.rate.span(buffered),
            prime_target: RESERVE,
            full: false,
            ended: track.has_ended(),
            lost: false,
            // What is not there when it is due is late.
            last_arrival: track.last_arrival().filter(|_| self.has_reserve(track)),
            timeout: Span::ZERO,
            verdict: track.verdict(),
            standby: Standby::Hot,
            link: LinkState::Healthy,
        }
    }

    fn has_reserve(&self, track: &Track) -> bool {
        track.buffered(self.position) >= self.rate.frames(RESERVE)
    }

    fn is_running_dry(&self, input: usize) -> bool {
        self.tracks.get(input).is_some_and(|track| !track.has_ended() && !self.has_reserve(track))
    }

    /// Whether less than a fade would be left after this quantum.
    fn breaks_off(&self, track: &Track) -> bool {
        let left = track.buffered(self.position);
        let enough = Frames::from(self.quantum) + self.rate.frames(FADE_IN);
        !track.has_ended() && left > Frames::ZERO && left < enough
    }

    fn is_over(&self, track: &Track) -> bool {
        track.has_ended() && track.end_frame() <= self.position
    }

    /// Starts the fade to what is chosen. One that is running ends first, within this call.
    fn begin_fade(&mut self) {
        let sounds = |input: &usize| {
            let track = self.tracks.get(*input);
            track.is_some_and(|track| track.buffered(self.position) > Frames::ZERO)
        };
        let next = self.chosen.filter(sounds);
        if next == self.audible {
            return;
        }
        if self.fade.is_some() {
            return self.hasten_fade();
        }
        let from = core::mem::replace(&mut self.audible, next);
        let next = next.and_then(|next| self.tracks.get(next));
        if from.is_none() && next.is_some_and(|next| next.begins_at(self.position)) {
            // After silence a sound starts exactly as its sender sent it.
            return;
        }
        let length = self.rate.frames(self.config.crossfade);
        // After silence there is nothing to fade from.
        let left = from.and_then(|from| self.tracks.get(from));
        let left = left.map_or(Frames::ZERO, |track| track.buffered(self.position));
        let length =
            if left == Frames::ZERO { length.min(self.rate.frames(FADE_IN)) } else { length };
        self.fade = Some(Fade { from, curve: Crossfade::constant_power(length) });
    }

    /// A running fade ends within this call.
    fn hasten_fade(&mut self) {
        if let Some(fade) = &mut self.fade {
            fade.curve = fade.curve.shortened(Frames::from(self.quantum));
        }
    }

    fn mix(&mut self, out: &mut [f32]) {
        let Some(fade) = &mut self.fade else { return };
        let track = fade.from.and_then(|from| self.tracks.get(from));
        let mut read = 0;
        if let Some(track) = track {
            // It must not end before the fade does.
            let left = track.buffered(self.position);
            if track.has_ended() || left < self.rate.frames(RESERVE) {
                fade.curve = fade.curve.shortened(left);
            }
            read = track.read(self.position, &mut self.other) * self.channels;
        }
        fade.curve.mix(&self.other[..read], out, self.channels);
        if fade.curve.remaining() == Frames::ZERO {
            self.fade = None;
        }
    }
}

/// Running time of a frame, in nanoseconds.
pub(super) fn running_time(rate: SampleRate, frame: u64) -> u64 {
    u64::try_from(rate.span(Frames(frame)).as_nanos()).unwrap_or(u64::MAX)
}

/// Length of an output buffer.
pub(super) const QUANTUM: Span = Span::from_millis(10);
/// From when a frame is due in live mode to when it is rendered: a buffer of output, a fade, what
/// resamplers look ahead, and some jitter.
pub(super) const LATENCY: Span = Span::from_millis(40);
/// An input that has less is faded out: the quantum that is rendered, and one to fade in.
const RESERVE: Span = Span::from_millis(20);
/// After silence, and before it.
const FADE_IN: Span = Span::from_millis(5);

#[cfg(test)]
mod tests;
