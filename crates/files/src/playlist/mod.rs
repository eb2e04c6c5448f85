//! Playlists as a source: the files of a folder or of a list, one after the other.
//!
//! ```text
//!  folder, list --FolderWalk--> FileList --numbers--> session::playlist (order, jingles)
//!                                  |                          |
//!                                  +--paths--> PlaylistTrack <-+   (opened, measured, decoded)
//!                                                 |
//!                                  blocks <--- PlaylistMixer      (gapless, cross-faded)
//! ```
//!
//! [`PlaylistSource`] is a job of the codec pool and runs all of it; each step does a bounded part
//! of a walk or of a measurement. Names of files are kept without padding, about 50 bytes each; no
//! memory grows with what has been played.

mod gain;
mod list;
mod mixer;
mod source;
mod status;
mod track;
mod walk;
mod watch;

pub use gain::PlaylistLoudness;
pub use list::MAX_PLAYLIST_FILES;
pub use source::{PlaylistOptions, PlaylistParts, PlaylistSource};
pub use status::{PlaylistHandle, PlaylistStatus, PlaylistTrackInfo, SkippedFile};

#[cfg(test)]
mod tests;
