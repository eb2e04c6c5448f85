//! ALSA: a sound card, or whatever the system's configuration calls a device; by its library, or by
//! the kernel's interface below it.
//!
//! The device is asked by a timer instead of its descriptors: a plug-in may have any number of
//! them, and the player has to write at its own times anyhow.

#[cfg(feature = "alsa")]
mod capture;
#[cfg(feature = "alsa-hw")]
mod ioctl;
#[cfg(feature = "alsa-hw")]
mod kernel;
mod pcm;
#[cfg(feature = "alsa")]
mod sys;

use std::io;
#[cfg(feature = "alsa")]
use std::sync::Arc;

use aulos_core::{Frames, Instant, SampleFormat, SampleSpec, Span};
use aulos_dsp::Dither;
use aulos_session::player::DevicePosition;

#[cfg(feature = "alsa")]
pub(crate) use capture::AlsaCapture;
#[cfg(feature = "alsa-hw")]
pub(super) use kernel::{KernelDevice, is_available as has_card, list_devices as list_cards};
use pcm::{Pcm, PcmConfig};
#[cfg(feature = "alsa")]
use sys::{Alsa, Direction};

use super::card::{CardConfig, VirtualCard};
#[cfg(feature = "alsa")]
use super::device::DeviceInfo;
use super::device::{DeviceEvent, Output, OutputError};
use super::positions::{DevicePositions, wait_until};
use crate::clock;

/// Whether the default device is there; it may be busy.
#[cfg(feature = "alsa")]
pub(super) fn is_available() -> Result<(), OutputError> {
    match sys::Pcm::open(&load()?, DEFAULT, Direction::Playback) {
        Err(error) if error.kind() != io::ErrorKind::ResourceBusy => {
            Err(OutputError::Device { name: name(DEFAULT), error })
        }
        _ => Ok(()),
    }
}

/// The devices that can play.
#[cfg(feature = "alsa")]
pub(super) fn list_devices() -> Result<Vec<DeviceInfo>, OutputError> {
    let devices = load()?.devices(Direction::Playback);
    let devices =
        devices.map_err(|error| OutputError::Device { name: "ALSA".to_owned(), error })?;
    let info =
        |(device, description): (String, _)| DeviceInfo { output: name(&device), description };
    Ok(devices.into_iter().map(info).collect())
}

#[cfg(feature = "alsa")]
fn load() -> Result<Arc<Alsa>, OutputError> {
    let missing = |error| OutputError::Open { name: LIBRARY.to_owned(), error };
    Alsa::load().ok_or_else(no_library).map_err(missing)
}

#[cfg(feature = "alsa")]
fn no_library() -> io::Error {
    io::Error::other("libasound.so.2 is missing; install the package libasound2")
}

#[cfg(feature = "alsa")]
fn name(device: &str) -> String {
    format!("alsa:{device}")
}

/// A device, by the interface that opens it.
#[derive(Debug)]
enum Device {
    /// Of the library, by its name.
    #[cfg(feature = "alsa")]
    Library(Arc<Alsa>, String),
    #[cfg(feature = "alsa-hw")]
    Kernel(KernelDevice),
    #[cfg(all(test, feature = "alsa-hw"))]
    Simulated(fn() -> io::Result<Box<dyn Pcm>>),
}

impl Device {
    fn name(&self) -> String {
        match self {
            #[cfg(feature = "alsa")]
            Self::Library(_, device) => name(device),
            #[cfg(feature = "alsa-hw")]
            Self::Kernel(device) => device.to_string(),
            #[cfg(all(test, feature = "alsa-hw"))]
            Self::Simulated(_) => "simulated".to_owned(),
        }
    }

    fn open(&self) -> io::Result<Box<dyn Pcm>> {
        match self {
            #[cfg(feature = "alsa")]
            Self::Library(alsa, device) => {
                Ok(Box::new(sys::Pcm::open(alsa, device, Direction::Playback)?))
            }
            #[cfg(feature = "alsa-hw")]
            Self::Kernel(device) => device.open(),
            #[cfg(all(test, feature = "alsa-hw"))]
            Self::Simulated(open) => open(),
        }
    }
}

/// A device of ALSA.
#[derive(Debug)]
pub(super) struct AlsaOutput {
    device: Device,
    config: CardConfig,
    /// What was asked for; otherwise that of the stream.
    format: Option<SampleFormat>,
    /// What is played while the output is open.
    spec: Option<SampleSpec>,
    open: Option<OpenDevice>,
    retry_at: Instant,
    event: Option<DeviceEvent>,
    underruns: u64,
    dither: Dither,
}

#[derive(Debug)]
struct OpenDevice {
    pcm: Box<dyn Pcm>,
    granted: PcmConfig,
    latency: Span,
    positions: DevicePositions,
    /// Frames that the device has taken.
    taken: u64,
    /// Bytes that it has not taken yet.
    pending: Vec<u8>,
    /// The clock of a device that has none, as `null`: it takes everything at once.
    card: Option<VirtualCard>,
    /// When its status is asked for next.
    next_status: Instant,
    /// Those that are not counted yet.
    underruns: u64,
}

impl AlsaOutput {
    #[cfg(feature = "alsa")]
    pub(super) fn new(
        device: Option<&str>,
        config: CardConfig,
        format: Option<SampleFormat>,
    ) -> Result<Self, OutputError> {
        let device = Device::Library(load()?, device.unwrap_or(DEFAULT).to_owned());
        Ok(Self::with(device, config, format))
    }

    /// A device of the kernel.
    #[cfg(feature = "alsa-hw")]
    pub(super) fn kernel(
        device: KernelDevice,
        config: CardConfig,
        format: Option<SampleFormat>,
    ) -> Self {
        Self::with(Device::Kernel(device), config, format)
    }

    #[cfg(all(test, feature = "alsa-hw"))]
    fn simulated(open: fn() -> io::Result<Box<dyn Pcm>>, buffer: Span) -> Self {
        Self::with(Device::Simulated(open), CardConfig { buffer, ..super::ALSA_CARD }, None)
    }

    fn with(device: Device, config: CardConfig, format: Option<SampleFormat>) -> Self {
        Self {
            device,
            config,
            format,
            spec: None,
            open: None,
            retry_at: Instant::ZERO,
            event: None,
            underruns: 0,
            dither: Dither::default(),
        }
    }

    /// Opens the device, or serves it.
    fn open_or_poll(&mut self, spec: SampleSpec, now: Instant) -> io::Result<()> {
        let was_ready = self.is_ready();
        match &mut self.open {
            Some(open) => {
                let result = open.open_or_poll(now);
                self.underruns += core::mem::take(&mut open.underruns);
                result?;
            }
            None if now >= self.retry_at => {
                self.open = Some(OpenDevice::open(&self.device, spec, self.config)?);
            }
            None => {}
        }
        if self.is_ready() && !was_ready {
            self.event = Some(DeviceEvent::Playing(self.device.name()));
        }
        Ok(())
    }
}

impl OpenDevice {
    fn open(device: &Device, spec: SampleSpec, config: CardConfig) -> io::Result<Self> {
        let mut pcm = device.open()?;
        let buffer = spec.rate.frames(config.buffer);
        let wanted = PcmConfig { spec, buffer, period: Frames(buffer.0 / PERIODS) };
        let granted = pcm.configure(wanted, &formats(spec.format))?;
        let now = clock::now();
        let mut open = Self {
            pcm,
            granted,
            latency: config.latency,
            positions: DevicePositions::new(spec.rate, config.latency, now),
            taken: 0,
            pending: Vec::new(),
            card: None,
            next_status: now,
            underruns: 0,
        };
        open.restart()?;
        open.detect_clockless()?;
        Ok(open)
    }

    /// Begins to play silence: the device is new, or was interrupted.
    fn restart(&mut self) -> io::Result<()> {
        let now = clock::now();
        self.positions = DevicePositions::new(self.granted.spec.rate, self.latency, now);
        self.taken = 0;
        self.pending.clear();
        self.next_status = now;
        self.pcm.prepare()?;
        self.fill_silence(self.granted.buffer)?;
        self.pcm.start()
    }

    /// A device that has already played what it was just given has no clock.
    fn detect_clockless(&mut self) -> io::Result<()> {
        let status = self.pcm.status()?;
        if status.delay > 0 || self.pcm.writable_frames()? < self.granted.buffer {
            return Ok(());
        }
        let rate = self.granted.spec.rate;
        let config = CardConfig {
            ppm: 0.0,
            latency: self.latency,
            buffer: rate.span(self.granted.buffer),
            period: rate.span(self.granted.period),
            patience: Span::ZERO,
        };
        self.card = Some(VirtualCard::new(config, rate, clock::now()));
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.card.is_some() || self.positions.is_settled()
    }

    fn open_or_poll(&mut self, now: Instant) -> io::Result<()> {
        match self.progress(now) {
            // An underrun, or the system was suspended.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ESTRPIPE)) => {
                // Before the device plays it is no fault.
                let is_underrun = error.raw_os_error() == Some(libc::EPIPE) && self.is_ready();
                self.underruns += u64::from(is_underrun);
                self.restart()
            }
            other => other,
        }
    }

    fn progress(&mut self, now: Instant) -> io::Result<()> {
        self.flush()?;
        if self.card.is_some() || now < self.next_status {
            return Ok(());
        }
        let status = self.pcm.status()?;
        let asked = clock::now();
        if !status.is_running {
            return Err(io::Error::from_raw_os_error(libc::EPIPE));
        }
        let age = asked - status.at;
        let at = if (Span::ZERO..MAX_AGE).contains(&age) { status.at } else { asked };
        let taken = i64::try_from(self.taken).unwrap_or(i64::MAX);
        self.positions.report(taken.saturating_sub(status.delay), at);
        if self.positions.is_stuck(now) {
            return Err(io::Error::other("it does not play, or does not report its position"));
        }
        let mut interval = self.granted.spec.rate.span(self.granted.period);
        if !self.positions.is_settled() {
            interval = interval.min(HASTY_INTERVAL);
            let room = self.pcm.writable_frames()?;
            self.fill_silence(room)?;
        }
        self.next_status = asked + interval;
        Ok(())
    }

    fn fill_silence(&mut self, frames: Frames) -> io::Result<()> {
        let spec = self.granted.spec;
        self.pending.resize(self.pending.len() + spec.bytes(frames), spec.format.silence());
        self.positions.wrote(frames);
        self.flush()
    }

    /// Passes on what the device takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            let frames = self.pcm.write(&self.pending, self.granted.spec)?;
            if frames == Frames::ZERO {
                break;
            }
            self.taken += frames.0;
            self.pending.drain(..self.granted.spec.bytes(frames).min(self.pending.len()));
        }
        Ok(())
    }

    fn writable_frames(&mut self, now: Instant) -> Frames {
        if let Some(card) = &mut self.card {
            return card.writable_frames(now);
        }
        // A failure shows again when the device is served next.
        let room = self.pcm.writable_frames().unwrap_or(Frames::ZERO);
        let waiting = self.pending.len() / self.granted.spec.frame_bytes();
        Frames(room.0.min(self.granted.buffer.0).saturating_sub(waiting as u64))
    }
}

impl Output for AlsaOutput {
    fn open(&mut self, mut spec: SampleSpec, now: Instant) -> Result<(), OutputError> {
        spec.format = self.format.unwrap_or(spec.format);
        self.spec = Some(spec);
        self.progress(now)
    }

    fn progress(&mut self, now: Instant) -> Result<(), OutputError> {
        let Some(spec) = self.spec else { return Ok(()) };
        if let Err(error) = self.open_or_poll(spec, now) {
            self.open = None;
            self.retry_at = now + RETRY;
            let error = OutputError::Device { name: self.device.name(), error };
            self.event = Some(DeviceEvent::Failed(error));
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.open.as_ref().is_some_and(OpenDevice::is_ready)
    }

    fn underruns(&self) -> u64 {
        self.underruns
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.event.take()
    }

    fn writable_frames(&mut self, now: Instant) -> Frames {
        self.open.as_mut().map_or(Frames::ZERO, |open| open.writable_frames(now))
    }

    fn period(&self) -> Frames {
        self.open.as_ref().map_or(Frames::ZERO, |open| open.granted.period)
    }

    fn write(&mut self, samples: &[f32]) -> Result<(), OutputError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let spec = open.granted.spec;
        let frames = Frames::from(samples.len() / spec.layout.channels());
        let start = open.pending.len();
        open.pending.resize(start + samples.len() * spec.format.bytes(), 0);
        self.dither.encode(spec.format, samples, &mut open.pending[start..]);
        open.positions.wrote(frames);
        if let Some(card) = &mut open.card {
            card.wrote(frames);
        }
        // A failure shows again when the device is served next.
        drop(open.flush());
        Ok(())
    }

    fn position(&self, now: Instant) -> DevicePosition {
        match &self.open {
            Some(OpenDevice { card: Some(card), .. }) => card.position(now),
            Some(open) => open.positions.position(now),
            None => DevicePosition { played: Frames::ZERO, at: now },
        }
    }

    fn drain(&mut self) {
        if let Some(OpenDevice { card: None, positions, .. }) = &self.open {
            let until = positions.sounded_at();
            wait_until(self, until);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.spec?;
        Some(match &self.open {
            Some(OpenDevice { card: Some(card), .. }) => card.next_room(),
            Some(open) => open.next_status,
            None => self.retry_at,
        })
    }

    fn close(&mut self) -> Result<(), OutputError> {
        self.spec = None;
        if let Some(mut open) = self.open.take() {
            // It may be gone.
            drop(open.pcm.stop());
        }
        Ok(())
    }
}

/// The formats to try: the wanted one, those that lose nothing, the others.
fn formats(wanted: SampleFormat) -> Vec<SampleFormat> {
    use SampleFormat::{F32, S16Le, S24In32Le, S24Le, S32Le};
    let all = [S16Le, S24In32Le, S32Le, S24Le, F32];
    let keeps = |format: &SampleFormat| *format != wanted && format.bits() >= wanted.bits();
    let loses = |format: &SampleFormat| format.bits() < wanted.bits();
    [wanted]
        .into_iter()
        .chain(all.into_iter().filter(keeps))
        .chain(all.into_iter().filter(loses))
        .collect()
}

#[cfg(feature = "alsa")]
const DEFAULT: &str = "default";

/// In messages.
#[cfg(feature = "alsa")]
const LIBRARY: &str = "ALSA's library";

/// Periods of a buffer, as with snapclient.
const PERIODS: u64 = 4;

/// Between attempts to open the device.
const RETRY: Span = Span::from_secs(1);

/// Between questions while the device settles.
const HASTY_INTERVAL: Span = Span::from_micros(4_300);

/// A status that is older, or from the future, has the stamp of another clock.
const MAX_AGE: Span = Span::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_lose_nothing_come_first() {
        use SampleFormat::{F32, S8, S16Le, S24In32Le, S24Le, S32Le};
        assert_eq!(formats(S16Le), [S16Le, S24In32Le, S32Le, S24Le, F32]);
        assert_eq!(formats(S24In32Le), [S24In32Le, S32Le, S24Le, F32, S16Le]);
        assert_eq!(formats(F32), [F32, S32Le, S16Le, S24In32Le, S24Le]);
        assert_eq!(formats(S8).len(), 6);
    }

    #[cfg(feature = "alsa")]
    #[test]
    fn a_device_that_does_not_exist_is_tried_again_each_second() {
        let Ok(mut output) = AlsaOutput::new(Some("no-such-device"), super::super::ALSA_CARD, None)
        else {
            return println!("skipped: no libasound2");
        };
        let start = clock::now();
        output.open("48000:16:2".parse().unwrap(), start).unwrap();
        let Some(DeviceEvent::Failed(error)) = output.poll_event() else { panic!("{output:?}") };
        assert_eq!(error.to_string(), "alsa:no-such-device: no such device");
        assert!(!output.is_ready() && output.poll_timeout() == Some(start + RETRY));
        output.progress(start + RETRY - Span::from_nanos(1)).unwrap();
        assert!(output.poll_event().is_none());
        output.progress(start + RETRY).unwrap();
        assert!(output.poll_event().is_some());
        output.close().unwrap();
        assert_eq!(output.poll_timeout(), None);
    }
}
