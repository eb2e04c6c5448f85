//! Why a talk ends before its button is released.

use core::fmt;

use super::limits::{MAX_AHEAD, MAX_FRAME_BYTES, MAX_HELD, MAX_LATE, MAX_TALK};

/// Why a talk has ended early. What was said until then is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TalkError {
    /// No frame has come for [`MAX_LATE`].
    Stalled,
    /// Frames come, and are [`MAX_LATE`] behind what has been spoken.
    Late,
    /// Frames come faster than they can be spoken, by more than [`MAX_AHEAD`].
    TooFast,
    /// It is longer than [`MAX_TALK`].
    TooLong,
    /// A frame is larger than [`MAX_FRAME_BYTES`].
    FrameTooLong,
    /// A frame of PCM is no whole number of samples of all channels.
    PartialFrame {
        /// Its length.
        bytes: usize,
        /// The length of one sample of all channels.
        size: usize,
    },
    /// What was sent is no Opus.
    Damaged {
        /// The number of such packets.
        packets: u32,
    },
    /// A text came in place of a frame.
    Text,
    /// The announcements in front of it lasted longer than [`MAX_HELD`].
    Busy,
    /// The connection broke without being closed.
    Lost,
    /// The rules of access have changed meanwhile.
    RulesChanged,
}

impl fmt::Display for TalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled => {
                write!(f, "the microphone sent nothing for {} s", MAX_LATE.as_secs_f64())
            }
            Self::Late => {
                write!(f, "the sound of the microphone is {} s late", MAX_LATE.as_secs_f64())
            }
            Self::TooFast => write!(
                f,
                "the sound came more than {} s faster than it can be spoken",
                MAX_AHEAD.as_secs_f64()
            ),
            Self::TooLong => write!(f, "a talk lasts {} s at most", MAX_TALK.as_secs_f64()),
            Self::FrameTooLong => write!(f, "a frame has {MAX_FRAME_BYTES} bytes at most"),
            Self::PartialFrame { bytes, size } => {
                write!(f, "a frame of {bytes} bytes is no multiple of {size}")
            }
            Self::Damaged { packets } => write!(f, "{packets} frames were no packets of Opus"),
            Self::Text => f.write_str("a text came in place of a frame of sound"),
            Self::Busy => write!(
                f,
                "another announcement kept the talk waiting for more than {} s",
                MAX_HELD.as_secs_f64()
            ),
            Self::Lost => f.write_str("the connection to the microphone was lost"),
            Self::RulesChanged => f.write_str("the rules of access have changed; talk again"),
        }
    }
}

impl core::error::Error for TalkError {}
