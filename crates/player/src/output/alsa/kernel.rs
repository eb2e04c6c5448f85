//! Sound cards by the kernel's own interface, for programs that cannot load ALSA's library: static
//! ones.
//!
//! The kernel has the cards as they are: no sharing with other programs, no conversion, none of the
//! devices that the library's configuration defines.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::os::fd::OwnedFd;

use aulos_core::{Frames, SampleFormat, SampleSpec};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::ioctl::{HwParams, IntervalParameter, MaskParameter, PcmCalls, SwParams};
use super::pcm::{Pcm, PcmConfig, PcmStatus, format_number};
use crate::clock;
use crate::output::device::{DeviceInfo, OutputError};

/// A device of a card, or the first one that can play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::output) struct KernelDevice(Option<(String, u8)>);

impl FromStr for KernelDevice {
    type Err = ();

    /// Parses `CARD[,DEVICE]`, where the card is its number or its id.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (card, device) = text.split_once(',').unwrap_or((text, "0"));
        let is_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if card.is_empty() || !card.bytes().all(is_id) {
            return Err(());
        }
        Ok(Self(Some((card.to_owned(), device.parse().map_err(drop)?))))
    }
}

impl fmt::Display for KernelDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((card, device)) => write!(f, "alsa-hw:{card},{device}"),
            None => f.write_str("alsa-hw"),
        }
    }
}

impl KernelDevice {
    pub(super) fn open(&self) -> io::Result<Box<dyn Pcm>> {
        let (card, device) = match &self.0 {
            Some((card, device)) => (card_number(card)?, *device),
            None => first_device()?,
        };
        let path = format!("/dev/snd/pcmC{card}D{device}p");
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match open(&path, flags, Mode::empty()) {
            Ok(calls) => Ok(Box::new(KernelPcm::new(calls))),
            Err(error) => Err(open_error(error, &path)),
        }
    }
}

/// Whether there is a card that can play; it may be busy.
pub(in crate::output) fn is_available() -> Result<(), OutputError> {
    first_device().map(drop).map_err(list_error)
}

/// The devices that can play.
pub(in crate::output) fn list_devices() -> Result<Vec<DeviceInfo>, OutputError> {
    let list = read_list().map_err(list_error)?;
    let info = |(card, device, name): (u8, u8, &str)| {
        let id = std::fs::read_to_string(format!("{CARDS}/card{card}/id"));
        let id = id.map_or_else(|_| card.to_string(), |id| id.trim().to_owned());
        DeviceInfo { output: format!("alsa-hw:{id},{device}"), description: name.to_owned() }
    };
    Ok(playback_devices(&list).map(info).collect())
}

fn list_error(error: io::Error) -> OutputError {
    OutputError::Device { name: "alsa-hw".to_owned(), error }
}

fn first_device() -> io::Result<(u8, u8)> {
    let list = read_list()?;
    let first = playback_devices(&list).next();
    first.map(|(card, device, _)| (card, device)).ok_or_else(no_card)
}

fn read_list() -> io::Result<String> {
    std::fs::read_to_string(format!("{CARDS}/pcm")).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => no_card(),
        _ => error,
    })
}

fn no_card() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the kernel has no sound card that can play")
}

/// The lines of the kernel's list: `00-03: HDMI 0 : HDMI 0 : playback 1`.
fn playback_devices(list: &str) -> impl Iterator<Item = (u8, u8, &str)> {
    list.lines().filter_map(|line| {
        let (numbers, rest) = line.split_once(": ")?;
        let (card, device) = numbers.split_once('-')?;
        let (name, directions) = rest.split_once(" : ")?;
        let plays = directions.split(" : ").any(|one| one.starts_with("playback"));
        Some((card.parse().ok()?, device.parse().ok()?, name.trim())).filter(|_| plays)
    })
}

fn card_number(card: &str) -> io::Result<u8> {
    if let Ok(number) = card.parse() {
        return Ok(number);
    }
    // A card's id is a link to the folder of its number.
    let link = std::fs::read_link(format!("{CARDS}/{card}")).ok();
    let number = link.and_then(|to| to.to_str()?.strip_prefix("card")?.parse().ok());
    let text = "no such card; --list-outputs prints those that there are";
    number.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, text))
}

fn open_error(error: Errno, path: &str) -> io::Error {
    let (kind, text) = match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            (io::ErrorKind::NotFound, "no such device; --list-outputs prints those that there are")
        }
        Errno::ACCESS | Errno::PERM => (
            io::ErrorKind::PermissionDenied,
            "permission denied; the user of the player must be in the group `audio`",
        ),
        Errno::BUSY | Errno::AGAIN => {
            (io::ErrorKind::ResourceBusy, "another program is using it, perhaps a sound server")
        }
        other => return other.into(),
    };
    io::Error::new(kind, format!("{path}: {text}"))
}

/// An open device.
#[derive(Debug)]
pub(super) struct KernelPcm<C> {
    calls: C,
    buffer: Frames,
}

impl KernelPcm<OwnedFd> {
    const fn new(calls: OwnedFd) -> Self {
        Self { calls, buffer: Frames::ZERO }
    }
}

impl<C: PcmCalls> KernelPcm<C> {
    #[cfg(test)]
    pub(super) const fn simulated(calls: C) -> Self {
        Self { calls, buffer: Frames::ZERO }
    }

    /// Narrows a set to one number.
    fn fix(
        &mut self,
        params: &mut HwParams,
        which: IntervalParameter,
        (value, unit): (u32, &str),
    ) -> io::Result<()> {
        let possible = params.range(which);
        params.narrow(which, &(value..=value));
        self.calls.refine(params).map_err(|error| match error {
            Errno::INVAL => {
                let (least, most) = possible.into_inner();
                unsupported(&format!("{value} {unit}, but {least} to {most}"))
            }
            other => other.into(),
        })
    }

    #[allow(clippy::useless_conversion, reason = "words have 32 bits elsewhere")]
    fn set_software(&mut self, granted: PcmConfig) -> io::Result<()> {
        let long = |frames: Frames| frames.0.try_into().unwrap_or(core::ffi::c_ulong::MAX >> 1);
        let mut params = SwParams::new(long(granted.period), long(granted.buffer));
        Ok(self.calls.set_software(&mut params)?)
    }
}

impl<C: PcmCalls> Pcm for KernelPcm<C> {
    fn configure(&mut self, wanted: PcmConfig, formats: &[SampleFormat]) -> io::Result<PcmConfig> {
        use IntervalParameter::{BufferSize, Channels, PeriodSize, Rate};
        let mut spec = wanted.spec;
        let mut params = HwParams::any();
        params.fix(MaskParameter::Access, RW_INTERLEAVED);
        self.calls.refine(&mut params)?;
        let channels = u32::try_from(spec.layout.channels()).unwrap_or(u32::MAX);
        self.fix(&mut params, Channels, (channels, "channels"))?;
        let takes = |one: &&SampleFormat| params.has(MaskParameter::Format, format_number(**one));
        let format = formats.iter().find(takes).copied();
        spec.format = format.ok_or_else(|| unsupported("16, 24 or 32 bits"))?;
        params.fix(MaskParameter::Format, format_number(spec.format));
        self.calls.refine(&mut params)?;
        self.fix(&mut params, Rate, (spec.rate.hz(), "Hz"))?;
        let frames = |frames: Frames| u32::try_from(frames.0).unwrap_or(u32::MAX);
        let (period, buffer) = (frames(wanted.period), frames(wanted.buffer));
        let least = *params.range(BufferSize).start();
        // What is wanted; fewer or more periods of it; the shortest buffer; what there is.
        for (periods, buffers) in [
            (period..=period.saturating_mul(2), 0..=buffer),
            (period / 4..=buffer, 0..=buffer),
            (0..=u32::MAX, 0..=least.max(buffer)),
            (0..=u32::MAX, 0..=u32::MAX),
        ] {
            let mut next = params;
            next.narrow(PeriodSize, &periods);
            next.narrow(BufferSize, &buffers);
            match self.calls.set_hardware(&mut next) {
                Err(Errno::INVAL) => continue,
                other => other?,
            }
            let granted = |which| Frames((*next.range(which).start()).max(1).into());
            let granted =
                PcmConfig { spec, buffer: granted(BufferSize), period: granted(PeriodSize) };
            self.buffer = granted.buffer;
            self.set_software(granted)?;
            return Ok(granted);
        }
        Err(unsupported("any length of the buffer"))
    }

    fn prepare(&mut self) -> io::Result<()> {
        Ok(self.calls.prepare()?)
    }

    fn start(&mut self) -> io::Result<()> {
        Ok(self.calls.start()?)
    }

    fn stop(&mut self) -> io::Result<()> {
        Ok(self.calls.drop()?)
    }

    /// What the hardware holds beyond its buffer counts as filled: at most some frames less.
    fn writable_frames(&mut self) -> io::Result<Frames> {
        let waiting = u64::try_from(self.calls.delay()?).unwrap_or(0);
        Ok(Frames(self.buffer.0.saturating_sub(waiting)))
    }

    fn write(&mut self, bytes: &[u8], spec: SampleSpec) -> io::Result<Frames> {
        match self.calls.write(bytes, spec.frame_bytes()) {
            Ok(frames) => Ok(Frames(u64::try_from(frames).unwrap_or(0))),
            Err(Errno::AGAIN) => Ok(Frames::ZERO),
            Err(error) => Err(error.into()),
        }
    }

    #[allow(clippy::useless_conversion, reason = "words have 32 bits elsewhere")]
    fn status(&mut self) -> io::Result<PcmStatus> {
        let delay = self.calls.delay()?;
        // Directly after the call: a position that is told late is a bound as well.
        Ok(PcmStatus { is_running: true, delay: i64::from(delay), at: clock::now() })
    }
}

fn unsupported(what: &str) -> io::Error {
    let text = format!("it does not take {what}; `alsa:plughw:CARD` converts");
    io::Error::new(io::ErrorKind::Unsupported, text)
}

const CARDS: &str = "/proc/asound";

/// `SNDRV_PCM_ACCESS_RW_INTERLEAVED`.
const RW_INTERLEAVED: u8 = 3;

#[cfg(test)]
mod tests;
