//! The control thread's half of announcements: a queue of those of one station or overlay.

use core::fmt;
use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Db, Frames, Instant, SampleRate, Span};
use aulos_dsp::Limiter;

use super::event::{AnnouncementEnd, QueueEvent, QueueFull};
use super::layer::{Ducking, Layer};
use super::limits::{
    MAX_ANNOUNCEMENT_GAIN, MAX_IN_MIXER, MAX_LENGTH, MAX_QUEUE, MAX_RELEASE, MAX_STALL,
    MAX_START_WAIT, PLAYING_AND_NEXT,
};
use super::matching::headroom;
use super::mixer::{Announcement, AnnouncementPart, MixerReport};
use super::priority::Priority;
use crate::input::{Input, InputConfig};
use crate::source::Source;

/// How an announcement is played.
#[allow(clippy::exhaustive_structs, reason = "it is there to be filled in")]
pub struct AnnouncementConfig {
    /// What it does to the programme.
    pub ducking: Ducking,
    /// Which others it interrupts.
    pub priority: Priority,
    /// A sound before it, such as a chime; finite and paced on demand. Without any audio of its
    /// own it is left out.
    pub lead: Option<Box<dyn Source>>,
}

impl fmt::Debug for AnnouncementConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("AnnouncementConfig");
        debug.field("ducking", &self.ducking).field("priority", &self.priority);
        debug.finish_non_exhaustive()
    }
}

/// A part of an announcement, with a gain of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "an announcement has no other parts")]
pub enum SoundPart {
    /// The sound before it.
    Lead,
    /// The announcement itself.
    Main,
}

/// The control thread's half, which decides what plays next: not for a real-time thread.
#[derive(Debug)]
pub struct AnnouncementQueue {
    layer: Layer,
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
    /// The peak of programme and announcement together, where no limiter follows the mixer.
    ceiling: Option<Db>,
    /// When the next announcement may start; `None` until that is known.
    starts_at: Option<Instant>,
    queued: VecDeque<QueuedAnnouncement>,
    in_mixer: VecDeque<(u64, Priority)>,
    events: VecDeque<QueueEvent>,
}

#[derive(Debug)]
struct QueuedAnnouncement {
    announcement: Box<Announcement>,
    /// Time at which it became the first in the queue.
    first_since: Option<Instant>,
    /// Parts whose gain is not known yet.
    waits_for: Vec<SoundPart>,
}

/// How far the sound of a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    HasAudio,
    Waits,
    /// It has ended without any.
    Empty,
}

impl QueuedAnnouncement {
    /// The index of a part.
    fn index(&self, part: SoundPart) -> Option<usize> {
        match part {
            SoundPart::Main => self.announcement.parts.len().checked_sub(1),
            SoundPart::Lead => (self.announcement.parts.len() > 1).then_some(0),
        }
    }

    /// Removes the lead.
    fn remove_lead(&mut self) {
        if let Some(at) = self.index(SoundPart::Lead) {
            self.announcement.parts.remove(at);
        }
        self.waits_for.retain(|part| *part != SoundPart::Lead);
    }

    /// Fills the input of a part, and tells how far it is.
    fn prepare(&mut self, part: SoundPart, now: Instant) -> Option<Readiness> {
        let at = self.index(part)?;
        let AnnouncementPart { input, .. } = self.announcement.parts.get_mut(at)?;
        input.refill(now);
        Some(if input.remaining() > Span::ZERO {
            Readiness::HasAudio
        } else if input.facts().ended {
            Readiness::Empty
        } else {
            Readiness::Waits
        })
    }
}

impl AnnouncementQueue {
    /// An empty queue of a layer, for a station of this rate, layout and quantum.
    pub(crate) const fn new(
        layer: Layer,
        rate: SampleRate,
        layout: ChannelLayout,
        quantum: Frames,
    ) -> Self {
        Self {
            layer,
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

    /// Appends an announcement without a lead, of the default priority; see
    /// [`AnnouncementQueue::add_with`].
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn add(
        &mut self,
        id: u64,
        source: Box<dyn Source>,
        ducking: Ducking,
    ) -> Result<(), QueueFull> {
        let priority = Priority::DEFAULT;
        self.add_with(id, source, AnnouncementConfig { ducking, priority, lead: None })
    }

    /// Whether one more announcement of this priority finds a place.
    #[must_use]
    pub fn has_room(&self, priority: Priority) -> bool {
        let is_lower = |last: &QueuedAnnouncement| last.announcement.priority < priority;
        self.queued.len() + self.in_mixer.len() < MAX_QUEUE
            || self.queued.back().is_some_and(is_lower)
    }

    /// Places an announcement behind those of its priority. In a full queue the last one of a lower
    /// priority gives way. The source must be finite and paced on demand
    /// ([`Pacing::OnDemand`](crate::source::Pacing::OnDemand)).
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn add_with(
        &mut self,
        id: u64,
        source: Box<dyn Source>,
        config: AnnouncementConfig,
    ) -> Result<(), QueueFull> {
        let AnnouncementConfig { ducking, priority, lead } = config;
        if !self.has_room(priority) {
            return Err(QueueFull);
        }
        if self.queued.len() + self.in_mixer.len() >= MAX_QUEUE
            && let Some(last) = self.queued.pop_back()
        {
            let ended = QueueEvent::Ended(last.announcement.id, AnnouncementEnd::Interrupted);
            self.events.push_back(ended);
        }
        // An announcement is not delayed; decoded audio waits in the source's ring.
        let config = InputConfig { buffer: Span::ZERO, ..InputConfig::default() };
        let duck = self.layer.duck(ducking.gain);
        let limiter = self.ceiling.map(|ceiling| {
            let ceiling = Db::new(ceiling.get() + headroom(duck).get());
            Limiter::new(self.rate, self.layout, ceiling)
        });
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        let duck = duck.amplitude() as f32;
        let samples = self.quantum.as_usize() * self.layout.channels();
        let (rate, layout) = (self.rate, self.layout);
        let part = |source| AnnouncementPart {
            input: Input::new(source, rate, layout, config),
            gain: 1.0,
        };
        let announcement = Box::new(Announcement {
            id,
            layer: self.layer,
            priority,
            parts: lead.into_iter().chain([source]).map(part).collect(),
            current: 0,
            duck,
            release: self.rate.frames(ducking.release.clamp(Span::ZERO, MAX_RELEASE)),
            remaining: match self.layer {
                Layer::Play => Frames(u64::MAX),
                Layer::Announcement => self.rate.frames(MAX_LENGTH),
            },
            stalled: Frames::ZERO,
            tail: limiter.as_ref().map_or(Frames::ZERO, Limiter::latency),
            limiter,
            max_stall: self.rate.frames(MAX_STALL),
            scratch: vec![0.0; samples],
        });
        let is_lower = |one: &QueuedAnnouncement| one.announcement.priority < priority;
        let at = self.queued.iter().position(is_lower).unwrap_or(self.queued.len());
        // Their wait for the first audio begins when they are first again.
        self.queued.iter_mut().skip(at).for_each(|one| one.first_since = None);
        let waits_for = Vec::new();
        self.queued.insert(at, QueuedAnnouncement { announcement, first_since: None, waits_for });
        Ok(())
    }

    /// Leaves out the lead of a queued announcement, because it cannot be played.
    pub fn remove_lead(&mut self, id: u64) {
        if let Some(one) = self.queued.iter_mut().find(|one| one.announcement.id == id) {
            one.remove_lead();
        }
    }

    /// Holds a queued announcement back until the gain of a part is set. Once it is first in the
    /// queue, it waits for [`MAX_START_WAIT`] at most.
    pub fn hold(&mut self, id: u64, part: SoundPart) {
        if let Some(one) = self.queued.iter_mut().find(|one| one.announcement.id == id) {
            one.waits_for.push(part);
        }
    }

    /// Sets the gain of a queued announcement without a lead; see
    /// [`AnnouncementQueue::set_part_gain`].
    pub fn set_gain(&mut self, id: u64, gain: Db) {
        self.set_part_gain(id, SoundPart::Main, gain);
    }

    /// Sets the gain of a part of a queued announcement, clamped to plus or minus
    /// [`MAX_ANNOUNCEMENT_GAIN`], and releases what was held back for it.
    pub fn set_part_gain(&mut self, id: u64, part: SoundPart, gain: Db) {
        let most = MAX_ANNOUNCEMENT_GAIN.get();
        let gain = Db::new(gain.get().clamp(-most, most));
        if let Some(one) = self.queued.iter_mut().find(|one| one.announcement.id == id) {
            #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
            let gain = gain.amplitude() as f32;
            one.waits_for.retain(|other| *other != part);
            let at = one.index(part);
            if let Some(part) = at.and_then(|at| one.announcement.parts.get_mut(at)) {
                part.gain = gain;
            }
        }
    }

    /// Cancels an announcement. Returns whether the mixer has it, so that the mixer has to cancel
    /// it.
    pub(crate) fn cancel(&mut self, id: u64) -> bool {
        if let Some(at) = self.queued.iter().position(|one| one.announcement.id == id) {
            self.queued.remove(at);
            self.events.push_back(QueueEvent::Ended(id, AnnouncementEnd::Cancelled));
        }
        self.in_mixer.iter().any(|(own, _)| *own == id)
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
        while let Some(mut head) = self.queued.pop_front() {
            let Announcement { id, priority, .. } = *head.announcement;
            if !self.mixer_takes(priority) {
                self.queued.push_front(head);
                return None;
            }
            let since = *head.first_since.get_or_insert(now);
            let is_late = now.since(since) > MAX_START_WAIT;
            let lead = head.prepare(SoundPart::Lead, now);
            if lead == Some(Readiness::Empty) || (is_late && lead == Some(Readiness::Waits)) {
                head.remove_lead();
            }
            let waits = !head.waits_for.is_empty() || lead == Some(Readiness::Waits);
            match head.prepare(SoundPart::Main, now) {
                Some(Readiness::HasAudio) if is_late || !waits => {
                    self.in_mixer.push_back((id, priority));
                    return Some(head.announcement);
                }
                Some(Readiness::HasAudio | Readiness::Waits) if !is_late => {
                    self.queued.push_front(head);
                    return None;
                }
                _ => self.events.push_back(QueueEvent::Ended(id, AnnouncementEnd::NoSound)),
            }
        }
        None
    }

    /// Whether the mixer takes one of this priority: the next one, and any that goes before one
    /// that it has. If that had to wait here, it would interrupt the lower one a moment later.
    fn mixer_takes(&self, priority: Priority) -> bool {
        let count = self.in_mixer.len();
        let is_above = || self.in_mixer.iter().any(|(_, other)| *other < priority);
        count < PLAYING_AND_NEXT || (count < MAX_IN_MIXER && is_above())
    }

    /// Handles a report of the mixer, and frees an announcement that has ended.
    pub(crate) fn handle_report(&mut self, report: MixerReport) {
        self.events.push_back(match report {
            MixerReport::Began(id) => QueueEvent::Began(id),
            MixerReport::Ended(announcement, cause) => {
                self.in_mixer.retain(|(id, _)| *id != announcement.id);
                QueueEvent::Ended(announcement.id, cause)
            }
        });
    }

    /// Whether the mixer has the announcement of this report.
    pub(crate) fn owns(&self, report: &MixerReport) -> bool {
        self.in_mixer.iter().any(|(id, _)| *id == report.id())
    }

    /// The next event, in order of occurrence.
    pub(crate) fn poll_event(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    /// The announcements that have not ended, in the order of playback.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        let queued = self.queued.iter().map(|one| one.announcement.id);
        self.in_mixer.iter().map(|(id, _)| *id).chain(queued)
    }
}
