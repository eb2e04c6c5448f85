//! Parser of librespot's log, line by line.
//!
//! Two kinds of line are recognized, whatever prefix they have (time, level, module), in the form
//! that versions 0.3 to 0.8 write:
//!
//! ```text
//!  Loading <NAME> with Spotify URI <spotify:track:ID>
//!  <NAME> (MILLISECONDS ms) loaded
//! ```
//!
//! The log does not contain artists.

use aulos_core::Span;

use super::{PlaybackEvent, TrackMetadata, clean_text};

/// Parses the log.
#[derive(Debug, Default)]
pub struct LibrespotLogParser {
    line: Vec<u8>,
    /// The current line exceeds the limit and is ignored up to its end.
    skipping: bool,
    /// Name and URI of the track that is loading.
    loading: Option<(String, String)>,
}

impl LibrespotLogParser {
    /// Consumes bytes and reports the events in them.
    pub fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(PlaybackEvent)) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        let Some(first) = pieces.next() else { return };
        self.extend(first);
        for piece in pieces {
            let line = core::mem::take(&mut self.line);
            if !core::mem::take(&mut self.skipping) {
                self.parse_line(&String::from_utf8_lossy(&line), &mut emit);
            }
            self.extend(piece);
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        self.skipping |= self.line.len() + piece.len() > MAX_LINE;
        if self.skipping {
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn parse_line(&mut self, line: &str, emit: &mut impl FnMut(PlaybackEvent)) {
        if let Some((name, uri)) = loading(line) {
            self.loading = Some((name.to_owned(), uri.to_owned()));
        } else if let Some((name, millis)) = loaded(line) {
            let found = self.loading.take().filter(|(loading, _)| loading == name);
            emit(PlaybackEvent::Title(TrackMetadata {
                title: clean_text(name.as_bytes()),
                duration: Some(Span::from_millis(millis)),
                url: found.and_then(|(_, uri)| clean_text(uri.as_bytes())),
                ..TrackMetadata::default()
            }));
            emit(PlaybackEvent::Playing);
        }
    }
}

/// Name and URI of a `Loading` line. The name may contain angle brackets.
fn loading(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("Loading <")?;
    let (name, uri) = rest.rsplit_once("> with Spotify URI <")?;
    Some((name, uri.trim_end().strip_suffix('>')?))
}

/// Name and length in milliseconds of a `loaded` line.
fn loaded(line: &str) -> Option<(&str, i64)> {
    let rest = line.trim_end().strip_suffix(" ms) loaded")?;
    let (name, millis) = rest.rsplit_once("> (")?;
    let (_, name) = name.split_once('<')?;
    let millis = millis.parse().ok().filter(|millis| (0..=MAX_MILLIS).contains(millis))?;
    Some((name, millis))
}

/// Maximum length of a line in bytes; longer ones are dumps of whole messages.
const MAX_LINE: usize = 8_192;
/// Maximum length of a track: one day.
const MAX_MILLIS: i64 = 86_400_000;
