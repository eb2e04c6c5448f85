//! State of web radio sources.

use aulos_core::{Instant, Span};
use aulos_io::feed::RadioStreamInfo;
use aulos_proto::titles::TrackMetadata;
use aulos_session::hls_source::HlsSourceStatus;
use aulos_session::radio::RadioInfo;

/// State of a web radio source, for users to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RadioState {
    /// What it is doing.
    pub phase: RadioPhase,
    /// Why it does not play, while it does not.
    pub reason: Option<String>,
    /// When it is tried again, while it does not play.
    pub retry_at: Option<Instant>,
    /// Whether an early retry is pointless: the stream does not exist, or cannot be decoded.
    pub is_permanent: bool,
    /// What the station reports about itself.
    pub station_info: RadioInfo,
    /// The current title, if known.
    pub title: Option<TrackMetadata>,
    /// Format of the audio.
    pub info: Option<RadioStreamInfo>,
    /// Number of connections that delivered a body.
    pub connects: u64,
    /// Number of failed or broken connections.
    pub failures: u64,
    /// Number of redirects followed.
    pub redirects: u64,
    /// Number of times the packet parser had to resynchronize.
    pub resyncs: u64,
    /// Number of damaged packets.
    pub damaged: u64,
    /// Number of panics of codec libraries.
    pub codec_panics: u64,
    /// The HLS stream, while one plays.
    pub hls: Option<HlsSourceState>,
}

/// State of an HLS stream that is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HlsSourceState {
    /// What its client has found and counted.
    pub counts: HlsSourceStatus,
    /// Media that was fetched and is not released to the decoder yet.
    pub reserve: Span,
    /// How often there was none.
    pub dry_runs: u64,
    /// Parts per million by which it is played faster than by this machine's clock, to follow that
    /// of the sender.
    pub pace_ppm: f64,
}

/// Phase of a web radio source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RadioPhase {
    /// It connects to the stream.
    #[default]
    Connecting,
    /// It plays.
    Playing,
    /// It could not be reached, or broke off, and is tried again.
    Waiting,
    /// It was a file, and has ended.
    Finished,
    /// It is not needed, and is on cold stand-by.
    Standby,
}

impl RadioPhase {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Playing => "playing",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Standby => "resting",
        }
    }
}
