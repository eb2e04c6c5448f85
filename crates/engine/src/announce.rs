//! Announcements: a voice or a signal mixed over the programme, which is ducked meanwhile.
//!
//! ```text
//!  control:  AnnouncementQueue  queues, opens and cancels announcements   (may allocate and free)
//!              | Announcement             ^ MixerReport
//!              v                          |
//!  station:  AnnouncementMixer  ducks the programme and mixes             (real-time)
//! ```
//!
//! The first audio of an announcement is decoded and its resampler exists before the mixer gets it.
//! So a file that cannot be opened never ducks the programme, and the station allocates nothing.
//! One announcement plays at a time; the next one may wait in the mixer already, so that the
//! programme stays ducked between the two.
//!
//! An announcement starts when the programme is fully ducked and ends before the programme comes
//! up. Its gain leaves room for the ducked programme: the sum never exceeds full scale if neither
//! signal does. Starting the announcement during the duck ramp was rejected: that needs a limiter,
//! and the music masks the first word.

use core::fmt;
use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Db, Frames, Instant, Lufs, SampleRate, Span};
use aulos_dsp::{GainRamp, Limiter, mix_in};

use crate::input::{Input, InputConfig};
use crate::loudness::Loudness;
use crate::source::Source;

/// Maximum number of announcements queued for one station, the playing one included.
pub const MAX_QUEUE: usize = 8;
/// Maximum length of an announcement; a longer one is faded out at this point.
pub const MAX_LENGTH: Span = Span::from_secs(300);
/// Duration of the ramp by which the programme is ducked.
pub const DUCK_TIME: Span = Span::from_millis(200);
/// Fade-out time of a cancelled announcement.
pub const FADE_OUT_TIME: Span = Span::from_millis(50);
/// Maximum wait for the first audio of an announcement once it is first in the queue.
pub const MAX_START_WAIT: Span = Span::from_secs(12);
/// Maximum interruption in the middle of an announcement.
pub const MAX_STALL: Span = Span::from_secs(4);

/// How the programme is ducked for an announcement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ducking {
    /// Gain of the programme meanwhile; clamped to [`MIN_DUCK`] and [`MAX_DUCK`].
    pub gain: Db,
    /// Duration of the ramp by which the programme returns; at most [`MAX_RELEASE`].
    pub release: Span,
}

impl Ducking {
    /// A gain, and the default release.
    #[must_use]
    pub const fn by(gain: Db) -> Self {
        Self { gain, release: DEFAULT_RELEASE }
    }
}

/// A state change of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// The programme ramps down for it.
    Began(u64),
    /// The announcement has ended, with the reason.
    Ended(u64, AnnouncementEnd),
}

/// Why an announcement has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnnouncementEnd {
    /// It was played to its end.
    Played,
    /// It was cancelled.
    Cancelled,
    /// It was longer than [`MAX_LENGTH`].
    TooLong,
    /// Its source delivered no audio, or stopped delivering.
    NoSound,
}

/// The queue already holds [`MAX_QUEUE`] announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the announcement queue is full ({MAX_QUEUE}); try again later")
    }
}

impl core::error::Error for QueueFull {}

/// The control thread's half, which decides what plays next: not for a real-time thread.
#[derive(Debug)]
pub struct AnnouncementQueue {
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
    /// The peak of programme and announcement together, where no limiter follows the mixer.
    ceiling: Option<Db>,
    /// When the next announcement may start; `None` until that is known.
    starts_at: Option<Instant>,
    queued: VecDeque<QueuedAnnouncement>,
    in_mixer: VecDeque<u64>,
    events: VecDeque<QueueEvent>,
}

#[derive(Debug)]
struct QueuedAnnouncement {
    announcement: Box<Announcement>,
    /// Time at which it became the first in the queue.
    first_since: Option<Instant>,
    /// The announcement waits for [`AnnouncementQueue::set_gain`].
    waits_for_gain: bool,
}

impl AnnouncementQueue {
    /// An empty queue for a station of this rate, layout and quantum.
    pub(crate) const fn new(rate: SampleRate, layout: ChannelLayout, quantum: Frames) -> Self {
        Self {
            rate,
            layout,
            quantum,
            ceiling: None,
            starts_at: Some(Instant::ZERO),
            queued: VecDeque::new(),
            in_mixer: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Limits the announcements that are added from now on, each by itself: together with a ducked
    /// programme below `ceiling`, none passes it.
    pub(crate) const fn limit_to(&mut self, ceiling: Db) {
        self.ceiling = Some(ceiling);
    }

    /// Starts no announcement before this time, or none at all for now; one that plays continues.
    pub const fn start_at(&mut self, time: Option<Instant>) {
        self.starts_at = time;
    }

    /// Appends an announcement. The source must be finite and paced on demand
    /// ([`Pacing::OnDemand`](crate::source::Pacing::OnDemand)).
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn add(
        &mut self,
        id: u64,
        source: Box<dyn Source>,
        ducking: Ducking,
    ) -> Result<(), QueueFull> {
        if self.queued.len() + self.in_mixer.len() >= MAX_QUEUE {
            return Err(QueueFull);
        }
        // An announcement is not delayed; decoded audio waits in the source's ring.
        let config = InputConfig { buffer: Span::ZERO, ..InputConfig::default() };
        let duck = Db::new(ducking.gain.get().clamp(MAX_DUCK.get(), MIN_DUCK.get()));
        let limiter = self.ceiling.map(|ceiling| {
            let ceiling = Db::new(ceiling.get() + headroom(duck).get());
            Limiter::new(self.rate, self.layout, ceiling)
        });
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        let duck = duck.amplitude() as f32;
        let samples = self.quantum.as_usize() * self.layout.channels();
        let announcement = Box::new(Announcement {
            id,
            input: Input::new(source, self.rate, self.layout, config),
            duck,
            release: self.rate.frames(ducking.release.clamp(Span::ZERO, MAX_RELEASE)),
            gain: 1.0,
            remaining: self.rate.frames(MAX_LENGTH),
            stalled: Frames::ZERO,
            tail: limiter.as_ref().map_or(Frames::ZERO, Limiter::latency),
            limiter,
            max_stall: self.rate.frames(MAX_STALL),
            scratch: vec![0.0; samples],
        });
        self.queued.push_back(QueuedAnnouncement {
            announcement,
            first_since: None,
            waits_for_gain: false,
        });
        Ok(())
    }

    /// Holds a queued announcement back until its gain is set. Once it is first in the queue, it
    /// waits for [`MAX_START_WAIT`] at most.
    pub fn hold(&mut self, id: u64) {
        if let Some(one) = self.queued.iter_mut().find(|one| one.announcement.id == id) {
            one.waits_for_gain = true;
        }
    }

    /// Sets the gain of a queued announcement, clamped to plus or minus [`MAX_ANNOUNCEMENT_GAIN`],
    /// and releases it if it was held back.
    pub fn set_gain(&mut self, id: u64, gain: Db) {
        let most = MAX_ANNOUNCEMENT_GAIN.get();
        let gain = Db::new(gain.get().clamp(-most, most));
        if let Some(one) = self.queued.iter_mut().find(|one| one.announcement.id == id) {
            #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
            let gain = gain.amplitude() as f32;
            (one.announcement.gain, one.waits_for_gain) = (gain, false);
        }
    }

    /// Cancels an announcement. Returns whether the mixer has it, so that the mixer has to cancel
    /// it.
    pub(crate) fn cancel(&mut self, id: u64) -> bool {
        if let Some(at) = self.queued.iter().position(|one| one.announcement.id == id) {
            self.queued.remove(at);
            self.events.push_back(QueueEvent::Ended(id, AnnouncementEnd::Cancelled));
        }
        self.in_mixer.contains(&id)
    }

    /// Cancels every announcement that the mixer does not have.
    pub(crate) fn cancel_queued(&mut self) {
        let ids = self.queued.drain(..).map(|one| one.announcement.id);
        self.events.extend(ids.map(|id| QueueEvent::Ended(id, AnnouncementEnd::Cancelled)));
    }

    /// The next announcement for the mixer, if it has room and one is ready.
    pub(crate) fn poll_ready(&mut self, now: Instant) -> Option<Box<Announcement>> {
        if self.starts_at.is_none_or(|at| now < at) {
            return None;
        }
        while self.in_mixer.len() < MAX_IN_MIXER
            && let Some(mut head) = self.queued.pop_front()
        {
            let since = *head.first_since.get_or_insert(now);
            if head.waits_for_gain && now.since(since) <= MAX_START_WAIT {
                self.queued.push_front(head);
                return None;
            }
            head.announcement.input.refill(now);
            let id = head.announcement.id;
            let facts = head.announcement.input.facts();
            if facts.buffered > Span::ZERO {
                self.in_mixer.push_back(id);
                return Some(head.announcement);
            } else if facts.ended || now.since(since) > MAX_START_WAIT {
                self.events.push_back(QueueEvent::Ended(id, AnnouncementEnd::NoSound));
            } else {
                self.queued.push_front(head);
                return None;
            }
        }
        None
    }

    /// Handles a report of the mixer, and frees an announcement that has ended.
    pub(crate) fn handle_report(&mut self, report: MixerReport) {
        self.events.push_back(match report {
            MixerReport::Began(id) => QueueEvent::Began(id),
            MixerReport::Ended(announcement, cause) => {
                self.in_mixer.retain(|id| *id != announcement.id);
                QueueEvent::Ended(announcement.id, cause)
            }
        });
    }

    /// Whether the mixer has the announcement of this report.
    pub(crate) fn owns(&self, report: &MixerReport) -> bool {
        self.in_mixer.contains(&report.id())
    }

    /// The next event, in order of occurrence.
    pub(crate) fn poll_event(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    /// The announcements that have not ended, in the order of playback.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        let queued = self.queued.iter().map(|one| one.announcement.id);
        self.in_mixer.iter().copied().chain(queued)
    }
}

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

/// What the mixer reports to the queue.
#[derive(Debug)]
pub(crate) enum MixerReport {
    Began(u64),
    /// The announcement returns to the control thread, which frees it.
    Ended(Box<Announcement>, AnnouncementEnd),
}

impl MixerReport {
    const fn id(&self) -> u64 {
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

    /// Plays an announcement after those that it already has.
    pub(crate) fn play(&mut self, announcement: Box<Announcement>) {
        self.next.push_back(announcement);
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
        match core::mem::replace(&mut self.stage, MixerState::Idle) {
            MixerState::Ducking(announcement) if announcement.id == id => {
                self.end(announcement, AnnouncementEnd::Cancelled, report);
            }
            MixerState::Playing(announcement) if announcement.id == id => {
                self.begin_fade_out(announcement, AnnouncementEnd::Cancelled);
            }
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
    id: u64,
    input: Input,
    /// Gain of the programme while it plays.
    duck: f32,
    /// Length of the ramp by which the programme returns.
    release: Frames,
    /// Its own gain, without the headroom for the programme.
    gain: f32,
    /// Frames until [`MAX_LENGTH`].
    remaining: Frames,
    /// Frames since audio last arrived.
    stalled: Frames,
    /// Limit of `stalled`.
    max_stall: Frames,
    /// Keeps it below its share of the ceiling; `None` where a limiter follows the mixer.
    limiter: Option<Limiter>,
    /// Frames that the limiter still holds once the source has ended.
    tail: Frames,
    /// Room for one quantum.
    scratch: Vec<f32>,
}

impl Announcement {
    /// Its gain beside the ducked programme.
    const fn gain(&self) -> f32 {
        (1.0 - self.duck) * self.gain
    }

    /// The gain at which the scratch buffer is mixed over the programme.
    const fn mix_gain(&self) -> f32 {
        if self.limiter.is_some() { 1.0 } else { self.gain() }
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
        let gain = self.gain();
        if let Some(limiter) = &mut self.limiter {
            let samples = &mut self.scratch[..count];
            samples.iter_mut().for_each(|sample| *sample *= gain);
            limiter.process(samples);
        }
        (count, over)
    }

    /// Reads its source, and then silence until the limiter holds nothing of it.
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
        loop {
            self.input.refill(now);
            let read = self.input.read(now, &mut out[said * channels..]);
            said += read.frames;
            if said == frames {
                break;
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

/// The gain that brings an announcement to the loudness of a programme that is normalized to
/// `target` with the true peak `ceiling` and ducked by `duck`. It makes up for the headroom that is
/// left for the ducked programme. It is limited to plus or minus [`MAX_MATCHING_GAIN`], and so that
/// the limiter after the announcements takes at most [`MAX_LIMITER_REDUCTION`] off the peaks.
///
/// An announcement without an integrated loudness, such as one shorter than 400 ms, keeps its
/// level.
#[must_use]
pub fn matching_gain(loudness: &Loudness, target: Lufs, ceiling: Db, duck: Db) -> Db {
    let Some(integrated) = loudness.integrated else { return Db::ZERO };
    let given_away = headroom(duck).get();
    let gain = target.get() - integrated.get() - given_away;
    let peak = loudness.true_peak.map_or(f64::NEG_INFINITY, Db::get) + given_away;
    let room = ceiling.get() + MAX_LIMITER_REDUCTION.get() - peak;
    let most = MAX_MATCHING_GAIN.get();
    Db::new(gain.min(room).clamp(-most, most))
}

/// The share of full scale that a programme ducked by `duck` leaves to an announcement.
#[must_use]
pub fn headroom(duck: Db) -> Db {
    Db::new(20.0 * (1.0 - duck.amplitude()).log10())
}

/// Limit of [`matching_gain`], both ways: more would raise the noise of a bad recording, or hide
/// that it is broken.
pub const MAX_MATCHING_GAIN: Db = Db::new(20.0);
/// Gain reduction of speech peaks that is not audible as distortion.
pub const MAX_LIMITER_REDUCTION: Db = Db::new(6.0);
/// Maximum gain of an announcement, the requested gain included.
pub const MAX_ANNOUNCEMENT_GAIN: Db = Db::new(40.0);

/// Maximum and minimum ducking of a programme. Above the minimum there is no headroom for a voice.
pub const MAX_DUCK: Db = Db::new(-60.0);
/// See [`MAX_DUCK`].
pub const MIN_DUCK: Db = Db::new(-6.0);
/// Default time in which the programme returns: a pause for breath, after which music sets in again
/// unhurried.
pub const DEFAULT_RELEASE: Span = Span::from_secs(1);
/// The longest time in which it returns.
pub const MAX_RELEASE: Span = Span::from_secs(10);
/// Default ducking: music remains audible as music, and speech is intelligible.
pub const DEFAULT_DUCK: Db = Db::new(-15.0);

/// The playing announcement and the one that follows.
pub(crate) const MAX_IN_MIXER: usize = 2;

/// Reports about an announcement: it began, it ended.
pub(crate) const REPORTS: usize = 2;
