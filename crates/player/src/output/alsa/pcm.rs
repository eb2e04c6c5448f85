//! What ALSA's library and the kernel's interface have in common.

use core::fmt;
use std::io;

use aulos_core::{Frames, Instant, SampleFormat, SampleSpec};

/// An open device. It does not block. An interruption is the error `EPIPE`, or `ESTRPIPE` after the
/// system was suspended.
pub(super) trait Pcm: fmt::Debug + Send {
    /// Sets what it plays: the spec of `wanted` in the first of the formats that it takes, exactly
    /// at its rate.
    fn configure(&mut self, wanted: PcmConfig, formats: &[SampleFormat]) -> io::Result<PcmConfig>;

    /// Prepares it for a start, also after an interruption.
    fn prepare(&mut self) -> io::Result<()>;

    fn start(&mut self) -> io::Result<()>;

    /// Stops at once.
    fn stop(&mut self) -> io::Result<()>;

    /// Frames that it takes now.
    fn writable_frames(&mut self) -> io::Result<Frames>;

    /// Writes whole frames of the granted spec; returns how many it took.
    fn write(&mut self, bytes: &[u8], spec: SampleSpec) -> io::Result<Frames>;

    fn status(&mut self) -> io::Result<PcmStatus>;
}

/// What a device plays or records, as it was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcmConfig {
    pub(super) spec: SampleSpec,
    pub(super) buffer: Frames,
    pub(super) period: Frames,
}

/// What a device does.
#[derive(Clone, Copy, Debug)]
pub(super) struct PcmStatus {
    pub(super) is_running: bool,
    /// Frames from the next one that is written to the loudspeaker.
    pub(super) delay: i64,
    /// When that was so, by the system's monotonic clock; zero if the device does not say it.
    pub(super) at: Instant,
}

/// `snd_pcm_format_t`.
pub(super) const fn format_number(format: SampleFormat) -> u8 {
    match format {
        SampleFormat::U8 => 1,
        SampleFormat::S8 => 0,
        SampleFormat::S16Le => 2,
        SampleFormat::S24In32Le => 6,
        SampleFormat::S32Le => 10,
        SampleFormat::F32 => 14,
        SampleFormat::S24Le => 32,
    }
}
