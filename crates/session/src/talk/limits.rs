//! How long and how large a talk may be.

use aulos_core::Span;

/// The longest talk: as long as an announcement may be.
pub const MAX_TALK: Span = Span::from_secs(300);

/// How late a frame may be, counted from the first one, and so the longest pause.
pub const MAX_LATE: Span = Span::from_secs(2);

/// How much earlier than it can have been spoken a frame may come: a browser that was busy sends in
/// bursts.
pub const MAX_AHEAD: Span = Span::from_secs(1);

/// The largest frame: 170 ms of PCM in stereo at the highest rate, and more than 50 times the
/// largest packet of Opus for 20 ms.
pub const MAX_FRAME_BYTES: usize = 64 << 10;

/// How much is held beside the ring while another announcement plays.
pub const MAX_HELD: Span = Span::from_secs(10);
