//! The text of playlists.

use core::fmt::Write as _;

use super::date::HlsDate;

/// A media playlist without an end: a window of a live stream.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says")]
pub struct MediaPlaylist<'a> {
    /// What a full segment lasts, in microseconds. `EXT-X-TARGETDURATION` follows from it alone,
    /// so that it never changes.
    pub segment_micros: u64,
    /// The number of the first segment.
    pub media_sequence: u64,
    /// How many discontinuities have left the playlist.
    pub discontinuity_sequence: u64,
    /// The address of the init segment; packed audio has none.
    pub map: Option<&'a str>,
    /// In the order of their numbers, which have no gap.
    pub segments: &'a [PlaylistSegment],
    /// Titles, in the order of time.
    pub ranges: &'a [DateRange],
}

/// A segment in a playlist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says of a segment")]
pub struct PlaylistSegment {
    /// Its address.
    pub uri: String,
    /// The date of its first sample.
    pub date: HlsDate,
    /// It does not continue the one before.
    pub is_discontinuous: bool,
    /// It does not exist (`EXT-X-GAP`): a client must not load it.
    pub is_gap: bool,
}

/// A title from its date until the next one's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says of a title")]
pub struct DateRange {
    /// Unique among the titles.
    pub id: u64,
    /// Where it begins.
    pub start: HlsDate,
    /// The title.
    pub title: String,
}

/// A rendition in a multivariant playlist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says of a rendition")]
pub struct Variant {
    /// The address of its media playlist.
    pub uri: String,
    /// The greatest bit rate of a segment, with its boxes, in bits per second.
    pub peak: u64,
    /// The average of all segments.
    pub average: u64,
    /// The codec (RFC 6381).
    pub codecs: String,
}

impl MediaPlaylist<'_> {
    /// The text.
    #[must_use]
    pub fn write(&self) -> String {
        // Writing to a string cannot fail.
        let mut out = String::with_capacity(HEAD_BYTES + self.segments.len() * SEGMENT_BYTES);
        let version = match self.map {
            _ if self.segments.iter().any(|one| one.is_gap) => 8,
            Some(_) => 7,
            None => NO_MAP_VERSION,
        };
        writeln!(out, "#EXTM3U\n#EXT-X-VERSION:{version}").ok();
        writeln!(out, "#EXT-X-TARGETDURATION:{}", self.target_seconds()).ok();
        writeln!(out, "#EXT-X-MEDIA-SEQUENCE:{}", self.media_sequence).ok();
        if self.discontinuity_sequence > 0 {
            writeln!(out, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", self.discontinuity_sequence).ok();
        }
        // All formats here can be decoded from any frame on.
        writeln!(out, "#EXT-X-INDEPENDENT-SEGMENTS").ok();
        self.write_map(&mut out);
        let (seconds, micros) =
            (self.segment_micros / MICROS_PER_SECOND, self.segment_micros % MICROS_PER_SECOND);
        for (number, segment) in self.segments.iter().enumerate() {
            if segment.is_discontinuous {
                writeln!(out, "#EXT-X-DISCONTINUITY").ok();
                if number > 0 {
                    self.write_map(&mut out);
                }
            }
            if segment.is_gap {
                writeln!(out, "#EXT-X-GAP").ok();
            }
            writeln!(out, "#EXT-X-PROGRAM-DATE-TIME:{}", segment.date).ok();
            writeln!(out, "#EXTINF:{seconds}.{micros:06},\n{}", segment.uri).ok();
        }
        for DateRange { id, start, title } in self.ranges {
            writeln!(
                out,
                "#EXT-X-DATERANGE:ID=\"title-{id}\",CLASS=\"{TITLE_CLASS}\",START-DATE=\"{start}\",\
                 END-ON-NEXT=YES,X-TITLE=\"{}\"",
                quotable(title)
            )
            .ok();
        }
        out
    }

    /// The duration of a segment in seconds, rounded as each `EXTINF` is compared with it.
    #[must_use]
    pub fn target_seconds(&self) -> u64 {
        ((self.segment_micros + MICROS_PER_SECOND / 2) / MICROS_PER_SECOND).max(1)
    }

    fn write_map(&self, out: &mut String) {
        if let Some(map) = self.map {
            writeln!(out, "#EXT-X-MAP:URI=\"{map}\"").ok();
        }
    }
}

/// The text of a multivariant playlist; players begin with the first variant. `has_maps` says whether
/// the media playlists name init segments, which old players do not know.
#[must_use]
pub fn multivariant_playlist(variants: &[Variant], has_maps: bool) -> String {
    let version = if has_maps { 7 } else { NO_MAP_VERSION };
    let mut out = format!("#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-INDEPENDENT-SEGMENTS\n");
    for Variant { uri, peak, average, codecs } in variants {
        writeln!(
            out,
            "#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={average},CODECS=\"{codecs}\"\n\
             {uri}"
        )
        .ok();
    }
    out
}

/// A quoted string has no quote and no line break (section 4.2).
fn quotable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).map(|c| if c == '"' { '\'' } else { c }).collect()
}

/// The media type of playlists.
pub const PLAYLIST_MEDIA_TYPE: &str = "application/vnd.apple.mpegurl";

/// The media type of segments of fragmented MP4.
pub const SEGMENT_MEDIA_TYPE: &str = "audio/mp4";

/// The media type of segments of packed audio with AAC.
pub const PACKED_AUDIO_MEDIA_TYPE: &str = "audio/aac";

/// The version of a playlist without `EXT-X-MAP`: durations have decimals (section 7).
const NO_MAP_VERSION: u8 = 3;

/// The class of date ranges that are titles.
const TITLE_CLASS: &str = "org.aulos.title";

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The usual length of what precedes the segments, and of one of them.
const HEAD_BYTES: usize = 256;
const SEGMENT_BYTES: usize = 96;
