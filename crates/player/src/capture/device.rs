//! What every device that records can do.

use core::fmt;
use std::io;

use aulos_core::{Instant, SampleSpec};

/// An open device that records.
pub trait CaptureDevice: fmt::Debug + Send {
    /// What it delivers, which may differ from what was asked for.
    fn spec(&self) -> SampleSpec;

    /// Reads samples that have arrived; returns the number of bytes, 0 if there are none.
    ///
    /// # Errors
    /// The device, its library or its server has failed. Then it is of no more use.
    fn read(&mut self, now: Instant, into: &mut [u8]) -> Result<usize, CaptureError>;

    /// Whether the system has suspended the device, so that it delivers nothing until it resumes.
    fn is_suspended(&self) -> bool;

    /// How often the device has lost samples because they were not read in time.
    fn overruns(&self) -> u64;
}

/// Why a device does not record.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptureError {
    /// It cannot be opened, or has failed.
    Device {
        /// The device or the sound server.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// There is no such device.
    Unknown {
        /// The device.
        name: String,
        /// Those that exist.
        known: Vec<String>,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { name, error } => match error.kind() {
                io::ErrorKind::PermissionDenied => write!(
                    f,
                    "{name}: permission denied; devices of ALSA need the group `audio`, a sound \
                     server the user whom it belongs to"
                ),
                io::ErrorKind::ResourceBusy => {
                    write!(f, "{name}: busy; another program records with it")
                }
                _ => write!(f, "{name}: {error}"),
            },
            Self::Unknown { name, known } if known.is_empty() => {
                write!(f, "{name}: no such device; there is none to record with")
            }
            Self::Unknown { name, known } => {
                write!(f, "{name}: no such device; there are {}", known.join(", "))
            }
        }
    }
}

impl core::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Device { error, .. } => Some(error),
            Self::Unknown { .. } => None,
        }
    }
}
