//! Announcements: a voice or a signal mixed over the programme, which is ducked meanwhile.
//!
//! ```text
//!  control:  AnnouncementQueue  queues, opens and cancels announcements   (may allocate and free)
//!              | Announcement             ^ MixerReport
//!              v                          |
//!  station:  AnnouncementMixer  ducks the programme and mixes             (real-time)
//! ```
//!
//! A play ([`Layer::Play`]) is a sound in place of the programme: an announcement below the others
//! that ducks the programme to silence and has no greatest length. It has a queue and a mixer of
//! its own.
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

mod chime;
mod event;
mod layer;
mod layers;
mod limits;
mod matching;
mod mixer;
mod priority;
mod queue;

pub use chime::{CHIME_LENGTH, Chime};
pub use event::{AnnouncementEnd, QueueEvent, QueueFull};
pub use layer::{Ducking, Layer};
pub(crate) use layers::{LayerMixer, LayerQueues};
pub use limits::{
    DEFAULT_DUCK, DEFAULT_RELEASE, DUCK_TIME, FADE_OUT_TIME, MAX_ANNOUNCEMENT_GAIN, MAX_DUCK,
    MAX_LENGTH, MAX_LIMITER_REDUCTION, MAX_MATCHING_GAIN, MAX_QUEUE, MAX_RELEASE, MAX_STALL,
    MAX_START_WAIT, MIN_DUCK,
};
pub(crate) use limits::{MAX_IN_MIXER, REPORTS};
pub use matching::{headroom, matching_gain};
pub(crate) use mixer::{Announcement, MixerReport};
pub use priority::Priority;
pub use queue::{AnnouncementConfig, AnnouncementQueue, SoundPart};
