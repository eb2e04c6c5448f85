//! The station's half of announcements: ducks the programme, and mixes.

use std::collections::VecDeque;

use aulos_core::{Frames, Instant, SampleRate};
use aulos_dsp::{GainRamp, Limiter, mix_in};

use super::event::AnnouncementEnd;
use super::layer::Layer;
use super::limits::{DUCK_TIME, FADE_OUT_TIME, MAX_IN_MIXER};
use super::priority::Priority;
use crate::input::Input;

/// The station's half.
#[derive(Debug)]
pub(crate) struct AnnouncementMixer {
    rate: SampleRate,
    /// The programme's gain.
    duck: GainRamp,
    stage: MixerState,
    /// At most [`MAX_IN_MIXER`].
    next: VecDeque<Box<Announcement>>,
}

#[derive(Debug)]
enum MixerState {
    /// No announcement plays: the programme is at full level, or ramping up to it.
    Idle,
    /// The programme ramps down.
    Ducking(Box<Announcement>),
    /// An announcement plays.
    Playing(Box<Announcement>),
    /// The announcement fades out.
    FadingOut(Box<Announcement>, GainRamp, AnnouncementEnd),
}

impl MixerState {
    /// The announcement that plays, unless it is being faded out.
    fn current(&self) -> Option<&Announcement> {
        match self {
            Self::Ducking(announcement) | Self::Playing(announcement) => Some(announcement),
            Self::Idle | Self::FadingOut(..) => None,
        }
    }
}

/// A sound of an announcement.
#[derive(Debug)]
pub(crate) struct AnnouncementPart {
    pub(super) input: Input,
    pub(super) gain: f32,
}

/// What the mixer reports to the queue.
#[derive(Debug)]
pub(crate) enum MixerReport {
    Began(u64),
    /// The announcement returns to the control thread, which frees it.
    Ended(Box<Announcement>, AnnouncementEnd),
}

impl MixerReport {
    pub(super) const fn id(&self) -> u64 {
        match self {
            Self::Began(id) => *id,
            Self::Ended(announcement, _) => announcement.id,
        }
    }
}

impl AnnouncementMixer {
    pub(crate) fn new(rate: SampleRate) -> Self {
        let next = VecDeque::with_capacity(MAX_IN_MIXER);
        Self { rate, duck: GainRamp::at(1.0), stage: MixerState::Idle, next }
    }

    /// Plays an announcement after those of its priority that it already has; lower ones that play
    /// are interrupted.
    pub(crate) fn play(
        &mut self,
        announcement: Box<Announcement>,
        report: &mut impl FnMut(MixerReport),
    ) {
        let priority = announcement.priority;
        let at = self.next.iter().position(|one| one.priority < priority);
        self.next.insert(at.unwrap_or(self.next.len()), announcement);
        if self.stage.current().is_some_and(|current| current.priority < priority) {
            self.end_current(AnnouncementEnd::Interrupted, report);
        }
    }

    /// Mixes announcements over `programme`: at most one quantum, interleaved. Passes what happens
    /// to `report`.
    ///
    /// The programme is left untouched while no announcement plays and the duck ramp is complete.
    ///
    /// # Real-time
    /// Does not allocate, unless an announcement changes its sample rate while it plays.
    pub(crate) fn mix(
        &mut self,
        now: Instant,
        programme: &mut [f32],
        channels: usize,
        report: &mut impl FnMut(MixerReport),
    ) {
        if self.is_transparent() {
            return;
        }
        let mut done = 0;
        while done < programme.len() {
            done += self.step(now, &mut programme[done..], channels, report);
        }
    }

    /// Whether the next block passes unchanged: no announcement plays or waits, and the duck ramp
    /// is complete.
    pub(crate) fn is_transparent(&self) -> bool {
        matches!(self.stage, MixerState::Idle) && self.next.is_empty() && self.duck.is_unity()
    }

    /// Ends every announcement at once, without a fade.
    pub(crate) fn end_all(&mut self, report: &mut impl FnMut(MixerReport)) {
        let current = match core::mem::replace(&mut self.stage, MixerState::Idle) {
            MixerState::Idle => None,
            MixerState::Ducking(announcement)
            | MixerState::Playing(announcement)
            | MixerState::FadingOut(announcement, ..) => Some(announcement),
        };
        for announcement in current.into_iter().chain(self.next.drain(..)) {
            report(MixerReport::Ended(announcement, AnnouncementEnd::Cancelled));
        }
    }

    /// Runs the current state until it changes or the block ends; returns the number of samples
    /// processed.
    fn step(
        &mut self,
        now: Instant,
        rest: &mut [f32],
        channels: usize,
        report: &mut impl FnMut(MixerReport),
    ) -> usize {
        match core::mem::replace(&mut self.stage, MixerState::Idle) {
            MixerState::Idle => match self.next.pop_front() {
                Some(announcement) => {
                    self.duck.ramp_to(announcement.duck, self.rate.frames(DUCK_TIME));
                    report(MixerReport::Began(announcement.id));
                    self.stage = MixerState::Ducking(announcement);
                    0
                }
                None => {
                    self.duck.apply(rest, channels);
                    rest.len()
                }
            },
            MixerState::Ducking(announcement) => {
                let way = self.duck.remaining().as_usize() * channels;
                let count = way.min(rest.len());
                self.duck.apply(&mut rest[..count], channels);
                self.stage = if count == way {
                    MixerState::Playing(announcement)
                } else {
                    MixerState::Ducking(announcement)
                };
                count
            }
            MixerState::Playing(mut announcement) => {
                let (count, over) = announcement.render(now, rest.len(), channels);
                self.duck.apply(&mut rest[..count], channels);
                mix_in(&announcement.scratch[..count], announcement.mix_gain(), rest);
                match over {
                    None => self.stage = MixerState::Playing(announcement),
                    Some(AnnouncementEnd::TooLong) => {
                        self.begin_fade_out(announcement, AnnouncementEnd::TooLong);
                    }
                    Some(cause) => self.end(announcement, cause, report),
                }
                count
            }
            MixerState::FadingOut(mut announcement, mut ramp, cause) => {
                let way = ramp.remaining().as_usize() * channels;
                let (count, over) = announcement.render(now, way.min(rest.len()), channels);
                let gain = announcement.mix_gain();
                let samples = &mut announcement.scratch[..count];
                ramp.apply(samples, channels);
                self.duck.apply(&mut rest[..count], channels);
                mix_in(samples, gain, rest);
                let over =
                    count == way || over.is_some_and(|over| over != AnnouncementEnd::TooLong);
                if over {
                    self.end(announcement, cause, report);
                } else {
                    self.stage = MixerState::FadingOut(announcement, ramp, cause);
                }
                count
            }
        }
    }

    /// Cancels an announcement; one that plays is faded out.
    pub(crate) fn cancel(&mut self, id: u64, report: &mut impl FnMut(MixerReport)) {
        let at = self.next.iter().position(|next| next.id == id);
        if let Some(next) = at.and_then(|at| self.next.remove(at)) {
            report(MixerReport::Ended(next, AnnouncementEnd::Cancelled));
        }
        if self.stage.current().is_some_and(|current| current.id == id) {
            self.end_current(AnnouncementEnd::Cancelled, report);
        }
    }

    /// Ends every announcement but the newest; one that plays is faded out.
    pub(super) fn end_older(
        &mut self,
        cause: AnnouncementEnd,
        report: &mut impl FnMut(MixerReport),
    ) {
        while self.next.len() > 1
            && let Some(older) = self.next.pop_front()
        {
            report(MixerReport::Ended(older, cause));
        }
        self.end_current(cause, report);
    }

    /// Ends the announcement that plays, unless it is being faded out.
    fn end_current(&mut self, cause: AnnouncementEnd, report: &mut impl FnMut(MixerReport)) {
        match core::mem::replace(&mut self.stage, MixerState::Idle) {
            MixerState::Ducking(announcement) => self.end(announcement, cause, report),
            MixerState::Playing(announcement) => self.begin_fade_out(announcement, cause),
            other => self.stage = other,
        }
    }

    fn begin_fade_out(&mut self, announcement: Box<Announcement>, cause: AnnouncementEnd) {
        let mut ramp = GainRamp::at(1.0);
        ramp.ramp_to(0.0, self.rate.frames(FADE_OUT_TIME));
        self.stage = MixerState::FadingOut(announcement, ramp, cause);
    }

    /// Ramps the programme up, unless the next announcement is already waiting.
    fn end(
        &mut self,
        announcement: Box<Announcement>,
        cause: AnnouncementEnd,
        report: &mut impl FnMut(MixerReport),
    ) {
        if self.next.is_empty() {
            self.duck.ramp_to(1.0, announcement.release);
        }
        self.stage = MixerState::Idle;
        report(MixerReport::Ended(announcement, cause));
    }
}

/// An announcement that is ready to play.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(super) id: u64,
    pub(super) layer: Layer,
    pub(super) priority: Priority,
    /// The lead, if there is one, and the announcement itself.
    pub(super) parts: Vec<AnnouncementPart>,
    /// The index of the part that plays.
    pub(super) current: usize,
    /// Gain of the programme while it plays.
    pub(super) duck: f32,
    /// Length of the ramp by which the programme returns.
    pub(super) release: Frames,
    /// Frames until its longest length.
    pub(super) remaining: Frames,
    /// Frames since audio last arrived.
    pub(super) stalled: Frames,
    /// Limit of `stalled`.
    pub(super) max_stall: Frames,
    /// Keeps it below its share of the ceiling; `None` where a limiter follows the mixer.
    pub(super) limiter: Option<Limiter>,
    /// Frames that the limiter still holds once the source has ended.
    pub(super) tail: Frames,
    /// Room for one quantum.
    pub(super) scratch: Vec<f32>,
}

impl Announcement {
    pub(super) const fn layer(&self) -> Layer {
        self.layer
    }

    /// Its share beside the ducked programme.
    const fn share(&self) -> f32 {
        1.0 - self.duck
    }

    /// The gain at which the scratch buffer is mixed over the programme.
    const fn mix_gain(&self) -> f32 {
        if self.limiter.is_some() { 1.0 } else { self.share() }
    }

    /// Renders up to `wanted` samples into the scratch buffer. Returns the number of samples, and
    /// why the announcement ends after them, if it does.
    fn render(
        &mut self,
        now: Instant,
        wanted: usize,
        channels: usize,
    ) -> (usize, Option<AnnouncementEnd>) {
        let (count, over) = self.read(now, wanted, channels);
        let gain = self.share();
        if let Some(limiter) = &mut self.limiter {
            let samples = &mut self.scratch[..count];
            samples.iter_mut().for_each(|sample| *sample *= gain);
            limiter.process(samples);
        }
        (count, over)
    }

    /// Reads its parts at their gains, and then silence until the limiter holds nothing of it.
    fn read(
        &mut self,
        now: Instant,
        wanted: usize,
        channels: usize,
    ) -> (usize, Option<AnnouncementEnd>) {
        let out = &mut self.scratch[..wanted];
        let frames = wanted / channels;
        let mut said = 0;
        // A quantum may be longer than the part of a file that an input reads ahead.
        while let Some(part) = self.parts.get_mut(self.current) {
            part.input.refill(now);
            let samples = &mut out[said * channels..];
            let read = part.input.read(now, samples);
            let samples = &mut samples[..read.frames * channels];
            samples.iter_mut().for_each(|sample| *sample *= part.gain);
            said += read.frames;
            if said == frames {
                break;
            }
            if !read.starved && self.current + 1 < self.parts.len() {
                self.current += 1;
                continue;
            }
            if !read.starved {
                let tail = self.tail.as_usize().min(frames - said);
                out[said * channels..(said + tail) * channels].fill(0.0);
                self.tail -= Frames::from(tail);
                let over = self.tail == Frames::ZERO;
                return ((said + tail) * channels, over.then_some(AnnouncementEnd::Played));
            }
            if read.frames == 0 {
                out[said * channels..].fill(0.0);
                self.stalled += Frames::from(frames - said);
                break;
            }
        }
        if said > 0 {
            self.stalled = Frames::ZERO;
        }
        self.remaining -= Frames::from(frames).min(self.remaining);
        if self.stalled > self.max_stall && self.current + 1 < self.parts.len() {
            // The rest of a lead that does not arrive: the announcement itself is there.
            self.current += 1;
            self.stalled = Frames::ZERO;
        }
        let over = if self.stalled > self.max_stall {
            Some(AnnouncementEnd::NoSound)
        } else if self.remaining == Frames::ZERO {
            Some(AnnouncementEnd::TooLong)
        } else {
            None
        };
        (wanted, over)
    }
}
