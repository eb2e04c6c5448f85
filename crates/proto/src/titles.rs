//! What child programs tell of what they play: librespot in its log, shairport-sync through its
//! metadata pipe.
//!
//! Both are machines that take bytes of any grain. What they do not know they pass over, and what is
//! longer than it can be they throw away: the other side is a program that we have started, but what
//! it tells comes from strangers' phones.

mod airplay;
mod librespot;

use aulos_core::Span;

pub use airplay::AirplayMetadataParser;
pub use librespot::LibrespotLogParser;

/// What was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaybackEvent {
    /// Another title plays, or more is known of it.
    Title(TrackMetadata),
    /// A picture of it as it came, JPEG or PNG; empty takes the last one away.
    Picture(Vec<u8>),
    /// Where in the title it is, and how long that is.
    Position(Span, Span),
    /// Sound comes.
    Playing,
    /// None comes just now.
    Paused,
    /// Nobody plays any more.
    Stopped,
}

/// What is played, as far as it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackMetadata {
    /// Of the piece.
    pub title: Option<String>,
    /// Who plays it.
    pub artist: Option<String>,
    /// Where it is from.
    pub album: Option<String>,
    /// Of what kind it is.
    pub genre: Option<String>,
    /// Who wrote it.
    pub composer: Option<String>,
    /// How long it is.
    pub duration: Option<Span>,
    /// Where it is to be found, as `spotify:track:...`.
    pub url: Option<String>,
}

impl TrackMetadata {
    /// From the one line that radio has for it, `Artist - Title`.
    #[must_use]
    pub fn from_stream_title(line: &str) -> Self {
        let (artist, title) = match line.split_once(" - ") {
            Some((artist, title)) => (clean_text(artist.as_bytes()), title),
            None => (None, line),
        };
        Self { artist, title: clean_text(title.as_bytes()), ..Self::default() }
    }
}

/// Bytes of one text; a longer one is cut.
pub const MAX_TEXT: usize = 1_024;

/// A text without line breaks and the like, of at most [`MAX_TEXT`] bytes; none where nothing is left.
pub(crate) fn clean_text(bytes: &[u8]) -> Option<String> {
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
