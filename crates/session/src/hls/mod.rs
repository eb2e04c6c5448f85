//! HLS out: a station's sound as segments on one absolute grid.
//!
//! ```text
//!  samples with their place on the grid -> Segmenter -> SegmentSet -> HlsWindow -> playlists, bytes
//! ```
//!
//! The grid counts samples since the Unix epoch: segment *n* has the samples `[n * S, (n + 1) * S)`,
//! and frame *k* of an encoder those of `[k * F, (k + 1) * F)`. So names, media sequence and
//! timestamps follow from the place of a sample alone, and two servers that place the samples of
//! one origin alike ([`OriginGrid`]) make the same bytes: `docs/decisions/hls.md`.

mod feed;
mod format;
mod object;
mod origin;
mod publisher;
mod rendition;
mod segmenter;
#[cfg(test)]
mod tests;
mod titles;
mod window;

pub use feed::{ChunkFeed, MAX_CLOCK_ERROR, OutputGrid, utc_at};
pub use format::{HlsContainer, HlsFormat, UnsupportedHls};
pub use object::HlsObject;
pub use origin::{OriginGrid, OriginPlace};
pub use publisher::{HlsPublisher, PublishAction, PublishResult, PublisherStatus};
pub use segmenter::{SampleKind, SegmentSet, Segmenter, SegmenterStats};
pub use window::{HlsBody, HlsWindow, WindowConfig};

/// More samples than these, as time, are not filled in: the stream is broken off.
pub const MAX_FILL: aulos_core::Span = aulos_core::Span::from_secs(10);

/// What an encoder gets before its output counts as that of every server: by then it gives the
/// same bytes wherever it has begun. AAC needs 3.2 s. libopus does so with a constant bit rate alone: with a variable
/// one, what it takes for a packet depends on all before.
pub const WARM_UP: aulos_core::Span = aulos_core::Span::from_secs(10);
