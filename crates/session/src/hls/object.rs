//! What HLS of a station consists of, as files or objects with an address.

use core::fmt;
use std::sync::Arc;

use aulos_proto::hls::{PLAYLIST_MEDIA_TYPE, SEGMENT_MEDIA_TYPE};

use super::format::HlsContainer;

/// The address of a playlist or segment below that of its station. Displays as
/// `flac/307000000.m4s`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_enums, reason = "what HLS consists of")]
pub enum HlsObject {
    /// The multivariant playlist.
    Multivariant,
    /// The media playlist of a rendition.
    Playlist(Arc<str>),
    /// An init segment.
    Init {
        /// The name of its rendition.
        rendition: Arc<str>,
        /// The digest of its bytes.
        tag: u64,
    },
    /// A media segment.
    Segment {
        /// The name of its rendition.
        rendition: Arc<str>,
        /// Its number on the grid.
        number: u64,
        /// What is around its frames.
        container: HlsContainer,
    },
}

impl HlsObject {
    /// The object of this address; `None` for one that no station has.
    #[must_use]
    pub fn parse(address: &str) -> Option<Self> {
        let Some((rendition, name)) = address.split_once('/') else {
            return (address == INDEX).then_some(Self::Multivariant);
        };
        let codec = rendition.split('-').next().unwrap_or_default();
        if !RENDITION_CODECS.contains(&codec) {
            return None;
        }
        let rendition = Arc::from(rendition);
        let object = if name == INDEX {
            Self::Playlist(rendition)
        } else if let Some(container) =
            HlsContainer::ALL.into_iter().find(|one| name.ends_with(one.suffix()))
        {
            let number = name.strip_suffix(container.suffix())?.parse().ok()?;
            Self::Segment { rendition, number, container }
        } else {
            let tag = name.strip_prefix(INIT_PREFIX)?.strip_suffix(INIT_SUFFIX)?;
            Self::Init { rendition, tag: u64::from_str_radix(tag, 16).ok()? }
        };
        // Numbers have other spellings, which are no addresses.
        (object.to_string() == address).then_some(object)
    }

    /// The part of its address behind the rendition.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Multivariant | Self::Playlist(_) => INDEX.to_owned(),
            Self::Init { tag, .. } => format!("{INIT_PREFIX}{tag:016x}{INIT_SUFFIX}"),
            Self::Segment { number, container, .. } => format!("{number}{}", container.suffix()),
        }
    }

    /// The name of its rendition; the multivariant playlist has none.
    #[must_use]
    pub fn rendition(&self) -> Option<&str> {
        match self {
            Self::Multivariant => None,
            Self::Playlist(rendition)
            | Self::Init { rendition, .. }
            | Self::Segment { rendition, .. } => Some(rendition),
        }
    }

    /// Its media type.
    #[must_use]
    pub const fn media_type(&self) -> &'static str {
        match self {
            Self::Multivariant | Self::Playlist(_) => PLAYLIST_MEDIA_TYPE,
            Self::Init { .. } => SEGMENT_MEDIA_TYPE,
            Self::Segment { container, .. } => container.media_type(),
        }
    }

    /// How long caches may keep it (`Cache-Control`).
    #[must_use]
    pub const fn cache_control(&self) -> &'static str {
        match self {
            Self::Multivariant => MULTIVARIANT_CACHE,
            Self::Playlist(_) => PLAYLIST_CACHE,
            Self::Init { .. } | Self::Segment { .. } => SEGMENT_CACHE,
        }
    }
}

impl fmt::Display for HlsObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rendition() {
            Some(rendition) => write!(f, "{rendition}/{}", self.name()),
            None => f.write_str(&self.name()),
        }
    }
}

/// The codecs of renditions, with which their names begin.
const RENDITION_CODECS: [&str; 3] = ["aac", "flac", "opus"];

/// The name of every playlist.
const INDEX: &str = "index.m3u8";
const INIT_PREFIX: &str = "init-";
const INIT_SUFFIX: &str = ".mp4";

/// A segment is never changed.
const SEGMENT_CACHE: &str = "max-age=31536000, immutable";
/// A playlist changes with every segment.
const PLAYLIST_CACHE: &str = "max-age=1";
const MULTIVARIANT_CACHE: &str = "max-age=60";
