//! The two layers of sounds of a station or an overlay: a play takes the place of the programme,
//! and announcements go over what is there then. Each layer has a queue and a mixer of its own, so
//! that an announcement does not wait for the end of a play, and ducks it as it ducks the programme.

use aulos_core::{ChannelLayout, Db, Frames, Instant, SampleRate};

use super::event::AnnouncementEnd;
use super::layer::Layer;
use super::mixer::{Announcement, AnnouncementMixer, MixerReport};
use super::queue::AnnouncementQueue;

/// The queues of both layers.
#[derive(Debug)]
pub(crate) struct LayerQueues {
    plays: AnnouncementQueue,
    announcements: AnnouncementQueue,
}

impl LayerQueues {
    pub(crate) const fn new(rate: SampleRate, layout: ChannelLayout, quantum: Frames) -> Self {
        Self {
            plays: AnnouncementQueue::new(Layer::Play, rate, layout, quantum),
            announcements: AnnouncementQueue::new(Layer::Announcement, rate, layout, quantum),
        }
    }

    pub(crate) const fn limit_to(&mut self, ceiling: Db) {
        self.plays.limit_to(ceiling);
        self.announcements.limit_to(ceiling);
    }

    pub(crate) const fn of(&mut self, layer: Layer) -> &mut AnnouncementQueue {
        match layer {
            Layer::Play => &mut self.plays,
            Layer::Announcement => &mut self.announcements,
        }
    }

    pub(crate) const fn each(&mut self) -> [&mut AnnouncementQueue; 2] {
        [&mut self.plays, &mut self.announcements]
    }
}

/// The mixers of both layers.
#[derive(Debug)]
pub(crate) struct LayerMixer {
    plays: AnnouncementMixer,
    announcements: AnnouncementMixer,
}

impl LayerMixer {
    pub(crate) fn new(rate: SampleRate) -> Self {
        Self { plays: AnnouncementMixer::new(rate), announcements: AnnouncementMixer::new(rate) }
    }

    /// Takes a sound of either layer. A play ends those before it.
    pub(crate) fn play(
        &mut self,
        announcement: Box<Announcement>,
        report: &mut impl FnMut(MixerReport),
    ) {
        match announcement.layer() {
            Layer::Play => {
                self.plays.play(announcement, report);
                self.plays.end_older(AnnouncementEnd::Replaced, report);
            }
            Layer::Announcement => self.announcements.play(announcement, report),
        }
    }

    /// Cancels a sound; one that plays is faded out.
    pub(crate) fn cancel(&mut self, id: u64, report: &mut impl FnMut(MixerReport)) {
        self.plays.cancel(id, report);
        self.announcements.cancel(id, report);
    }

    /// Ends every sound at once, without a fade.
    pub(crate) fn end_all(&mut self, report: &mut impl FnMut(MixerReport)) {
        self.plays.end_all(report);
        self.announcements.end_all(report);
    }

    /// See [`AnnouncementMixer::mix`].
    ///
    /// # Real-time
    /// As there.
    pub(crate) fn mix(
        &mut self,
        now: Instant,
        programme: &mut [f32],
        channels: usize,
        report: &mut impl FnMut(MixerReport),
    ) {
        self.plays.mix(now, programme, channels, report);
        self.announcements.mix(now, programme, channels, report);
    }

    /// Whether the next block passes unchanged.
    pub(crate) fn is_transparent(&self) -> bool {
        self.plays.is_transparent() && self.announcements.is_transparent()
    }
}
