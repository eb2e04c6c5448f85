//! What listeners of Shoutcast and Icecast streams are told: the headers of a stream, and an encoder
//! of ICY metadata for listeners of Shoutcast and Icecast streams (`Icy-MetaData: 1`).
//!
//! The counterpart of [`super::BodyDecoder`].

use crate::titles::TrackMetadata;

/// Inserts a metadata block after every [`INTERVAL`] bytes of audio, or as many as it is told.
#[derive(Clone, Debug)]
pub struct IcyWriter {
    interval: usize,
    left: usize,
    /// The last title that was sent; it stays valid until another one is sent.
    last_title: Option<String>,
}

/// Bytes of audio between two metadata blocks (`icy-metaint`), Icecast's value.
pub const INTERVAL: usize = 16_000;

/// Maximum length of a metadata text: its length byte counts units of 16 bytes.
const MAX_METADATA_BYTES: usize = 255 * 16;

impl IcyWriter {
    /// A stream that begins with audio.
    #[must_use]
    pub const fn new() -> Self {
        Self::every(INTERVAL)
    }

    /// The same with another number of bytes, at least one, between two metadata blocks.
    #[must_use]
    pub const fn every(interval: usize) -> Self {
        let interval = if interval == 0 { 1 } else { interval };
        Self { interval, left: interval, last_title: None }
    }

    /// Appends audio to `out`, with `title` at the positions of the metadata blocks.
    pub fn write(&mut self, mut sound: &[u8], title: &str, out: &mut Vec<u8>) {
        while let Some((now, later)) = sound.split_at_checked(self.left) {
            out.extend_from_slice(now);
            sound = later;
            self.left = self.interval;
            if self.last_title.as_deref() == Some(title) {
                out.push(0);
            } else {
                put_metadata(title, out);
                self.last_title = Some(title.to_owned());
            }
        }
        out.extend_from_slice(sound);
        self.left -= sound.len();
    }
}

impl Default for IcyWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// What is said of a stream in the `icy-` headers of its responses, and in directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the headers that players know")]
pub struct IcyInfo {
    /// The name of the programme; without it that of the stream is sent.
    pub name: Option<String>,
    /// The genre.
    pub genre: Option<String>,
    /// A description.
    pub description: Option<String>,
    /// The web site.
    pub site: Option<String>,
    /// Whether directories may list it; without it nothing is said.
    pub public: Option<bool>,
    /// Kilobits per second where the encoder does not determine them.
    pub bitrate_kbps: Option<u32>,
    /// Bytes of audio between two places for titles; without it [`INTERVAL`].
    pub interval: Option<usize>,
}

impl IcyInfo {
    /// Bytes of audio between two places for titles (`icy-metaint`).
    #[must_use]
    pub fn metaint(&self) -> usize {
        self.interval.unwrap_or(INTERVAL)
    }

    /// The header lines, each with its line break. `name` is that of the stream, and `bitrate` that
    /// of its encoder in bits per second.
    #[must_use]
    pub fn header_lines(&self, name: &str, bitrate: Option<u32>) -> String {
        let kbps = bitrate.map(|bitrate| bitrate / 1_000).or(self.bitrate_kbps);
        let fields = [
            ("name", Some(self.name.clone().unwrap_or_else(|| name.to_owned()))),
            ("genre", self.genre.clone()),
            ("description", self.description.clone()),
            ("url", self.site.clone()),
            ("pub", self.public.map(|public| u8::from(public).to_string())),
            ("br", kbps.map(|kbps| kbps.to_string())),
        ];
        let lines = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
        // A line break would end the header; a name set by a Snapcast controller may contain one.
        let lines = lines.map(|(field, value)| {
            format!("icy-{field}: {}\r\n", value.replace(char::is_control, " "))
        });
        lines.collect()
    }
}

/// Formats a title as one line: `Artist - Title`.
#[must_use]
pub fn stream_title(title: &TrackMetadata) -> String {
    match (&title.artist, &title.title) {
        (Some(artist), Some(title)) => format!("{artist} - {title}"),
        (one, other) => one.as_ref().or(other.as_ref()).cloned().unwrap_or_default(),
    }
}

/// Appends the length in units of 16 bytes, the text, and zeros.
fn put_metadata(title: &str, out: &mut Vec<u8>) {
    // `';` ends a title and cannot be escaped.
    let clean = title.replace("';", "' ;");
    let room = MAX_METADATA_BYTES - "StreamTitle='';".len();
    let mut end = clean.len().min(room);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    let text = format!("StreamTitle='{}';", clean.get(..end).unwrap_or_default());
    let sixteens = text.len().div_ceil(16);
    // It fits: see `MAX_METADATA_BYTES`.
    out.push(u8::try_from(sixteens).unwrap_or(0));
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len() + sixteens * 16 - text.len(), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{BodyDecoder, BodyFraming};
    use super::*;

    #[test]
    fn each_header_is_one_line_and_what_is_not_known_has_none() {
        let info = IcyInfo { public: Some(true), bitrate_kbps: Some(96), ..IcyInfo::default() };
        let lines = "icy-name: a  b\r\nicy-pub: 1\r\nicy-br: 96\r\n";
        assert_eq!(info.header_lines("a\r\nb", None), lines);
        let info = IcyInfo {
            name: Some("Night".into()),
            genre: Some("Jazz".into()),
            description: Some("All\nnight".into()),
            site: Some("https://radio.example".into()),
            public: None,
            bitrate_kbps: Some(96),
            interval: None,
        };
        let lines = "icy-name: Night\r\nicy-genre: Jazz\r\nicy-description: All night\r\n\
                     icy-url: https://radio.example\r\nicy-br: 128\r\n";
        assert_eq!(info.header_lines("x", Some(128_500)), lines);
    }

    /// Audio and titles that a listener decodes.
    fn demultiplex(bytes: &[u8]) -> (Vec<u8>, Vec<String>) {
        let (mut sound, mut titles) = (Vec::new(), Vec::new());
        let mut body = BodyDecoder::new(BodyFraming::UntilClosed, Some(INTERVAL));
        let hear = |title: TrackMetadata| titles.push(stream_title(&title));
        body.push(bytes, |piece| sound.extend_from_slice(piece), hear).unwrap();
        (sound, titles)
    }

    #[test]
    fn a_title_is_reported_once_at_its_position() {
        let (mut titled, mut out) = (IcyWriter::new(), Vec::new());
        let sound: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let (first, second) = sound.split_at(50_000);
        first.chunks(777).for_each(|piece| titled.write(piece, "Björk - Jóga", &mut out));
        second.chunks(5_000).for_each(|piece| titled.write(piece, "It's; 'fine'; yes", &mut out));
        let (heard, titles) = demultiplex(&out);
        assert_eq!(heard, sound);
        assert_eq!(titles, ["Björk - Jóga", "It's; 'fine' ; yes"]);
        assert_eq!(&out[INTERVAL..=INTERVAL + 13], b"\x02StreamTitle='");
    }

    #[test]
    fn places_for_titles_can_be_closer() {
        let (mut writer, mut out) = (IcyWriter::every(100), Vec::new());
        writer.write(&[7; 150], "a", &mut out);
        writer.write(&[7; 150], "b", &mut out);
        let mut titles = Vec::new();
        let mut body = BodyDecoder::new(BodyFraming::UntilClosed, Some(100));
        body.push(&out, |_| {}, |title| titles.push(stream_title(&title))).unwrap();
        assert_eq!((out[100], titles), (1, vec!["a".to_owned(), "b".to_owned()]));
    }

    proptest! {
        #[test]
        fn any_title_leaves_the_sound_as_it_is(title in ".{0,3000}", grain in 1..40_000_usize) {
            let (mut titled, mut out) = (IcyWriter::new(), Vec::new());
            let sound = vec![7; 50_000];
            sound.chunks(grain).for_each(|piece| titled.write(piece, &title, &mut out));
            prop_assert_eq!(demultiplex(&out).0, sound);
        }
    }
}
