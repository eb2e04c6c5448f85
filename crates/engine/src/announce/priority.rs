//! Which announcement goes first.

/// Which announcement goes first: a higher one interrupts a lower one that plays, and is placed
/// before those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The highest.
    pub const HIGHEST: Self = Self(9);
    /// That of an announcement without one.
    pub const DEFAULT: Self = Self(5);

    /// A priority from 0, the lowest; clamped to [`Priority::HIGHEST`].
    #[must_use]
    pub const fn new(level: u8) -> Self {
        if level > Self::HIGHEST.0 { Self::HIGHEST } else { Self(level) }
    }

    /// From 0 to 9.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}
