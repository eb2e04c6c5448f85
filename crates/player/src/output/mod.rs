//! Where frames go: one interface to all devices.

#[cfg(any(feature = "alsa", feature = "alsa-hw"))]
mod alsa;
mod card;
mod device;
mod null;
#[cfg(feature = "device")]
mod positions;
#[cfg(feature = "pulse")]
mod pulse;
mod stream;
mod wav;

use core::fmt;
use core::str::FromStr;
use std::io;
use std::path::PathBuf;

use aulos_core::{SampleFormat, Span};

#[cfg(feature = "alsa")]
pub(crate) use alsa::AlsaCapture;
pub use device::{DeviceInfo, OutputError};
#[cfg(feature = "pulse")]
pub(crate) use pulse::PulseCapture;

#[cfg(feature = "device")]
pub(crate) use device::DeviceEvent;
pub(crate) use device::Output;

#[cfg(any(feature = "alsa", feature = "alsa-hw"))]
use card::ALSA_CARD;
#[cfg(feature = "pulse")]
use card::PULSE_CARD;
use card::{AUTO_CARD, CardConfig, NULL_CARD, STREAM_CARD};
use null::NullOutput;
use stream::StreamOutput;

/// A device, as the command line names it.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputConfig {
    target: Target,
    card: CardConfig,
    /// Whether a file that exists is replaced.
    replaces_file: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// The first of the sound devices that there is.
    Auto,
    /// A sink of a sound server, or its default.
    #[cfg(feature = "pulse")]
    Pulse(Option<String>),
    /// A device of ALSA, or its default.
    #[cfg(feature = "alsa")]
    Alsa(Option<String>),
    /// A sound card of the kernel.
    #[cfg(feature = "alsa-hw")]
    AlsaHw(alsa::KernelDevice),
    Null,
    File(PathBuf),
    Stdout,
}

/// The sound devices of this machine, or why they cannot be listed.
#[must_use]
pub fn list_devices() -> Vec<Result<DeviceInfo, OutputError>> {
    type List = fn() -> Result<Vec<DeviceInfo>, OutputError>;
    let lists: &[List] = &[
        #[cfg(feature = "pulse")]
        pulse::list_sinks,
        #[cfg(feature = "alsa")]
        alsa::list_devices,
        #[cfg(feature = "alsa-hw")]
        alsa::list_cards,
    ];
    let mut all = Vec::new();
    for list in lists {
        match list() {
            Ok(devices) => all.extend(devices.into_iter().map(Ok)),
            Err(error) => all.push(Err(error)),
        }
    }
    all
}

impl OutputConfig {
    /// Whether samples go to standard output, so that nothing else may.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        self.target == Target::Stdout
    }

    /// The same output, which replaces a file with contents.
    #[must_use]
    pub fn replacing(self) -> Self {
        Self { replaces_file: true, ..self }
    }

    /// Whether it is a device that other programs may want.
    pub(crate) const fn is_device(&self) -> bool {
        !matches!(self.target, Target::Null | Target::File(_) | Target::Stdout)
    }

    /// Creates the device. Files are created here, so that an error comes before the first sound.
    pub(crate) fn create(
        &self,
        format: Option<SampleFormat>,
    ) -> Result<Box<dyn Output>, OutputError> {
        Ok(match &self.target {
            Target::Auto => return self.choose()?.create(format),
            #[cfg(feature = "pulse")]
            Target::Pulse(sink) => Box::new(pulse::PulseOutput::new(
                sink.clone(),
                (self.card.buffer, self.card.latency),
                format,
            )),
            #[cfg(feature = "alsa")]
            Target::Alsa(device) => {
                Box::new(alsa::AlsaOutput::new(device.as_deref(), self.card, format)?)
            }
            #[cfg(feature = "alsa-hw")]
            Target::AlsaHw(device) => {
                Box::new(alsa::AlsaOutput::kernel(device.clone(), self.card, format))
            }
            Target::Null => Box::new(NullOutput::new(self.card)),
            Target::File(path) => {
                Box::new(StreamOutput::file((path, self.replaces_file), self.card, format)?)
            }
            Target::Stdout => Box::new(StreamOutput::stdout(self.card, format)?),
        })
    }
}

impl OutputConfig {
    /// The device of this machine: its sound server, which other programs play to as well, or else
    /// ALSA's default device, or its first sound card.
    fn choose(&self) -> Result<Self, OutputError> {
        type Candidate = (fn() -> Result<(), OutputError>, Target, CardConfig);
        let candidates: [Candidate; _] = [
            #[cfg(feature = "pulse")]
            (pulse::is_available, Target::Pulse(None), PULSE_CARD),
            #[cfg(feature = "alsa")]
            (alsa::is_available, Target::Alsa(None), ALSA_CARD),
            #[cfg(feature = "alsa-hw")]
            (alsa::has_card, Target::AlsaHw(alsa::KernelDevice::default()), ALSA_CARD),
        ];
        let none = "this program was built without them; ";
        let mut reasons = if cfg!(feature = "device") { "" } else { none }.to_owned();
        for (is_available, target, card) in candidates {
            match is_available() {
                Ok(()) => {
                    let card = CardConfig { latency: self.card.latency, ..card };
                    return Ok(Self { target, card, replaces_file: false });
                }
                Err(error) => {
                    reasons.push_str(&error.to_string());
                    reasons.push_str("; ");
                }
            }
        }
        reasons.push_str("other outputs are null, file:PATH and stdout");
        let error = io::Error::other(reasons);
        Err(OutputError::Open { name: "a sound device".to_owned(), error })
    }
}

impl Default for OutputConfig {
    /// The sound device of this machine.
    fn default() -> Self {
        Self { target: Target::Auto, card: AUTO_CARD, replaces_file: false }
    }
}

impl FromStr for OutputConfig {
    type Err = InvalidOutput;

    /// Parses `auto`, `pulse[:SINK]`, `alsa[:DEVICE]`, `alsa-hw[:CARD[,DEVICE]]`, `null`,
    /// `file:PATH` or `stdout`, with options behind a `?`.
    fn from_str(text: &str) -> Result<Self, InvalidOutput> {
        let (name, options) = match text.rsplit_once('?') {
            Some((name, options)) if options.is_empty() || options.contains('=') => (name, options),
            _ => (text, ""),
        };
        let (target, mut card) = match name.split_once(':') {
            None if name == "null" => (Target::Null, NULL_CARD),
            None if name == "stdout" => (Target::Stdout, STREAM_CARD),
            None if name == "auto" => (Target::Auto, AUTO_CARD),
            #[cfg(feature = "pulse")]
            None if name == "pulse" => (Target::Pulse(None), PULSE_CARD),
            #[cfg(feature = "pulse")]
            Some(("pulse", sink)) if !sink.is_empty() => {
                (Target::Pulse(Some(sink.to_owned())), PULSE_CARD)
            }
            #[cfg(feature = "alsa")]
            None if name == "alsa" => (Target::Alsa(None), ALSA_CARD),
            #[cfg(feature = "alsa")]
            Some(("alsa", device)) if !device.is_empty() && !device.contains('\0') => {
                (Target::Alsa(Some(device.to_owned())), ALSA_CARD)
            }
            #[cfg(feature = "alsa-hw")]
            None if name == "alsa-hw" => (Target::AlsaHw(alsa::KernelDevice::default()), ALSA_CARD),
            #[cfg(feature = "alsa-hw")]
            Some(("alsa-hw", device)) => {
                let device = device.parse().map_err(|()| InvalidOutput::Name(text.to_owned()))?;
                (Target::AlsaHw(device), ALSA_CARD)
            }
            Some(("file", path)) if !path.is_empty() => (Target::File(path.into()), STREAM_CARD),
            _ => return Err(InvalidOutput::Name(text.to_owned())),
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let invalid = || InvalidOutput::Option(option.to_owned());
            let (key, value) = option.split_once('=').ok_or_else(invalid)?;
            let value: f64 = value.parse().map_err(|_| invalid())?;
            let is_null = target == Target::Null;
            let buffers = match &target {
                Target::Null => MIN_BUFFER..=MAX_MILLIS,
                Target::Auto | Target::File(_) | Target::Stdout => 1.0..=0.0,
                #[cfg(feature = "device")]
                _ => MIN_DEVICE_BUFFER..=MAX_DEVICE_BUFFER,
            };
            match key {
                "latency" if (0.0..=MAX_MILLIS).contains(&value) => card.latency = millis(value),
                "buffer" if buffers.contains(&value) => card.buffer = millis(value),
                "ppm" if is_null && value.abs() <= MAX_PPM => card.ppm = value,
                _ => return Err(invalid()),
            }
        }
        Ok(Self { target, card, replaces_file: false })
    }
}

/// Milliseconds with decimals.
#[allow(clippy::cast_possible_truncation, reason = "values are limited before")]
pub(crate) fn millis(value: f64) -> Span {
    Span::from_nanos((value * 1e6).round() as i64)
}

/// Why a text does not name a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidOutput {
    /// There is no such output.
    Name(String),
    /// The output does not have this option, or not with this value.
    Option(String),
}

impl fmt::Display for InvalidOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                let devices = [
                    #[cfg(feature = "pulse")]
                    "pulse[:SINK], ",
                    #[cfg(feature = "alsa")]
                    "alsa[:DEVICE], ",
                    #[cfg(feature = "alsa-hw")]
                    "alsa-hw[:CARD[,DEVICE]], ",
                ];
                let devices = <[&str]>::concat(&devices);
                write!(
                    f,
                    "unknown output `{name}`; expected auto, {devices}null, file:PATH or stdout"
                )
            }
            Self::Option(option) => write!(
                f,
                "invalid option `{option}` of the output; expected latency=MS (0 to \
                 {MAX_MILLIS:.0}), for pulse and alsa also buffer=MS ({MIN_DEVICE_BUFFER:.0} to \
                 {MAX_DEVICE_BUFFER:.0}), and for null buffer=MS ({MIN_BUFFER:.0} to \
                 {MAX_MILLIS:.0}) and ppm=N (-{MAX_PPM:.0} to {MAX_PPM:.0})"
            ),
        }
    }
}

impl core::error::Error for InvalidOutput {}

const MAX_MILLIS: f64 = 10_000.0;
const MIN_BUFFER: f64 = 1.0;
const MIN_DEVICE_BUFFER: f64 = 10.0;
const MAX_DEVICE_BUFFER: f64 = 2_000.0;
const MAX_PPM: f64 = 1_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_parsed_and_others_are_refused_with_the_reason() {
        let null: OutputConfig = "null?ppm=-50.5&latency=2.5&buffer=40".parse().unwrap();
        let (latency, buffer) = (Span::from_micros(2_500), Span::from_millis(40));
        assert_eq!(null.card, CardConfig { ppm: -50.5, latency, buffer, ..NULL_CARD });
        let file: OutputConfig = "file:/tmp/a?b.wav?latency=30".parse().unwrap();
        assert_eq!(file.target, Target::File("/tmp/a?b.wav".into()));
        assert_eq!(file.card.latency, Span::from_millis(30));
        let file: OutputConfig = "file:what?".parse().unwrap();
        assert_eq!(file.target, Target::File("what".into()));
        assert!("stdout".parse::<OutputConfig>().unwrap().is_stdout());
        for text in
            ["", "file", "file:", "alsa:", "alsa-hw:", "null:", "pulse:", "speaker", "auto:"]
        {
            let error = text.parse::<OutputConfig>().unwrap_err();
            assert_eq!(error, InvalidOutput::Name(text.to_owned()));
        }
        for text in [
            "null?ppm=nan",
            "null?x=1",
            "file:a?ppm=1",
            "file:a?buffer=50",
            "auto?buffer=50",
            "null?latency=-1",
            "null?ppm=2e3",
        ] {
            let error = text.parse::<OutputConfig>().unwrap_err();
            assert!(matches!(error, InvalidOutput::Option(_)), "{text}: {error}");
        }
    }

    #[cfg(feature = "alsa-hw")]
    #[test]
    fn cards_have_numbers_or_ids() {
        let parsed = |text: &str| text.parse::<OutputConfig>();
        for (text, named) in [("2", "2,0"), ("PCH,3?buffer=40", "PCH,3")] {
            let OutputConfig { target, .. } = parsed(&format!("alsa-hw:{text}")).unwrap();
            let Target::AlsaHw(device) = target else { panic!("{target:?}") };
            assert_eq!(device.to_string(), format!("alsa-hw:{named}"));
        }
        assert!(parsed("alsa-hw").is_ok());
        for text in ["../x", "0,", "0,x", "0,256", ",0", "a b"] {
            let error = parsed(&format!("alsa-hw:{text}")).unwrap_err().to_string();
            assert!(error.contains("alsa-hw[:CARD[,DEVICE]]"), "{text}: {error}");
        }
    }

    #[cfg(all(feature = "alsa", feature = "pulse"))]
    #[test]
    fn sound_devices_have_names_of_any_form() {
        let parsed = |text: &str| {
            let OutputConfig { target, card, .. } = text.parse().unwrap();
            (target, card.buffer, card.latency)
        };
        let millis = Span::from_millis;
        let name = |text: &str| Some(text.to_owned());
        for (text, expected) in [
            ("pulse", (Target::Pulse(None), millis(200), Span::ZERO)),
            ("pulse:n1?buffer=90", (Target::Pulse(name("n1")), millis(90), Span::ZERO)),
            ("alsa?latency=5", (Target::Alsa(None), millis(80), millis(5))),
            (
                "alsa:plughw:CARD=PCH,DEV=0?buffer=40",
                (Target::Alsa(name("plughw:CARD=PCH,DEV=0")), millis(40), Span::ZERO),
            ),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
        for text in ["pulse?ppm=1", "alsa?buffer=1", "pulse?buffer=3000"] {
            assert!(text.parse::<OutputConfig>().is_err(), "{text}");
        }
    }
}
