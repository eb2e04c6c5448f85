//! Formats numbers for people, the same way in every output.

use aulos_core::{Db, Lufs, Span};

/// Hours, minutes and seconds.
pub(crate) fn clock(span: Span) -> String {
    let seconds = span.as_millis() / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// One decimal place; a dash for a missing value.
pub(crate) fn lufs(value: Option<Lufs>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}", value.get()))
}

/// Like [`lufs`].
pub(crate) fn db(value: Option<Db>) -> String {
    // Avoids -0.0.
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}", value.get() + 0.0))
}
