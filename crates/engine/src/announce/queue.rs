//! The control thread's half of announcements: a queue of those of one station or overlay.

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Db, Frames, Instant, SampleRate, Span};
use aulos_dsp::Limiter;

use super::event::{AnnouncementEnd, QueueEvent, QueueFull};
use super::layer::{Ducking, Layer};
use super::limits::{
    MAX_ANNOUNCEMENT_GAIN, MAX_IN_MIXER, MAX_LENGTH, MAX_QUEUE, MAX_RELEASE, MAX_STALL,
    MAX_START_WAIT,
};
use super::matching::headroom;
use super::mixer::{Announcement, MixerReport};
use crate::input::{Input, InputConfig};
use crate::source::Source;

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
        let duck = self.layer.duck(ducking.gain);
        let limiter = self.ceiling.map(|ceiling| {
            let ceiling = Db::new(ceiling.get() + headroom(duck).get());
            Limiter::new(self.rate, self.layout, ceiling)
        });
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        let duck = duck.amplitude() as f32;
        let samples = self.quantum.as_usize() * self.layout.channels();
        let announcement = Box::new(Announcement {
            id,
            layer: self.layer,
            input: Input::new(source, self.rate, self.layout, config),
            duck,
            release: self.rate.frames(ducking.release.clamp(Span::ZERO, MAX_RELEASE)),
            gain: 1.0,
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
            if head.announcement.input.remaining() > Span::ZERO {
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
