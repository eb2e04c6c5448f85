//! The property `mode`.

use aulos_dsp::normalize::LookAhead;
use gst::glib;

/// Look-ahead of the normalizer, and so its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstAulosNormalizeMode")]
pub(super) enum Mode {
    #[default]
    #[enum_value(
        name = "3 s of look-ahead: a change of level is known before it is heard",
        nick = "full"
    )]
    Full,
    #[enum_value(name = "400 ms of look-ahead", nick = "mid")]
    Mid,
    #[enum_value(name = "5 ms of look-ahead, for live sound", nick = "low")]
    Low,
}

impl From<Mode> for LookAhead {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Full => Self::Full,
            Mode::Mid => Self::Mid,
            Mode::Low => Self::Low,
        }
    }
}
