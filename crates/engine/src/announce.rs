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
use aulos_dsp::{Ramp, add};
use aulos_rt::ring::{Consumer, Producer, ring};

use crate::input::{self, Input};
use crate::loudness::Loudness;
use crate::source::Source;

/// Announcements that may wait for one station, the one that is heard included.
pub const MAX_QUEUE: usize = 8;
/// The longest announcement; what is longer is faded out there.
pub const MAX_LENGTH: Span = Span::from_secs(120);
/// How long the programme takes to go down, and to come up again.
pub const DUCK: Span = Span::from_millis(200);
/// How long an announcement that is to end takes to do so.
pub const LEAVE: Span = Span::from_millis(50);
/// How long the first sound of an announcement may take to come once it is its turn.
pub const MAX_WAIT: Span = Span::from_secs(5);
/// How long an announcement may stop in its middle.
pub const MAX_STALL: Span = Span::from_secs(2);

/// What happens to an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The programme goes down for it.
    Began(u64),
    /// It is over, and why.
    Ended(u64, Cause),
}

/// Why an announcement is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
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
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAX_QUEUE} announcements wait already")
    }
}

impl core::error::Error for Full {}

/// The two halves for a station of this rate, layout and quantum.
#[must_use]
pub fn desk(rate: SampleRate, layout: ChannelLayout, quantum: Frames) -> (Desk, Booth) {
    let (orders, told) = ring(2 * IN_BOOTH);
    // Each of those in the booth begins and ends once before the desk hands over another.
    let (news, heard) = ring(2 * IN_BOOTH);
    let desk = Desk {
        rate,
        layout,
        quantum,
        waiting: VecDeque::new(),
        inside: VecDeque::new(),
        orders,
        news: heard,
        events: VecDeque::new(),
    };
    let (duck, stage) = (Ramp::at(1.0), Stage::Quiet);
    let next = VecDeque::with_capacity(IN_BOOTH);
    (desk, Booth { rate, orders: told, news, duck, stage, next })
}

/// Control's half: not for a real-time thread.
#[derive(Debug)]
pub struct Desk {
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
    waiting: VecDeque<Waiting>,
    inside: VecDeque<Inside>,
    orders: Producer<Order>,
    news: Consumer<News>,
    events: VecDeque<Event>,
}

#[derive(Debug)]
struct Waiting {
    announcement: Box<Announcement>,
    /// Since when it is the next one.
    head_since: Option<Instant>,
    /// It waits for its gain.
    held: bool,
}

#[derive(Debug)]
struct Inside {
    id: u64,
    cancel: Cancel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    Wanted,
    Told,
}

impl Desk {
    /// Puts an announcement at the end of the queue; `duck` is what the programme is lowered by,
    /// clamped to [`MIN_DUCK`] and [`MAX_DUCK`]. The source is one that gives when it is asked
    /// ([`Pacing::OnDemand`](crate::source::Pacing::OnDemand)), and ends.
    ///
    /// # Errors
    /// [`Full`].
    pub fn announce(&mut self, id: u64, source: Box<dyn Source>, duck: Db) -> Result<(), Full> {
        if self.waiting.len() + self.inside.len() >= MAX_QUEUE {
            return Err(Full);
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
            left: self.rate.frames(MAX_LENGTH),
            stalled: Frames::ZERO,
            patience: self.rate.frames(MAX_STALL),
            scratch: vec![0.0; samples],
        });
        self.waiting.push_back(Waiting { announcement, head_since: None, held: false });
        Ok(())
    }

    /// Lets an announcement that waits go on waiting until it has its gain; once it is its turn, for
    /// [`MAX_WAIT`] at most.
    pub fn hold(&mut self, id: u64) {
        if let Some(one) = self.waiting.iter_mut().find(|one| one.announcement.id == id) {
            one.held = true;
        }
    }

    /// Gives an announcement that waits its gain, clamped to [`MAX_ANNOUNCEMENT_GAIN`] both ways; one
    /// that was held is held no longer.
    pub fn set_gain(&mut self, id: u64, gain: Db) {
        let most = MAX_ANNOUNCEMENT_GAIN.get();
        let gain = Db::new(gain.get().clamp(-most, most));
        if let Some(one) = self.waiting.iter_mut().find(|one| one.announcement.id == id) {
            #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
            let gain = gain.amplitude() as f32;
            (one.announcement.gain, one.held) = (gain, false);
        }
    }

    /// Ends an announcement, whether it is heard or waits. One that is not there has ended already.
    pub fn cancel(&mut self, id: u64) {
        if let Some(at) = self.waiting.iter().position(|one| one.announcement.id == id) {
            self.waiting.remove(at);
            self.events.push_back(Event::Ended(id, Cause::Cancelled));
        }
        let mut inside = self.inside.iter_mut();
        if let Some(one) = inside.find(|one| one.id == id && one.cancel == Cancel::No) {
            one.cancel = Cancel::Wanted;
        }
        self.tell_cancels();
    }

    /// Makes the next one ready, hands it over, and hears from the booth. To be called about ten
    /// times a second.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.hear();
        self.tell_cancels();
        while self.inside.len() < IN_BOOTH
            && let Some(mut head) = self.waiting.pop_front()
        {
            let since = *head.head_since.get_or_insert(now);
            if head.held && now.since(since) <= MAX_WAIT {
                self.waiting.push_front(head);
                break;
            }
            head.announcement.input.refill(now);
            let id = head.announcement.id;
            let facts = head.announcement.input.facts();
            if facts.buffered > Span::ZERO {
                if let Err(Order::Speak(announcement)) =
                    self.orders.push(Order::Speak(head.announcement))
                {
                    // The station has not looked for a while.
                    let head = Waiting { announcement, head_since: Some(since), held: false };
                    self.waiting.push_front(head);
                    break;
                }
                self.inside.push_back(Inside { id, cancel: Cancel::No });
            } else if facts.ended || now.since(since) > MAX_WAIT {
                self.events.push_back(Event::Ended(id, Cause::NoSound));
            } else {
                self.waiting.push_front(head);
                break;
            }
        }
    }

    /// What has happened, in its order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Those that have not ended, in the order in which they are heard.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        let inside = self.inside.iter().map(|one| one.id);
        inside.chain(self.waiting.iter().map(|one| one.announcement.id))
    }

    fn hear(&mut self) {
        while let Some(news) = self.news.pop() {
            match news {
                News::Began(id) => self.events.push_back(Event::Began(id)),
                News::Ended(announcement, cause) => {
                    self.inside.retain(|one| one.id != announcement.id);
                    self.events.push_back(Event::Ended(announcement.id, cause));
                }
            }
        }
    }

    fn tell_cancels(&mut self) {
        for one in self.inside.iter_mut().filter(|one| one.cancel == Cancel::Wanted) {
            if self.orders.push(Order::Cancel(one.id)).is_ok() {
                one.cancel = Cancel::Told;
            }
        }
    }
}

/// The station's half.
#[derive(Debug)]
pub struct Booth {
    rate: SampleRate,
    orders: Consumer<Order>,
    news: Producer<News>,
    /// The gain of the programme.
    duck: Ramp,
    stage: Stage,
    /// Never more than [`IN_BOOTH`].
    next: VecDeque<Box<Announcement>>,
}

#[derive(Debug)]
enum Order {
    Speak(Box<Announcement>),
    Cancel(u64),
}

#[derive(Debug)]
enum News {
    Began(u64),
    /// It comes back to be freed.
    Ended(Box<Announcement>, Cause),
}

#[derive(Debug)]
enum Stage {
    /// Nobody speaks: the programme is up, or on its way there.
    Quiet,
    /// The programme is on its way down.
    Ducking(Box<Announcement>),
    /// Somebody speaks.
    Speaking(Box<Announcement>),
    /// The voice is on its way out.
    Leaving(Box<Announcement>, Ramp, Cause),
}

impl Booth {
    /// Lays what is said over `programme`, one quantum or less, interleaved.
    ///
    /// While nothing is said and nothing was said just now, the programme is not touched.
    ///
    /// # Real-time
    /// Does not allocate, unless an announcement changes its sample rate in its middle.
    pub(crate) fn mix(&mut self, now: Instant, programme: &mut [f32], channels: usize) {
        while let Some(order) = self.orders.pop() {
            match order {
                Order::Speak(announcement) => self.next.push_back(announcement),
                Order::Cancel(id) => self.cancel(id),
            }
        }
        if matches!(self.stage, Stage::Quiet) && self.next.is_empty() && self.duck.is_open() {
            return;
        }
        let mut done = 0;
        while done < programme.len() {
            done += self.step(now, &mut programme[done..], channels);
        }
    }

    /// Does what comes first, and says how many samples that was.
    fn step(&mut self, now: Instant, rest: &mut [f32], channels: usize) -> usize {
        match core::mem::replace(&mut self.stage, Stage::Quiet) {
            Stage::Quiet => match self.next.pop_front() {
                Some(announcement) => {
                    self.duck.go_to(announcement.duck, self.rate.frames(DUCK));
                    self.tell(News::Began(announcement.id));
                    self.stage = Stage::Ducking(announcement);
                    0
                }
                None => {
                    self.duck.apply(rest, channels);
                    rest.len()
                }
            },
            Stage::Ducking(announcement) => {
                let way = self.duck.remaining().as_usize() * channels;
                let count = way.min(rest.len());
                self.duck.apply(&mut rest[..count], channels);
                self.stage = if count == way {
                    Stage::Speaking(announcement)
                } else {
                    Stage::Ducking(announcement)
                };
                count
            }
            Stage::Speaking(mut announcement) => {
                let (count, over) = announcement.say(now, rest.len(), channels);
                self.duck.apply(&mut rest[..count], channels);
                add(&announcement.scratch[..count], announcement.gain(), rest);
                match over {
                    None => self.stage = Stage::Speaking(announcement),
                    Some(Cause::TooLong) => self.leave(announcement, Cause::TooLong),
                    Some(cause) => self.end(announcement, cause),
                }
                count
            }
            Stage::Leaving(mut announcement, mut ramp, cause) => {
                let way = ramp.remaining().as_usize() * channels;
                let (count, over) = announcement.say(now, way.min(rest.len()), channels);
                let gain = announcement.gain();
                let voice = &mut announcement.scratch[..count];
                ramp.apply(voice, channels);
                self.duck.apply(&mut rest[..count], channels);
                add(voice, gain, rest);
                let over = count == way || over.is_some_and(|over| over != Cause::TooLong);
                if over {
                    self.end(announcement, cause);
                } else {
                    self.stage = Stage::Leaving(announcement, ramp, cause);
                }
                count
            }
        }
    }

    fn cancel(&mut self, id: u64) {
        let at = self.next.iter().position(|next| next.id == id);
        if let Some(next) = at.and_then(|at| self.next.remove(at)) {
            self.tell(News::Ended(next, Cause::Cancelled));
        }
        match core::mem::replace(&mut self.stage, Stage::Quiet) {
            Stage::Ducking(announcement) if announcement.id == id => {
                self.end(announcement, Cause::Cancelled);
            }
            Stage::Speaking(announcement) if announcement.id == id => {
                self.leave(announcement, Cause::Cancelled);
            }
            other => self.stage = other,
        }
    }

    fn leave(&mut self, announcement: Box<Announcement>, cause: Cause) {
        let mut ramp = Ramp::at(1.0);
        ramp.go_to(0.0, self.rate.frames(LEAVE));
        self.stage = Stage::Leaving(announcement, ramp, cause);
    }

    /// The programme comes up, or stays down for the next one.
    fn end(&mut self, announcement: Box<Announcement>, cause: Cause) {
        if self.next.is_empty() {
            self.duck.go_to(1.0, self.rate.frames(DUCK));
        }
        self.stage = Stage::Quiet;
        self.tell(News::Ended(announcement, cause));
    }

    fn tell(&mut self, news: News) {
        // There is room for the begin and the end of each that the desk has handed over.
        drop(self.news.push(news));
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
    left: Frames,
    /// How long nothing has come.
    stalled: Frames,
    /// And how long that may be.
    patience: Frames,
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
    fn say(&mut self, now: Instant, wanted: usize, channels: usize) -> (usize, Option<Cause>) {
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
                return (said * channels, Some(Cause::Played));
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
        self.left -= Frames::from(frames).min(self.left);
        let over = if self.stalled > self.patience {
            Some(Cause::NoSound)
        } else if self.left == Frames::ZERO {
            Some(Cause::TooLong)
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
    let room = ceiling.get() + MAX_LIMITED.get() - peak;
    let most = MAX_MATCHING_GAIN.get();
    Db::new(gain.min(room).clamp(-most, most))
}

/// What [`matching_gain`] changes an announcement by at most: more would lift the noise of a bad
/// recording, or hide one that is broken.
pub const MAX_MATCHING_GAIN: Db = Db::new(20.0);
/// What a limiter takes off the peaks of speech without being heard as distortion.
pub const MAX_LIMITED: Db = Db::new(6.0);
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
const IN_BOOTH: usize = 2;
