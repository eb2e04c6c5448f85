//! Limits and durations of announcements.

use aulos_core::{Db, Span};

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

/// Limit of [`matching_gain`](super::matching_gain), both ways: more would raise the noise of a bad recording, or hide
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

/// The playing announcement and the one that follows, so that the programme stays ducked between
/// the two.
pub(crate) const PLAYING_AND_NEXT: usize = 2;
/// Maximum number of announcements that a mixer has: these, and two of rising priorities between
/// them.
pub(crate) const MAX_IN_MIXER: usize = 4;

/// Reports about an announcement: it began, it ended.
pub(crate) const REPORTS: usize = 2;
