//! Devices of this machine that record: `pulse://`, `alsa://`.
//!
//! ALSA's library takes more than names: it reads an expression of its plug-ins, some of which
//! start a program (`file:'|COMMAND',raw`) or write a file (`file:/PATH,raw`), and inline
//! definitions (`{type file ...}`). A list of what is dangerous would have to follow the library;
//! so a network call may name what is known to be a sound card.

use aulos_core::SampleSpec;

use crate::keys::keys;
use crate::source::kind::SourceKind;
use crate::source::query::{Parsed, Query};

/// Samples from a device of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureSource {
    /// How it is reached.
    pub api: CaptureApi,
    /// Its name; none for the default device.
    pub device: Option<String>,
    /// The spec that is asked for; none for the station's.
    pub spec: Option<SampleSpec>,
}

/// Interfaces to devices that record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureApi {
    /// PulseAudio or PipeWire.
    Pulse,
    /// ALSA.
    Alsa,
}

impl SourceKind for CaptureSource {
    fn scheme(&self) -> &'static str {
        match self.api {
            CaptureApi::Pulse => "pulse",
            CaptureApi::Alsa => "alsa",
        }
    }

    fn spec(&self) -> Option<SampleSpec> {
        self.spec
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn is_device_permitted(&self, listed: &[String]) -> bool {
        match (self.api, &self.device) {
            (CaptureApi::Alsa, Some(device)) => is_sound_card(device) || listed.contains(device),
            // A sound server gets the name as data of its protocol, and looks it up.
            _ => true,
        }
    }
}

keys! {
    /// Parameters of `pulse:` and `alsa:`.
    pub(crate) struct CaptureParams {
        /// Name of the device, if it is not in front of the parameters.
        device: Option<String>, default_doc "the default device";
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: Option<SampleSpec>, default_doc "the station's";
    }
}

/// `pulse://SOURCE` of PulseAudio or PipeWire.
pub(crate) fn pulse(query: &Query<'_>) -> Parsed<CaptureSource> {
    capture(CaptureApi::Pulse, query)
}

/// `alsa://DEVICE`.
pub(crate) fn alsa(query: &Query<'_>) -> Parsed<CaptureSource> {
    capture(CaptureApi::Alsa, query)
}

fn capture(api: CaptureApi, query: &Query<'_>) -> Parsed<CaptureSource> {
    let CaptureParams { device, sampleformat: spec, .. } = query.params();
    let named = query.uri.path.trim_start_matches('/');
    if device.is_some() && !named.is_empty() {
        let hint = format!("{}://{named}", query.uri.scheme);
        return query.refuse(format!("\"{}\" names two devices", query.uri.raw), &hint);
    }
    let device = device.or_else(|| Some(named.to_owned())).filter(|device| !device.is_empty());
    if device.as_ref().is_some_and(|device| device.contains(char::is_control)) {
        let hint = "the name as `pactl list short sources` or `arecord -L` shows it";
        return query.refuse("the name of the device has a control character", hint);
    }
    Some(vec![CaptureSource { api, device, spec }])
}

/// Whether a name of ALSA is that of a sound card: `default`, `sysdefault`, or `hw:` or `plughw:`
/// with card, device and subdevice.
fn is_sound_card(name: &str) -> bool {
    match name.split_once(':') {
        None => matches!(name, "default" | "sysdefault"),
        Some(("hw" | "plughw", arguments)) => has_card_arguments(arguments),
        Some(_) => false,
    }
}

/// Whether the arguments are one to three plain words, each alone or behind the name of its place.
fn has_card_arguments(arguments: &str) -> bool {
    let mut places = ["CARD", "DEV", "SUBDEV"].into_iter();
    arguments.split(',').all(|argument| {
        let Some(place) = places.next() else { return false };
        let word = match argument.split_once('=') {
            None => argument,
            Some((named, word)) if named == place => word,
            Some(_) => return false,
        };
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceConfig;
    use crate::tests::{first_problem, load_text, station};

    #[test]
    fn a_device_is_named_as_its_system_names_it() {
        let device = |uri: &str| {
            let text = station(&format!("sources = [\"{uri}\"]"));
            match load_text(&text, &[]).unwrap().stations.remove(0).sources.remove(0).config {
                SourceConfig::Capture(source) => {
                    (source.api, source.device.unwrap_or_default(), source.spec)
                }
                other => panic!("{other:?}"),
            }
        };
        for (uri, expected) in [
            ("pulse:", ""),
            ("pulse://", ""),
            ("pulse:mic", "mic"),
            ("pulse://dac.monitor?name=loop", "dac.monitor"),
            ("pulse:///dac.monitor", "dac.monitor"),
            ("pulse:///?device=Dac.monitor", "Dac.monitor"),
            ("alsa://hw:1,0", "hw:1,0"),
            ("alsa:plughw:CARD=PCH,DEV=0", "plughw:CARD=PCH,DEV=0"),
            ("alsa:///?device=hw:CARD=USB", "hw:CARD=USB"),
        ] {
            let (api, device, spec) = device(uri);
            let is_pulse = uri.starts_with("pulse");
            assert_eq!(api, if is_pulse { CaptureApi::Pulse } else { CaptureApi::Alsa });
            assert_eq!((device.as_str(), spec), (expected, None), "{uri}");
        }
        let (.., spec) = device("alsa://hw:1,0?sampleformat=44100:24:1");
        assert_eq!(spec, "44100:24:1".parse().ok());
        for (uri, expected) in [
            ("alsa://hw:1,0?device=hw:2,0", "names two devices"),
            ("pulse://mic%07", "a control character"),
            ("pulse://mic?rate=44100", "unknown parameter `rate`"),
        ] {
            let told = first_problem(&station(&format!("sources = [\"{uri}\"]")), &[]);
            assert!(told.contains(expected), "{uri}: {told}");
        }
    }

    #[test]
    fn a_sound_card_is_not_an_expression() {
        for good in [
            "default",
            "sysdefault",
            "hw:0",
            "hw:1,0",
            "hw:1,0,3",
            "plughw:CARD=Microphone",
            "hw:CARD=PCH,DEV=0,SUBDEV=1",
            "hw:Loopback,DEV=1",
            "plughw:USB_Audio,0",
        ] {
            assert!(is_sound_card(good), "{good}");
        }
        for bad in [
            "",
            "hw",
            "hw:",
            "hw:1,",
            "hw:1,0,0,0",
            "hw:DEV=0",
            "hw:CARD=1,CARD=2",
            "hw:CARD=",
            "hw:1,0;x",
            "hw:{card 0}",
            "hw:'1'",
            "hw:$(id)",
            "hw: 1",
            "HW:1",
            "default:1",
            "null",
            "file:'|id>/tmp/x',raw",
            "file:/tmp/x,raw",
            "tee:null,'|id',raw",
            "plug:file:/tmp/x",
            "plug:'hw:1'",
            "{type file slave.pcm null file \"|id\" format raw}",
            "default{type null}",
        ] {
            assert!(!is_sound_card(bad), "{bad}");
        }
    }

    proptest::proptest! {
        /// Whatever is permitted has none of the letters with which an expression begins.
        #[test]
        fn no_permitted_name_has_syntax_of_an_expression(
            name in "(default|sysdefault|hw|plughw|file|tee|plug)?(:)?[A-Z0-9=,'\"{}|/ $.@;\\\\]{0,12}",
        ) {
            if is_sound_card(&name) {
                let plain = |c: char| c.is_ascii_alphanumeric() || "_:,=".contains(c);
                proptest::prop_assert!(name.chars().all(plain), "{name}");
                let start = name.split(':').next().unwrap_or_default();
                proptest::prop_assert!(
                    ["default", "sysdefault", "hw", "plughw"].contains(&start), "{name}"
                );
            }
        }
    }
}
