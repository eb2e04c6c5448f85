//! librespot's log, one line at a time.
//!
//! Two of its lines are looked for, whatever stands before them (a time, a level, a module), as
//! versions 0.3 to 0.8 write them:
//!
//! ```text
//!  Loading <NAME> with Spotify URI <spotify:track:ID>
//!  <NAME> (MILLISECONDS ms) loaded
//! ```
//!
//! Names of artists are not in the log.

use aulos_core::Span;

use super::{PlaybackEvent, TrackMetadata, clean_text};

/// Reads the log.
#[derive(Debug, Default)]
pub struct LibrespotLogParser {
    line: Vec<u8>,
    /// The line has been longer than a line can be; it is passed over to its end.
    skipping: bool,
    /// What is being loaded.
    loading: Option<(String, String)>,
}

impl LibrespotLogParser {
    /// Takes bytes, and tells what they said.
    pub fn push(&mut self, bytes: &[u8], mut tell: impl FnMut(PlaybackEvent)) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        let Some(first) = pieces.next() else { return };
        self.extend(first);
        for piece in pieces {
            let line = core::mem::take(&mut self.line);
            if !core::mem::take(&mut self.skipping) {
                self.parse_line(&String::from_utf8_lossy(&line), &mut tell);
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

    fn parse_line(&mut self, line: &str, tell: &mut impl FnMut(PlaybackEvent)) {
        if let Some((name, uri)) = loading(line) {
            self.loading = Some((name.to_owned(), uri.to_owned()));
        } else if let Some((name, millis)) = loaded(line) {
            let found = self.loading.take().filter(|(loading, _)| loading == name);
            tell(PlaybackEvent::Title(TrackMetadata {
                title: clean_text(name.as_bytes()),
                duration: Some(Span::from_millis(millis)),
                url: found.and_then(|(_, uri)| clean_text(uri.as_bytes())),
                ..TrackMetadata::default()
            }));
            tell(PlaybackEvent::Playing);
        }
    }
}

/// Name and address. A name may have angles in it; what stands around it has none.
fn loading(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("Loading <")?;
    let (name, uri) = rest.rsplit_once("> with Spotify URI <")?;
    Some((name, uri.trim_end().strip_suffix('>')?))
}

/// Name and milliseconds.
fn loaded(line: &str) -> Option<(&str, i64)> {
    let rest = line.trim_end().strip_suffix(" ms) loaded")?;
    let (name, millis) = rest.rsplit_once("> (")?;
    let (_, name) = name.split_once('<')?;
    let millis = millis.parse().ok().filter(|millis| (0..=MAX_MILLIS).contains(millis))?;
    Some((name, millis))
}

/// Bytes of a line; longer ones are traces of whole messages.
const MAX_LINE: usize = 8_192;
/// A day: longer than any recording that has a title.
const MAX_MILLIS: i64 = 86_400_000;
