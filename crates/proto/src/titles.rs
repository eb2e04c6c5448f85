//! What is playing. In: from player processes (librespot reports it in its log, shairport-sync
//! through its metadata pipe) and text files. Out: texts from templates, for RDS and DAB+.
//!
//! The parsers accept bytes in pieces of any size. They ignore what they do not know and discard
//! items that exceed a limit: the player is a child process, but its metadata comes from untrusted
//! phones.

mod airplay;
mod dl_plus;
mod librespot;
mod rds;
mod template;

use std::sync::Arc;

use aulos_core::Span;
use encoding_rs::Encoding;

pub use airplay::AirplayMetadataParser;
pub use dl_plus::{MAX_LABEL, dynamic_label};
pub use librespot::LibrespotLogParser;
pub use rds::{RADIO_TEXT, SERVICE_NAME, UecpWriter, fold_to_ascii};
pub use template::{NowPlaying, RenderedTitle, TemplateError, TitleField, TitleTemplate};

/// Playback event reported by a player process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaybackEvent {
    /// Another track plays, or more of its metadata is known.
    Title(TrackMetadata),
    /// Cover image as it was received, JPEG or PNG; an empty one removes the last image.
    Picture(Vec<u8>),
    /// Position in the track, and the length of the track.
    Position(Span, Span),
    /// Playback runs.
    Playing,
    /// Playback is paused.
    Paused,
    /// Playback ended.
    Stopped,
}

/// Metadata of a track, as far as the player reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackMetadata {
    /// Title of the track.
    pub title: Option<String>,
    /// Performer.
    pub artist: Option<String>,
    /// Album.
    pub album: Option<String>,
    /// Genre.
    pub genre: Option<String>,
    /// Composer.
    pub composer: Option<String>,
    /// Length of the track.
    pub duration: Option<Span>,
    /// Address of the track, such as `spotify:track:...`.
    pub url: Option<String>,
    /// Address of a picture.
    pub art_url: Option<String>,
    /// The picture itself, as it was received; precedes its address.
    pub picture: Option<Arc<[u8]>>,
}

impl TrackMetadata {
    /// Parses the single line that radio streams carry, `Artist - Title`.
    #[must_use]
    pub fn from_stream_title(line: &str) -> Self {
        let (artist, title) = match line.split_once(" - ") {
            Some((artist, title)) => (clean_text(artist.as_bytes()), title),
            None => (None, line),
        };
        Self { artist, title: clean_text(title.as_bytes()), ..Self::default() }
    }

    /// Parses a text file of automation: `Artist - Title` in its first line that is not empty. It
    /// is UTF-8, with or without a byte order mark, UTF-16 with one, or `charset`.
    #[must_use]
    pub fn from_text_file(bytes: &[u8], charset: TitleCharset) -> Self {
        let encoding = match Encoding::for_bom(bytes) {
            Some((encoding, _)) => encoding,
            None if core::str::from_utf8(bytes).is_ok() => encoding_rs::UTF_8,
            None => charset.0,
        };
        let (text, ..) = encoding.decode(bytes);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        Self::from_stream_title(line.unwrap_or_default())
    }
}

/// The charset of titles that name none and are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TitleCharset(&'static Encoding);

impl TitleCharset {
    /// The charset of a label of the Encoding Standard, in any case: `windows-1251`, `KOI8-R`. None
    /// for other names, and for those that are not decoded for security.
    #[must_use]
    pub fn of_label(label: &str) -> Option<Self> {
        Encoding::for_label_no_replacement(label.as_bytes()).map(Self)
    }

    /// Decodes text that is not UTF-8.
    pub(crate) fn decode(self, bytes: &[u8]) -> String {
        self.0.decode(bytes).0.into_owned()
    }
}

impl Default for TitleCharset {
    /// Windows-1252, which old servers send and which contains Latin-1.
    fn default() -> Self {
        Self(encoding_rs::WINDOWS_1252)
    }
}

/// Maximum length of one text in bytes; a longer text is truncated.
pub const MAX_TEXT: usize = 1_024;

/// Removes control characters and truncates to [`MAX_TEXT`] bytes; `None` when nothing is left.
#[must_use]
pub fn clean_text(bytes: &[u8]) -> Option<String> {
    let mut out = String::new();
    for letter in String::from_utf8_lossy(bytes).trim().chars().filter(|c| !c.is_control()) {
        if out.len() + letter.len_utf8() > MAX_TEXT {
            break;
        }
        out.push(letter);
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests;
