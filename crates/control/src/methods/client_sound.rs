//! The methods for the sound of a client.

use aulos_dsp::sound::SoundPreset;
use aulos_engine::generate::TestTone;

use crate::access::Role;
use crate::announcements::test_tone;
use crate::clients;
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType, Presence};
use crate::names::NamedKind;

const CLIENT: Param = Param::required("client", ParamType::Id(NamedKind::Client), "");

/// The names of channel maps.
pub(super) const CHANNEL_MAPS: &[&str] =
    &["swap", "1", "2", "3", "4", "5", "6", "7", "8", "stereo", "left", "right", "mono"];

pub(crate) const CLIENT_SOUND: &[Method] = &[
    Method::new(
        "Aulos.SetClientSound",
        Role::Control,
        "Set the sound of a client: bands, gains, delays and channels",
        clients::sound_calls::set_client_sound,
    )
    .params(&[
        CLIENT,
        Param::optional(
            "chain",
            ParamType::Checked("a table with `both`, or `left` and `right`", "object"),
            "the sound; or `text`, or `preset`",
        ),
        Param::optional("text", ParamType::Text, "filters as of Equalizer APO, REW or AutoEq"),
        Param::optional(
            "preset",
            ParamType::Word(&SoundPreset::NAMES),
            "`flat` ends the processing",
        ),
        Param::default(
            "lenient",
            ParamType::Bool,
            Presence::Bool(false),
            "limit gains and quality factors of `text` that are out of range",
        ),
        Param::default(
            "dry_run",
            ParamType::Bool,
            Presence::Bool(false),
            "change nothing, and return what would be set",
        ),
    ])
    .returns(&[("client", "string"), ("chain", "object|null"), ("warnings", "array")])
    .notifies(&["Aulos.OnSoundChanged"]),
    Method::new(
        "Aulos.GetClientSound",
        Role::Listen,
        "Return the sound of a client, with its response",
        clients::sound_calls::get_client_sound,
    )
    .params(&[CLIENT])
    .returns(&[("client", "string"), ("chain", "object|null"), ("presets", "array")]),
    Method::new(
        "Aulos.TestTone",
        Role::Control,
        "Play a test tone to a client or group, in place of the programme",
        test_tone::test_tone,
    )
    .params(&[
        Param::optional(
            "client",
            ParamType::Id(NamedKind::Client),
            "the client that alone hears it; or `group`",
        ),
        Param::optional(
            "group",
            ParamType::Id(NamedKind::Group),
            "the group whose clients hear it at the same time",
        ),
        Param::required(
            "kind",
            ParamType::Word(&TestTone::NAMES),
            "`identify` is a note on the left and then one on the right",
        ),
        Param::default(
            "seconds",
            ParamType::Number { min: test_tone::MIN_SECONDS, max: test_tone::MAX_SECONDS },
            Presence::Number(test_tone::DEFAULT_SECONDS),
            "how long it lasts",
        ),
    ])
    .exclusive(test_tone::TARGETS)
    .returns(&[("id", "integer"), ("station", "string"), ("kind", "string"), ("seconds", "number")])
    .notifies(&["Aulos.OnAnnouncement"]),
];
