//! Pictures: what the channels of a client show, and the messages in which a picture gets there.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::dialect::DialectInfo;

/// Channels that a client has at most.
pub const MAX_ARTWORK_CHANNELS: usize = 4;

/// How a picture is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::exhaustive_enums, reason = "the formats of the protocol")]
pub enum ArtworkFormat {
    /// JPEG.
    #[default]
    Jpeg,
    /// PNG.
    Png,
    /// A bitmap; only in the first dialects.
    Bmp,
}

/// The form in which a client wants a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::exhaustive_structs, reason = "what the picture is made from")]
pub struct ArtworkRendition {
    /// How it is encoded.
    pub format: ArtworkFormat,
    /// Its width in pixels, 1 to [`MAX_ARTWORK_SIDE`].
    pub width: u32,
    /// Its height in pixels, 1 to [`MAX_ARTWORK_SIDE`].
    pub height: u32,
}

/// The pictures that a client wants, by channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the driver needs")]
pub struct ArtworkRequest {
    /// The picture of the album; `None` for a channel that does not show it.
    pub renditions: [Option<ArtworkRendition>; MAX_ARTWORK_CHANNELS],
    /// Requests of this connection so far that exceeded a limit: they were reduced, or put off.
    pub limited: u32,
}

/// What the channels of a client are to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the answer of the driver")]
pub struct ArtworkUpdate {
    /// What it answers: [`ArtworkRequest::renditions`].
    pub renditions: [Option<ArtworkRendition>; MAX_ARTWORK_CHANNELS],
    /// The encoded picture of each channel; `None` for no picture.
    pub pictures: [Option<Arc<[u8]>>; MAX_ARTWORK_CHANNELS],
}

/// What a channel shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ArtworkSource {
    #[default]
    None,
    Album,
    /// Stations have no pictures of artists.
    Artist,
}

/// A channel of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ArtworkChannel {
    source: ArtworkSource,
    format: ArtworkFormat,
    width: u32,
    height: u32,
}

/// All channels of a client, and how many of them exceeded a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ArtworkChannels {
    pub(super) channels: [ArtworkChannel; MAX_ARTWORK_CHANNELS],
    pub(super) limited: u32,
}

/// The change of a channel; what it does not say stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelChange {
    source: Option<ArtworkSource>,
    format: Option<ArtworkFormat>,
    width: Option<u32>,
    height: Option<u32>,
}

/// A message about the picture of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArtworkFrame<'a> {
    /// A picture of so many bytes follows, which is to be shown at this time of the server's clock,
    /// in microseconds. Without bytes: none is to be shown.
    Begin { at: i64, size: u32 },
    /// The next bytes.
    Part(&'a [u8]),
    /// What has begun does not go on.
    Cancel,
    /// A whole picture, in the first dialects.
    Whole { at: i64, picture: &'a [u8] },
}

impl ArtworkChannels {
    /// Parses the list `channels` of an object about pictures.
    pub(super) fn parse(dialect: DialectInfo, artwork: &Value) -> Option<Self> {
        let list = artwork.get("channels")?.as_array()?;
        let mut all = Self::default();
        all.limited += u32::from(list.len() > MAX_ARTWORK_CHANNELS);
        for (number, entry) in list.iter().take(MAX_ARTWORK_CHANNELS).enumerate() {
            all.change(dialect, number, ChannelChange::parse(dialect, entry));
        }
        Some(all)
    }

    /// Changes a channel, if there is one of this number.
    pub(super) fn change(&mut self, dialect: DialectInfo, number: usize, change: ChannelChange) {
        let Some(channel) = self.channels.get_mut(number) else { return };
        channel.source = change.source.unwrap_or(channel.source);
        channel.format = change.format.unwrap_or(channel.format);
        channel.width = change.width.unwrap_or(channel.width);
        channel.height = change.height.unwrap_or(channel.height);
        self.limited += u32::from(channel.limit(dialect));
    }

    /// The object `artwork` of `stream/start`. In the first dialects every channel has all fields.
    pub(super) fn to_json(self, dialect: DialectInfo) -> Value {
        let used = self.channels.iter().rposition(|channel| channel.is_streamed());
        let channels = self.channels.iter().take(used.map_or(0, |last| last + 1));
        let entry = |channel: &ArtworkChannel| {
            let mut entry = Map::new();
            let source = if channel.is_streamed() { channel.source } else { ArtworkSource::None };
            entry.insert("source".to_owned(), source.name().into());
            if channel.is_streamed() || !dialect.has_artwork_transfers {
                entry.insert("format".to_owned(), channel.format.name().into());
                entry.insert("width".to_owned(), channel.width.into());
                entry.insert("height".to_owned(), channel.height.into());
            }
            Value::Object(entry)
        };
        json!({ "channels": channels.map(entry).collect::<Vec<_>>() })
    }
}

impl ArtworkChannel {
    /// Whether it shows anything.
    pub(super) fn is_streamed(&self) -> bool {
        self.source != ArtworkSource::None && self.width > 0 && self.height > 0
    }

    /// The picture that it wants of the station.
    pub(super) fn rendition(&self) -> Option<ArtworkRendition> {
        let Self { source, format, width, height } = *self;
        let has_one = source == ArtworkSource::Album && self.is_streamed();
        has_one.then_some(ArtworkRendition { format, width, height })
    }

    /// Makes the picture smaller, in its proportions, until it is within the limits; whether that
    /// was necessary.
    fn limit(&mut self, dialect: DialectInfo) -> bool {
        let asked = (self.width, self.height);
        let longest = asked.0.max(asked.1);
        if longest > MAX_ARTWORK_SIDE {
            self.scale(MAX_ARTWORK_SIDE, longest);
        }
        let may_not_shrink = !dialect.has_artwork_transfers && self.format != ArtworkFormat::Jpeg;
        while may_not_shrink && self.width * self.height * 3 > MAX_WHOLE_PIXELS {
            self.scale(15, 16);
        }
        asked != (self.width, self.height)
    }

    fn scale(&mut self, by: u32, of: u32) {
        let scaled = |side: u32| {
            let scaled = u64::from(side) * u64::from(by) / u64::from(of);
            u32::try_from(scaled).unwrap_or(MAX_ARTWORK_SIDE).max(side.min(1))
        };
        (self.width, self.height) = (scaled(self.width), scaled(self.height));
    }
}

impl ArtworkSource {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Album => "album",
            Self::Artist => "artist",
        }
    }
}

impl ArtworkFormat {
    /// Its name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Bmp => "bmp",
        }
    }
}

impl ChannelChange {
    /// Parses the entry of a channel. One in a format that we do not have shows nothing.
    pub(super) fn parse(dialect: DialectInfo, entry: &Value) -> Self {
        let mut source = entry.get("source").map(|source| match source.as_str() {
            Some("album") => ArtworkSource::Album,
            Some("artist") => ArtworkSource::Artist,
            _ => ArtworkSource::None,
        });
        let format = entry.get("format").and_then(|format| match format.as_str() {
            Some("jpeg") => Some(ArtworkFormat::Jpeg),
            Some("png") => Some(ArtworkFormat::Png),
            Some("bmp") if !dialect.has_artwork_transfers => Some(ArtworkFormat::Bmp),
            _ => {
                source = Some(ArtworkSource::None);
                None
            }
        });
        let side = |[key, old]: [&str; 2]| {
            let side = entry.get(key).or_else(|| entry.get(old))?;
            Some(u32::try_from(side.as_u64().unwrap_or(0)).unwrap_or(u32::MAX))
        };
        Self {
            source,
            format,
            width: side(["width", "media_width"]),
            height: side(["height", "media_height"]),
        }
    }
}

impl<'a> ArtworkFrame<'a> {
    /// Appends the message for a channel.
    pub(super) fn write(self, channel: usize, out: &mut Vec<u8>) {
        let kind = u8::try_from(channel).unwrap_or(0).saturating_add(FIRST_CHANNEL);
        out.push(kind);
        match self {
            Self::Begin { at, size } => {
                out.push(BEGIN);
                out.extend(at.to_be_bytes());
                out.extend(size.to_be_bytes());
            }
            Self::Part(bytes) => {
                out.push(0);
                out.extend_from_slice(bytes);
            }
            Self::Cancel => out.push(CANCEL),
            Self::Whole { at, picture } => {
                out.extend(at.to_be_bytes());
                out.extend_from_slice(picture);
            }
        }
    }

    /// The channel and the content of a message; `None` if it is none about pictures, or makes no
    /// sense.
    #[cfg(any(test, feature = "noise"))]
    pub(super) fn parse(dialect: DialectInfo, message: &'a [u8]) -> Option<(usize, Self)> {
        let (kind, rest) = message.split_first()?;
        let channel = usize::from(kind.checked_sub(FIRST_CHANNEL)?);
        if channel >= MAX_ARTWORK_CHANNELS {
            return None;
        }
        if !dialect.has_artwork_transfers {
            let (at, picture) = rest.split_first_chunk::<8>()?;
            return Some((channel, Self::Whole { at: i64::from_be_bytes(*at), picture }));
        }
        let (flags, rest) = rest.split_first()?;
        let frame = match *flags {
            0 => Self::Part(rest),
            CANCEL if rest.is_empty() => Self::Cancel,
            BEGIN => {
                let (at, size) = rest.split_first_chunk::<8>()?;
                let size = <[u8; 4]>::try_from(size).ok()?;
                Self::Begin { at: i64::from_be_bytes(*at), size: u32::from_be_bytes(size) }
            }
            _ => return None,
        };
        Some((channel, frame))
    }
}

/// Whether a message with this first byte is about a picture.
#[cfg(feature = "noise")]
pub(super) fn is_artwork(kind: u8) -> bool {
    usize::from(kind).checked_sub(FIRST_CHANNEL.into()).is_some_and(|at| at < MAX_ARTWORK_CHANNELS)
}

/// Longest side of a picture; a client that asks for more gets this.
pub const MAX_ARTWORK_SIDE: u32 = 1_024;

/// Bytes of a picture that goes out in one message, which nothing can interrupt: a quarter of a
/// second at 8 Mbit/s.
pub const MAX_WHOLE_ARTWORK: usize = 256 * 1_024;

/// Bytes of the pixels of such a picture where they are not compressed, or perhaps in vain.
const MAX_WHOLE_PIXELS: u32 = 240 * 1_024;

/// Type of the messages for the first channel.
const FIRST_CHANNEL: u8 = 8;

const CANCEL: u8 = 1;
const BEGIN: u8 = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Dialect;
    use super::*;

    const C: DialectInfo = Dialect::Current.info();
    const B: DialectInfo = Dialect::FirstNoise.info();

    #[test]
    fn channels_of_the_dialects() {
        let list = json!({ "channels": [
            { "source": "album", "format": "jpeg", "width": 300, "height": 200 },
            { "source": "none" },
            { "source": "artist", "format": "png", "width": 64, "height": 64 },
            { "source": "album", "format": "bmp", "width": 64, "height": 64 },
        ] });
        let all = ArtworkChannels::parse(C, &list).unwrap();
        let jpeg = ArtworkRendition { format: ArtworkFormat::Jpeg, width: 300, height: 200 };
        assert_eq!(all.channels.map(|one| one.rendition()), [Some(jpeg), None, None, None]);
        let start = json!({ "channels": [
            { "source": "album", "format": "jpeg", "width": 300, "height": 200 },
            { "source": "none" },
            { "source": "artist", "format": "png", "width": 64, "height": 64 },
        ] });
        assert_eq!((all.to_json(C), all.limited), (start, 0));
        let old = json!({ "channels": [
            { "source": "none", "format": "png", "media_width": 9, "media_height": 8 },
            { "source": "album", "format": "bmp", "media_width": 320, "media_height": 240 },
        ] });
        let mut all = ArtworkChannels::parse(B, &old).unwrap();
        let start = json!({ "channels": [
            { "source": "none", "format": "png", "width": 9, "height": 8 },
            { "source": "album", "format": "bmp", "width": 320, "height": 240 },
        ] });
        assert_eq!((all.to_json(B), all.limited), (start, 0));
        let change = json!({ "channel": 0, "source": "album", "media_width": 10 });
        all.change(B, 0, ChannelChange::parse(B, &change));
        let png = ArtworkRendition { format: ArtworkFormat::Png, width: 10, height: 8 };
        assert_eq!(all.channels[0].rendition(), Some(png));
        all.change(B, 4, ChannelChange::parse(B, &change));
        assert_eq!(ArtworkChannels::parse(C, &json!({ "channels": 7 })), None);
    }

    #[test]
    fn requests_are_limited_and_counted() {
        for (dialect, format, asked, given) in [
            (C, "jpeg", (65_535, 65_535), (1_024, 1_024)),
            (C, "png", (u64::MAX, 1), (1_024, 1)),
            (C, "png", (1_024, 1_024), (1_024, 1_024)),
            (B, "jpeg", (1_024, 2_048), (512, 1_024)),
            (B, "bmp", (800, 600), (320, 239)),
            (C, "jpeg", (0, 100), (0, 100)),
        ] {
            let entry =
                json!({ "source": "album", "format": format, "width": asked.0, "height": asked.1 });
            let all = ArtworkChannels::parse(dialect, &json!({ "channels": [entry] })).unwrap();
            let channel = all.channels[0];
            assert_eq!((channel.width, channel.height), given, "{format} {asked:?}");
            let was_limited = (u64::from(given.0), u64::from(given.1)) != asked;
            assert_eq!(all.limited, u32::from(was_limited), "{format} {asked:?}");
            assert_eq!(channel.rendition().is_some(), given.0 > 0);
        }
        let many = json!({ "channels": vec![json!({}); 100] });
        assert_eq!(ArtworkChannels::parse(C, &many).unwrap().limited, 1);
    }

    #[test]
    fn frames_have_the_bytes_of_the_specification() {
        let bytes = |frame: ArtworkFrame<'_>| {
            let mut out = Vec::new();
            frame.write(2, &mut out);
            out
        };
        let begin = ArtworkFrame::Begin { at: 0x0102, size: 0x0304_0506 };
        assert_eq!(bytes(begin), [10, 2, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
        let part = ArtworkFrame::Part(&[7, 8]);
        assert_eq!(bytes(part), [10, 0, 7, 8]);
        assert_eq!(bytes(ArtworkFrame::Cancel), [10, 1]);
        for frame in [begin, part, ArtworkFrame::Cancel] {
            assert_eq!(ArtworkFrame::parse(C, &bytes(frame)), Some((2, frame)));
        }
        let whole = ArtworkFrame::Whole { at: -1, picture: &[9] };
        assert_eq!(bytes(whole), [10, 255, 255, 255, 255, 255, 255, 255, 255, 9]);
        assert_eq!(ArtworkFrame::parse(B, &bytes(whole)), Some((2, whole)));
        for wrong in [&[7, 0][..], &[12, 0], &[8], &[8, 3], &[8, 1, 0], &[8, 2, 0], &[8, 4]] {
            assert_eq!(ArtworkFrame::parse(C, wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_a_client_asks_stays_within_the_limits(
            width: u64, height: u64, format in "jpeg|png|bmp", current: bool
        ) {
            let dialect = if current { C } else { B };
            let entry =
                json!({ "source": "album", "format": format, "width": width, "height": height });
            let all = ArtworkChannels::parse(dialect, &json!({ "channels": [entry] })).unwrap();
            for rendition in all.channels.iter().filter_map(ArtworkChannel::rendition) {
                prop_assert!((1..=MAX_ARTWORK_SIDE).contains(&rendition.width));
                prop_assert!((1..=MAX_ARTWORK_SIDE).contains(&rendition.height));
            }
        }
    }
}
