//! Announcements: a voice or a bell over the programme, which goes down for it and comes back.
//!
//! ```text
//!  control:  Desk   what waits, is made ready, is told to end         (may allocate and free)
//!              | ring: announcements that are ready, orders to end
//!              v                          ^ ring: what began, what has ended
//!  station:  Booth  ducks the programme, speaks, brings it back       (real-time)
//! ```
//!
//! What reaches the booth has its first sound decoded and its resampler made, so that a file which
//! cannot be opened never ducks anything and the station allocates nothing. One speaks at a time;
//! the next one may wait in the booth already, so that the programme does not come up between two.
//!
//! The voice begins when the programme is down and is over before it comes up again, and it gives
//! away what the ducked programme takes: their sum never passes full scale if neither does. To lay
//! the voice over a programme that is still on its way down was rejected: it needs a limiter, and
//! the first word is the one that is lost under the music.

use core::fmt;
use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Db, Frames, Instant, Lufs, SampleRate, Span};
use aulos_dsp::{GainRamp, mix_in};
use aulos_rt::ring::{Consumer, Producer, ring};

use crate::input::{self, Input};
use crate::loudness::Loudness;
use crate::source::Source;

/// Announcements that may wait for one station, the one that is heard included.
pub const MAX_QUEUE: usize = 8;
/// The longest announcement; what is longer is faded out there.
pub const MAX_LENGTH: Span = Span::from_secs(120);
/// How long the programme takes to go down, and to come up again.
pub const DUCK_TIME: Span = Span::from_millis(200);
/// How long an announcement that is to end takes to do so.
pub const FADE_OUT_TIME: Span = Span::from_millis(50);
/// How long the first sound of an announcement may take to come once it is its turn.
pub const MAX_START_WAIT: Span = Span::from_secs(5);
/// How long an announcement may stop in its middle.
pub const MAX_STALL: Span = Span::from_secs(2);

/// What happens to an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// The programme goes down for it.
    Began(u64),
    /// It is over, and why.
    Ended(u64, EndReason),
}

/// Why an announcement is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// It has been heard to its end.
    Played,
    /// Somebody ended it.
    Cancelled,
    /// It passed [`MAX_LENGTH`].
    TooLong,
    /// No sound came from it, or no more.
    NoSound,
}

/// There are [`MAX_QUEUE`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAX_QUEUE} announcements wait already")
    }
}

impl core::error::Error for QueueFull {}

/// The two halves for a station of this rate, layout and quantum.
#[must_use]
pub fn queue_and_mixer(
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
) -> (AnnouncementQueue, AnnouncementMixer) {
    let (orders, told) = ring(2 * MAX_IN_MIXER);
    // Each of those in the booth begins and ends once before the desk hands over another.
    let (news, heard) = ring(2 * MAX_IN_MIXER);
    let desk = AnnouncementQueue {
        rate,
        layout,
        quantum,
        queued: VecDeque::new(),
        in_mixer: VecDeque::new(),
        commands: orders,
        reports: heard,
        events: VecDeque::new(),
    };
    let (duck, stage) = (GainRamp::at(1.0), MixerState::Idle);
    let next = VecDeque::with_capacity(MAX_IN_MIXER);
    (desk, AnnouncementMixer { rate, commands: told, reports: news, duck, stage, next })
}

/// Control's half: not for a real-time thread.
#[derive(Debug)]
pub struct AnnouncementQueue {
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
    queued: VecDeque<QueuedAnnouncement>,
    in_mixer: VecDeque<ActiveAnnouncement>,
    commands: Producer<MixerCommand>,
    reports: Consumer<MixerReport>,
    events: VecDeque<QueueEvent>,
}

#[derive(Debug)]
struct QueuedAnnouncement {
    announcement: Box<Announcement>,
    /// Since when it is the next one.
    first_since: Option<Instant>,
    /// It waits for its gain.
    waits_for_gain: bool,
}

#[derive(Debug)]
struct ActiveAnnouncement {
    id: u64,
    cancel: CancelState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CancelState {
    NotRequested,
    Requested,
    Sent,
}

impl AnnouncementQueue {
    /// Puts an announcement at the end of the queue; `duck` is what the programme is lowered by,
    /// clamped to [`MIN_DUCK`] and [`MAX_DUCK`]. The source is one that gives when it is asked
    /// ([`Pacing::OnDemand`](crate::source::Pacing::OnDemand)), and ends.
    ///
    /// # Errors
    /// [`Full`].
    pub fn announce(
        &mut self,
        id: u64,
        source: Box<dyn Source>,
        duck: Db,
    ) -> Result<(), QueueFull> {
        if self.queued.len() + self.in_mixer.len() >= MAX_QUEUE {
            return Err(QueueFull);
        }
        // Whoever speaks is not delayed; what is decoded waits in the source's ring.
        let wishes = input::Config { buffer: Span::ZERO, ..input::Config::default() };
        let duck = Db::new(duck.get().clamp(MAX_DUCK.get(), MIN_DUCK.get()));
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        let duck = duck.amplitude() as f32;
        let samples = self.quantum.as_usize() * self.layout.channels();
        let announcement = Box::new(Announcement {
            id,
            input: Input::new(source, self.rate, self.layout, wishes),
            duck,
            gain: 1.0,
            remaining: self.rate.frames(MAX_LENGTH),
            stalled: Frames::ZERO,
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

    /// Lets an announcement that waits go on waiting until it has its gain; once it is its turn, for
    /// [`MAX_WAIT`] at most.
    pub fn hold(&mut self, id: u64) {
        if let Some(one) = self.queued.iter_mut().find(|one| one.announcement.id == id) {
            one.waits_for_gain = true;
        }
    }

    /// Gives an announcement that waits its gain, clamped to [`MAX_ANNOUNCEMENT_GAIN`] both ways; one
    /// that was held is held no longer.
    pub fn set_gain(&mut self, id: u64, gain: Db) {
        let most = MAX_ANNOUNCEMENT_GAIN.get();
        let gain = Db::new(gain.get().clamp(-most, most));
        if let Some(one) = self.queued.iter_mut().find(|one| one.announcement.id == id) {
            #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
            let gain = gain.amplitude() as f32;
            (one.announcement.gain, one.waits_for_gain) = (gain, false);
        }
    }

    /// Ends an announcement, whether it is heard or waits. One that is not there has ended already.
    pub fn cancel(&mut self, id: u64) {
        if let Some(at) = self.queued.iter().position(|one| one.announcement.id == id) {
            self.queued.remove(at);
            self.events.push_back(QueueEvent::Ended(id, EndReason::Cancelled));
        }
        let mut inside = self.in_mixer.iter_mut();
        if let Some(one) =
            inside.find(|one| one.id == id && one.cancel == CancelState::NotRequested)
        {
            one.cancel = CancelState::Requested;
        }
        self.send_cancels();
    }

    /// Makes the next one ready, hands it over, and hears from the booth. To be called about ten
    /// times a second.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.receive_reports();
        self.send_cancels();
        while self.in_mixer.len() < MAX_IN_MIXER
            && let Some(mut head) = self.queued.pop_front()
        {
            let since = *head.first_since.get_or_insert(now);
            if head.waits_for_gain && now.since(since) <= MAX_START_WAIT {
                self.queued.push_front(head);
                break;
            }
            head.announcement.input.refill(now);
            let id = head.announcement.id;
            let facts = head.announcement.input.facts();
            if facts.buffered > Span::ZERO {
                if let Err(MixerCommand::Play(announcement)) =
                    self.commands.push(MixerCommand::Play(head.announcement))
                {
                    // The station has not looked for a while.
                    let head = QueuedAnnouncement {
                        announcement,
                        first_since: Some(since),
                        waits_for_gain: false,
                    };
                    self.queued.push_front(head);
                    break;
                }
                self.in_mixer
                    .push_back(ActiveAnnouncement { id, cancel: CancelState::NotRequested });
            } else if facts.ended || now.since(since) > MAX_START_WAIT {
                self.events.push_back(QueueEvent::Ended(id, EndReason::NoSound));
            } else {
                self.queued.push_front(head);
                break;
            }
        }
    }

    /// What has happened, in its order.
    pub fn poll_event(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    /// Those that have not ended, in the order in which they are heard.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        let inside = self.in_mixer.iter().map(|one| one.id);
        inside.chain(self.queued.iter().map(|one| one.announcement.id))
    }

    fn receive_reports(&mut self) {
        while let Some(news) = self.reports.pop() {
            match news {
                MixerReport::Began(id) => self.events.push_back(QueueEvent::Began(id)),
                MixerReport::Ended(announcement, cause) => {
                    self.in_mixer.retain(|one| one.id != announcement.id);
                    self.events.push_back(QueueEvent::Ended(announcement.id, cause));
                }
            }
        }
    }

    fn send_cancels(&mut self) {
        for one in self.in_mixer.iter_mut().filter(|one| one.cancel == CancelState::Requested) {
            if self.commands.push(MixerCommand::Cancel(one.id)).is_ok() {
                one.cancel = CancelState::Sent;
            }
        }
    }
}

/// The station's half.
#[derive(Debug)]
pub struct AnnouncementMixer {
    rate: SampleRate,
    commands: Consumer<MixerCommand>,
    reports: Producer<MixerReport>,
    /// The gain of the programme.
    duck: GainRamp,
    stage: MixerState,
    /// Never more than [`IN_BOOTH`].
    next: VecDeque<Box<Announcement>>,
}

#[derive(Debug)]
enum MixerCommand {
    Play(Box<Announcement>),
    Cancel(u64),
}

#[derive(Debug)]
enum MixerReport {
    Began(u64),
    /// It comes back to be freed.
    Ended(Box<Announcement>, EndReason),
}

#[derive(Debug)]
enum MixerState {
    /// Nobody speaks: the programme is up, or on its way there.
    Idle,
    /// The programme is on its way down.
    Ducking(Box<Announcement>),
    /// Somebody speaks.
    Playing(Box<Announcement>),
    /// The voice is on its way out.
    FadingOut(Box<Announcement>, GainRamp, EndReason),
}

impl AnnouncementMixer {
    /// Lays what is said over `programme`, one quantum or less, interleaved.
    ///
    /// While nothing is said and nothing was said just now, the programme is not touched.
    ///
    /// # Real-time
    /// Does not allocate, unless an announcement changes its sample rate in its middle.
    pub(crate) fn mix(&mut self, now: Instant, programme: &mut [f32], channels: usize) {
        while let Some(order) = self.commands.pop() {
            match order {
                MixerCommand::Play(announcement) => self.next.push_back(announcement),
                MixerCommand::Cancel(id) => self.cancel(id),
            }
        }
        if matches!(self.stage, MixerState::Idle) && self.next.is_empty() && self.duck.is_unity() {
            return;
        }
        let mut done = 0;
        while done < programme.len() {
            done += self.step(now, &mut programme[done..], channels);
        }
    }

    /// Does what comes first, and says how many samples that was.
    fn step(&mut self, now: Instant, rest: &mut [f32], channels: usize) -> usize {
        match core::mem::replace(&mut self.stage, MixerState::Idle) {
            MixerState::Idle => match self.next.pop_front() {
                Some(announcement) => {
                    self.duck.ramp_to(announcement.duck, self.rate.frames(DUCK_TIME));
                    self.report(MixerReport::Began(announcement.id));
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
                mix_in(&announcement.scratch[..count], announcement.gain(), rest);
                match over {
                    None => self.stage = MixerState::Playing(announcement),
                    Some(EndReason::TooLong) => {
                        self.begin_fade_out(announcement, EndReason::TooLong)
                    }
                    Some(cause) => self.end(announcement, cause),
                }
                count
            }
            MixerState::FadingOut(mut announcement, mut ramp, cause) => {
                let way = ramp.remaining().as_usize() * channels;
                let (count, over) = announcement.render(now, way.min(rest.len()), channels);
                let gain = announcement.gain();
                let voice = &mut announcement.scratch[..count];
                ramp.apply(voice, channels);
                self.duck.apply(&mut rest[..count], channels);
                mix_in(voice, gain, rest);
                let over = count == way || over.is_some_and(|over| over != EndReason::TooLong);
                if over {
                    self.end(announcement, cause);
                } else {
                    self.stage = MixerState::FadingOut(announcement, ramp, cause);
                }
                count
            }
        }
    }

    fn cancel(&mut self, id: u64) {
        let at = self.next.iter().position(|next| next.id == id);
        if let Some(next) = at.and_then(|at| self.next.remove(at)) {
            self.report(MixerReport::Ended(next, EndReason::Cancelled));
        }
        match core::mem::replace(&mut self.stage, MixerState::Idle) {
            MixerState::Ducking(announcement) if announcement.id == id => {
                self.end(announcement, EndReason::Cancelled);
            }
            MixerState::Playing(announcement) if announcement.id == id => {
                self.begin_fade_out(announcement, EndReason::Cancelled);
            }
            other => self.stage = other,
        }
    }

    fn begin_fade_out(&mut self, announcement: Box<Announcement>, cause: EndReason) {
        let mut ramp = GainRamp::at(1.0);
        ramp.ramp_to(0.0, self.rate.frames(FADE_OUT_TIME));
        self.stage = MixerState::FadingOut(announcement, ramp, cause);
    }

    /// The programme comes up, or stays down for the next one.
    fn end(&mut self, announcement: Box<Announcement>, cause: EndReason) {
        if self.next.is_empty() {
            self.duck.ramp_to(1.0, self.rate.frames(DUCK_TIME));
        }
        self.stage = MixerState::Idle;
        self.report(MixerReport::Ended(announcement, cause));
    }

    fn report(&mut self, news: MixerReport) {
        // There is room for the begin and the end of each that the desk has handed over.
        drop(self.reports.push(news));
    }
}

/// Something that is said, ready to be heard.
#[derive(Debug)]
struct Announcement {
    id: u64,
    input: Input,
    /// The gain of the programme while it is heard.
    duck: f32,
    /// Its own gain, but for what it gives away to the programme.
    gain: f32,
    /// What it may still take.
    remaining: Frames,
    /// How long nothing has come.
    stalled: Frames,
    /// And how long that may be.
    max_stall: Frames,
    /// A quantum of it.
    scratch: Vec<f32>,
}

impl Announcement {
    /// The gain that it is laid over the programme with.
    const fn gain(&self) -> f32 {
        (1.0 - self.duck) * self.gain
    }

    /// Puts up to `wanted` samples into the scratch; how many those are, and whether it is over
    /// behind them.
    fn render(
        &mut self,
        now: Instant,
        wanted: usize,
        channels: usize,
    ) -> (usize, Option<EndReason>) {
        let out = &mut self.scratch[..wanted];
        let frames = wanted / channels;
        let mut said = 0;
        // A quantum may be longer than what an input holds of a file.
        loop {
            self.input.refill(now);
            let read = self.input.read(now, &mut out[said * channels..]);
            said += read.frames;
            if said == frames {
                break;
            }
            if !read.starved {
                return (said * channels, Some(EndReason::Played));
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
            Some(EndReason::NoSound)
        } else if self.remaining == Frames::ZERO {
            Some(EndReason::TooLong)
        } else {
            None
        };
        (wanted, over)
    }
}

/// The gain that brings an announcement to the loudness of a programme that is normalized to
/// `target` with the true peak `ceiling`, while that is lowered by `duck`: what the announcement gives
/// away to the lowered programme is made up for. At most [`MAX_MATCHING_GAIN`] both ways, and not so much
/// that the limiter behind the announcements had to take more than [`MAX_LIMITED`] off its peaks.
///
/// An announcement that has no integrated loudness, as one shorter than 400 ms, stays as it is.
#[must_use]
pub fn matching_gain(loudness: &Loudness, target: Lufs, ceiling: Db, duck: Db) -> Db {
    let Some(integrated) = loudness.integrated else { return Db::ZERO };
    let given_away = 20.0 * (1.0 - duck.amplitude()).log10();
    let gain = target.get() - integrated.get() - given_away;
    let peak = loudness.true_peak.map_or(f64::NEG_INFINITY, Db::get) + given_away;
    let room = ceiling.get() + MAX_LIMITER_REDUCTION.get() - peak;
    let most = MAX_MATCHING_GAIN.get();
    Db::new(gain.min(room).clamp(-most, most))
}

/// What [`matching_gain`] changes an announcement by at most: more would lift the noise of a bad
/// recording, or hide one that is broken.
pub const MAX_MATCHING_GAIN: Db = Db::new(20.0);
/// What a limiter takes off the peaks of speech without being heard as distortion.
pub const MAX_LIMITER_REDUCTION: Db = Db::new(6.0);
/// The gain that an announcement has at most, the one that is asked for included.
pub const MAX_ANNOUNCEMENT_GAIN: Db = Db::new(40.0);

/// The most and the least that a programme is lowered by. Above the least there would be no room
/// for a voice beside it.
pub const MAX_DUCK: Db = Db::new(-60.0);
/// See [`MAX_DUCK`].
pub const MIN_DUCK: Db = Db::new(-6.0);
/// What it is lowered by unless somebody says otherwise: music stays there as music, and speech is
/// understood.
pub const DEFAULT_DUCK: Db = Db::new(-15.0);

/// The one that speaks and the one that waits beside it.
const MAX_IN_MIXER: usize = 2;
