//! A named position of a recording, as the formats of files have it.

/// A named position of a file of sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what every format has")]
pub struct FileMarker<'a> {
    /// Frames from the beginning of the file.
    pub position: u64,
    /// Its name, without control characters.
    pub label: &'a str,
}
