//! Devices that record: what the server's sources `pulse:` and `alsa:` read.
//!
//! They are here because a player has the same sound servers and the same library. Nothing waits
//! for samples; a device of ALSA may still wait for its plug-in.

pub(crate) mod device;

use aulos_core::{Instant, SampleSpec};

pub use device::{CaptureDevice, CaptureError};

#[cfg(feature = "alsa")]
use crate::output::AlsaCapture;
#[cfg(feature = "pulse")]
use crate::output::PulseCapture;

/// A device that records, and the spec that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "created by its users")]
pub struct CaptureConfig {
    /// How the device is reached.
    pub api: CaptureBackend,
    /// Its name; `None` for the default device.
    pub device: Option<String>,
    /// The wanted spec.
    pub spec: SampleSpec,
}

/// The interfaces to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a new one is a new kind of source")]
pub enum CaptureBackend {
    /// PulseAudio, or PipeWire by the same protocol.
    #[cfg(feature = "pulse")]
    Pulse,
    /// ALSA.
    #[cfg(feature = "alsa")]
    Alsa,
}

impl CaptureConfig {
    /// Opens the device.
    ///
    /// # Errors
    /// There is no such device, it is busy or not permitted, or the sound server does not run.
    pub fn open(&self, now: Instant) -> Result<Box<dyn CaptureDevice>, CaptureError> {
        let device = self.device.as_deref();
        Ok(match self.api {
            #[cfg(feature = "pulse")]
            CaptureBackend::Pulse => Box::new(PulseCapture::open(device, self.spec, now)?),
            #[cfg(feature = "alsa")]
            CaptureBackend::Alsa => Box::new(AlsaCapture::open(device, self.spec, now)?),
        })
    }
}
