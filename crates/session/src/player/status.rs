//! How a player does, for people and for the server.

use aulos_core::{Ppm, Span};

use super::format::StreamFormat;
use super::playback::PlaybackStats;

/// The state of a player at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlayerStatus {
    /// Whether a server is connected.
    pub is_connected: bool,
    /// Whether content of the stream is playing, and not silence in its place.
    pub is_playing: bool,
    /// The stream of the server.
    pub stream: Option<StreamFormat>,
    /// Server's clock minus the local one.
    pub offset: Option<Span>,
    /// Error of `offset` that is exceeded about once in twenty times.
    pub offset_error: Option<Span>,
    /// Smallest delay of the network in one direction.
    pub network_delay: Option<Span>,
    /// How much faster than the local clock the server's clock runs.
    pub server_drift: Ppm,
    /// The same of the device's clock.
    pub device_drift: Ppm,
    /// From writing a frame to the device until it sounds.
    pub device_delay: Option<Span>,
    /// How far the content was ahead of its time, by both clocks, at the last rendering.
    pub sync_error: Option<Span>,
    /// How much faster than nominal the content is consumed to stay in time.
    pub rate: Ppm,
    /// Chunks that wait to be played.
    pub queued: usize,
    /// Chunks received.
    pub received: u64,
    /// Chunks dropped because too much was queued.
    pub no_room: u64,
    /// Events that the program around the player dropped because they were not read; set by it.
    pub lost_events: u64,
    /// How often the device stood still.
    pub device_slips: u64,
    /// How often the device had nothing to play, because the player was not in time; the device
    /// counts it, since the start of the player.
    pub device_underruns: u64,
    /// Counters of the play-out.
    pub playback: PlaybackStats,
}

impl PlaybackStats {
    pub(super) const fn add(&mut self, other: Self) {
        self.starts += other.starts;
        self.cuts += other.cuts;
        self.underruns += other.underruns;
        self.jumps += other.jumps;
        self.late += other.late;
        self.damaged += other.damaged;
        self.codec_panics += other.codec_panics;
    }
}
