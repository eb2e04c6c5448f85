//! What the two ends of an insert have in common.

use aulos_core::{ChannelLayout, Frames, SampleRate, Span};

/// Configuration of an insert.
#[derive(Clone, Copy, Debug)]
pub struct InsertConfig {
    /// The station's sample rate.
    pub rate: SampleRate,
    /// The station's channels.
    pub layout: ChannelLayout,
    /// Frames per quantum of the station.
    pub quantum: Frames,
    /// The latency of the insert, kept from the first frame on, up to two seconds; `None` finds it
    /// by measurement.
    pub latency: Option<Span>,
    /// The delay of the program's sound against its input, in frames; `None` finds it by a signal
    /// that is sent through the program before the programme.
    pub delay: Option<Frames>,
}
