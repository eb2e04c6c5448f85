//! What an announcement or a play is to the programme.

use aulos_core::{Db, Span};

use super::limits::{DEFAULT_RELEASE, MAX_DUCK, MIN_DUCK};

/// What a sound is to the programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "the layers are part of what a station is")]
pub enum Layer {
    /// It plays in the programme's place, of any length; a newer play ends an older one.
    Play,
    /// It plays over the programme or over a play, which is ducked.
    Announcement,
}

impl Layer {
    /// Both, from below.
    pub const ALL: [Self; 2] = [Self::Play, Self::Announcement];

    /// The gain of the programme below a sound of this layer that asks for `gain`.
    #[must_use]
    pub const fn duck(self, gain: Db) -> Db {
        match self {
            Self::Play => Db::SILENCE,
            Self::Announcement => Db::new(gain.get().clamp(MAX_DUCK.get(), MIN_DUCK.get())),
        }
    }
}

/// How the programme is ducked for an announcement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ducking {
    /// Gain of the programme meanwhile; clamped to [`MIN_DUCK`](super::MIN_DUCK) and
    /// [`MAX_DUCK`](super::MAX_DUCK). A play silences
    /// the programme whatever it is.
    pub gain: Db,
    /// Duration of the ramp by which the programme returns; at most [`MAX_RELEASE`](super::MAX_RELEASE).
    pub release: Span,
}

impl Ducking {
    /// A gain, and the default release.
    #[must_use]
    pub const fn by(gain: Db) -> Self {
        Self { gain, release: DEFAULT_RELEASE }
    }
}
