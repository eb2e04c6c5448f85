//! Multivariant playlists (RFC 8216, 4.3.4).

use super::attributes::Attributes;
use super::error::M3u8Error;
use super::limits::{MAX_VARIANTS, uri};

/// A playlist of playlists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says")]
pub struct MultivariantPlaylist {
    /// The variants, in their order, at most [`MAX_VARIANTS`].
    pub variants: Vec<Variant>,
}

/// One playlist of the programme.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says")]
pub struct Variant {
    /// Address of its playlist of sound, which may be relative.
    pub uri: String,
    /// `BANDWIDTH`: its peak in bits per second.
    pub bandwidth: u64,
    /// `CODECS`, where it is given.
    pub codecs: Option<String>,
}

impl Variant {
    /// Whether its `CODECS` name sound that can be decoded; a variant without them may have any.
    #[must_use]
    pub fn has_known_sound(&self) -> bool {
        let known = |name: &str| {
            let name = name.trim();
            SOUND.iter().any(|codec| name.eq_ignore_ascii_case(codec))
        };
        self.codecs.as_deref().is_none_or(|codecs| codecs.split(',').any(known))
    }

    /// Whether its `CODECS` name nothing but sound.
    #[must_use]
    pub fn is_audio_only(&self) -> bool {
        let is_sound = |name: &str| {
            let name = name.trim().to_ascii_lowercase();
            ["mp4a", "flac", "opus", "ac-3", "ec-3"].iter().any(|sound| name.starts_with(sound))
        };
        self.codecs.as_deref().is_some_and(|codecs| codecs.split(',').all(is_sound))
    }
}

pub(super) fn parse<'a>(
    lines: impl Iterator<Item = &'a str> + Clone,
) -> Result<MultivariantPlaylist, M3u8Error> {
    // Sound beside the picture: the address of each group, that of its default first.
    let tags = lines.clone().filter_map(|line| line.strip_prefix("#EXT-X-MEDIA:"));
    let mut groups: Vec<(&str, &str, bool)> = tags
        .map(Attributes)
        .filter(|tag| tag.get("TYPE") == Some("AUDIO"))
        .filter_map(|tag| {
            let is_default = tag.get("DEFAULT") == Some("YES");
            Some((tag.get("GROUP-ID")?, tag.get("URI")?, is_default))
        })
        .take(MAX_VARIANTS)
        .collect();
    groups.sort_by_key(|(_, _, is_default)| !is_default);
    let mut playlist = MultivariantPlaylist::default();
    let mut open: Option<Attributes<'_>> = None;
    for line in lines {
        if let Some(tag) = line.strip_prefix("#EXT-X-STREAM-INF:") {
            open = Some(Attributes(tag));
        } else if !line.starts_with('#')
            && let Some(tag) = open.take()
            && playlist.variants.len() < MAX_VARIANTS
        {
            let group = tag.get("AUDIO");
            let beside = groups.iter().find(|(name, _, _)| Some(*name) == group);
            let bandwidth = tag.get("BANDWIDTH").and_then(|value| value.parse().ok());
            playlist.variants.push(Variant {
                uri: uri(beside.map_or(line, |(_, uri, _)| uri))
                    .ok_or(M3u8Error::InvalidTag("address"))?,
                bandwidth: bandwidth.ok_or(M3u8Error::InvalidTag("BANDWIDTH"))?,
                codecs: tag.get("CODECS").map(str::to_owned),
            });
        }
    }
    if playlist.variants.is_empty() { Err(M3u8Error::Empty) } else { Ok(playlist) }
}

/// The codecs that are decoded (RFC 6381): AAC LC, HE-AAC v1 and v2, MP3, FLAC, Opus.
const SOUND: [&str; 8] =
    ["mp4a.40.2", "mp4a.40.5", "mp4a.40.29", "mp4a.40.34", "mp4a.69", "mp4a.6B", "fLaC", "Opus"];
