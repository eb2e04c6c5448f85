//! The names of recording devices that a network call may use.
//!
//! ALSA's library takes more than names: it reads an expression of its plug-ins, some of which
//! start a program (`file:'|COMMAND',raw`) or write a file (`file:/PATH,raw`), and inline
//! definitions (`{type file ...}`). A list of what is dangerous would have to follow the library;
//! so here is what is known to be a sound card.

use crate::settings::StreamSettings;
use crate::source::{CaptureApi, SourceConfig};

impl StreamSettings {
    /// Whether a call may open this source's device: a sound card by its plain name, or a name that
    /// the operator lists. A source that is no device has none to refuse.
    #[must_use]
    pub fn permits_device_of(&self, source: &SourceConfig) -> bool {
        match source {
            SourceConfig::Capture { api: CaptureApi::Alsa, device: Some(device), .. } => {
                is_sound_card(device) || self.alsa_devices.contains(device)
            }
            // A sound server gets the name as data of its protocol, and looks it up.
            _ => true,
        }
    }
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
