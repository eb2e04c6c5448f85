//! A device of ALSA that records.
//!
//! Reading does not wait for samples, but the library may wait for a plug-in, such as one that has
//! a sound server behind it.

use std::io;

use aulos_core::{Frames, Instant, SampleSpec, Span};

use super::pcm::PcmConfig;
use super::sys::{Alsa, Direction, Pcm};
use super::{DEFAULT, LIBRARY, formats, name, no_library};
use crate::capture::device::{CaptureDevice, CaptureError};

/// An open device.
#[derive(Debug)]
pub(crate) struct AlsaCapture {
    pcm: Pcm,
    device: String,
    spec: SampleSpec,
    overruns: u64,
    /// When samples came last.
    active_at: Instant,
}

impl AlsaCapture {
    /// Opens a device, or the default one, and starts it. Rate, channels and format are those of
    /// the device that are nearest to `spec`.
    pub(crate) fn open(
        device: Option<&str>,
        spec: SampleSpec,
        now: Instant,
    ) -> Result<Self, CaptureError> {
        let missing = || CaptureError::Device { name: LIBRARY.to_owned(), error: no_library() };
        let alsa = Alsa::load().ok_or_else(missing)?;
        let device = device.unwrap_or(DEFAULT);
        let start = || {
            let mut pcm = Pcm::open(&alsa, device, Direction::Capture)?;
            let buffer = spec.rate.frames(BUFFER);
            let wanted = PcmConfig { spec, buffer, period: Frames(buffer.0 / PERIODS) };
            let granted = pcm.configure(wanted, &formats(spec.format))?;
            pcm.prepare()?;
            pcm.start()?;
            Ok((pcm, granted.spec))
        };
        match start() {
            Ok((pcm, spec)) => {
                let device = device.to_owned();
                Ok(Self { pcm, device, spec, overruns: 0, active_at: now })
            }
            Err(error) if is_missing(&error) => {
                let known = alsa.devices(Direction::Capture).unwrap_or_default();
                let known = known.into_iter().map(|(name, _)| name).collect();
                Err(CaptureError::Unknown { name: name(device), known })
            }
            Err(error) => Err(CaptureError::Device { name: name(device), error }),
        }
    }

    fn failed(&self, error: io::Error) -> CaptureError {
        CaptureError::Device { name: name(&self.device), error }
    }

    /// Goes on after an overrun, or after the system was suspended.
    fn recover(&mut self) -> io::Result<()> {
        self.overruns += 1;
        self.pcm.prepare()?;
        self.pcm.start()
    }
}

impl CaptureDevice for AlsaCapture {
    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn read(&mut self, now: Instant, into: &mut [u8]) -> Result<usize, CaptureError> {
        match self.pcm.read(into, self.spec) {
            Ok(Frames::ZERO) if now.since(self.active_at) < STALL || into.is_empty() => Ok(0),
            Ok(Frames::ZERO) => Err(self.failed(io::Error::other("it delivers nothing"))),
            Ok(frames) => {
                self.active_at = now;
                Ok(self.spec.bytes(frames))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ESTRPIPE)) => {
                self.recover().map_err(|error| self.failed(error))?;
                Ok(0)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn is_suspended(&self) -> bool {
        false
    }

    fn overruns(&self) -> u64 {
        self.overruns
    }
}

/// The library's own error has no number for a name that is in no configuration.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// What the device keeps while it is not read: much more than the pauses between reads.
const BUFFER: Span = Span::from_millis(400);

/// Of a buffer; samples come with each.
const PERIODS: u64 = 20;

/// A device that delivers nothing for so long is opened again.
const STALL: Span = Span::from_secs(3);
