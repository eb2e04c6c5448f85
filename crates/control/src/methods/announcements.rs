//! The methods that play a sound over the programme, or in its place.

use aulos_engine::announce::{
    DEFAULT_DUCK, DEFAULT_RELEASE, MAX_DUCK, MAX_RELEASE, MIN_DUCK, Priority as Level,
};

use crate::access::Role;
use crate::announcements::{calls, plays};
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType, Presence};
use crate::names::NamedKind;

/// What hears a sound: exactly one of them is given.
pub(crate) const SOUND_STATION: Param = Param::optional(
    "station",
    ParamType::Id(NamedKind::Station),
    "the station whose clients hear it; or `group` or `client`",
);
pub(crate) const SOUND_GROUP: Param =
    Param::optional("group", ParamType::Id(NamedKind::Group), "the group that alone hears it");
pub(crate) const SOUND_CLIENT: Param =
    Param::optional("client", ParamType::Id(NamedKind::Client), "the client that alone hears it");
const SOUND_URI: Param = Param::required(
    "uri",
    ParamType::Text,
    "`file:///path` of a sound file, or its `http:` or `https:` URL",
);
pub(crate) const SOUND_VOLUME: Param = Param::default(
    "volume",
    ParamType::Number { min: 1.0, max: 100.0 },
    Presence::Number(100.0),
    "the volume of the sound in percent, on the curve of a client's volume",
);
pub(crate) const SOUND_DUCK: Param = Param::default(
    "duck_db",
    ParamType::Number { min: MAX_DUCK.get(), max: MIN_DUCK.get() },
    Presence::Number(DEFAULT_DUCK.get()),
    "the gain of the programme meanwhile, in decibels",
);
pub(crate) const SOUND_RELEASE: Param = Param::default(
    "release_s",
    ParamType::Seconds { min: 0.0, max: MAX_RELEASE.as_secs_f64() },
    Presence::Number(DEFAULT_RELEASE.as_secs_f64()),
    "how long the programme takes to return to its level, in seconds",
);
/// The priority of an announcement, with the one that it has without this parameter.
pub(crate) const fn sound_priority(default: Level) -> Param {
    Param::default(
        "priority",
        ParamType::Number { min: 0.0, max: Level::HIGHEST.get() as f64 },
        Presence::Number(default.get() as f64),
        "an announcement interrupts those of a lower priority",
    )
}
const SOUND_NORMALIZE: Param = Param::default(
    "normalize",
    ParamType::Bool,
    Presence::Bool(true),
    "match the loudness of a normalized station",
);

pub(crate) const PLAYS: &[Method] = &[
    Method::new(
        "Aulos.Play",
        Role::Control,
        "Play a sound to its end in place of the programme",
        plays::play,
    )
    .params(&[
        SOUND_STATION,
        SOUND_GROUP,
        SOUND_CLIENT,
        SOUND_URI,
        Param::optional("title", ParamType::Text, "what to show of it, 512 bytes at most"),
        SOUND_VOLUME,
        SOUND_NORMALIZE,
    ])
    .exclusive(calls::TARGETS)
    .returns(&[("id", "integer"), ("station", "string")])
    .notifies(&["Aulos.OnPlay"]),
    Method::new("Aulos.StopPlay", Role::Control, "End a play: the programme returns", plays::stop)
        .params(&[
            Param::optional(
                "id",
                ParamType::Integer,
                "the play; or `station`, `group` or `client`",
            ),
            Param::optional(
                "station",
                ParamType::Id(NamedKind::Station),
                "the play of this station",
            ),
            Param::optional("group", ParamType::Id(NamedKind::Group), "the play of this group"),
            Param::optional("client", ParamType::Id(NamedKind::Client), "the play of this client"),
        ])
        .exclusive(calls::TARGETS)
        .returns(&[("stopped", "array")])
        .notifies(&["Aulos.OnPlay"]),
];

pub(crate) const ANNOUNCEMENTS: &[Method] = &[
    Method::new(
        "Aulos.Announce",
        Role::Control,
        "Play a sound over a station's programme, which is ducked meanwhile",
        calls::announce,
    )
    .params(&[
        SOUND_STATION,
        SOUND_GROUP,
        SOUND_CLIENT,
        SOUND_URI,
        SOUND_DUCK,
        SOUND_RELEASE,
        Param::default(
            "gain_db",
            ParamType::Number { min: calls::MIN_GAIN_DB, max: calls::MAX_GAIN_DB },
            Presence::Number(0.0),
            "additional gain of the announcement, in decibels",
        ),
        SOUND_VOLUME,
        SOUND_NORMALIZE,
        Param::optional(
            "loudness_lufs",
            ParamType::Number { min: calls::MIN_LOUDNESS, max: calls::MAX_LOUDNESS },
            "the loudness of the announcement, in place of the station's",
        ),
        Param::optional("key", ParamType::Text, "replaces those that wait with the same key"),
        Param::default(
            "chime",
            ParamType::Bool,
            Presence::Bool(false),
            "play the built-in chime before it",
        ),
        Param::optional("before", ParamType::Text, "a sound to play before it, as `uri`"),
        sound_priority(Level::DEFAULT),
    ])
    .exclusive(calls::TARGETS)
    .returns(&[("id", "integer"), ("station", "string"), ("before", "integer")])
    .notifies(&["Aulos.OnAnnouncement"]),
    Method::new(
        "Aulos.CancelAnnouncement",
        Role::Control,
        "Cancel an announcement, or all of a station, group or client",
        calls::cancel,
    )
    .params(&[
        Param::optional(
            "id",
            ParamType::Integer,
            "the announcement; or `station`, `group` or `client`",
        ),
        Param::optional(
            "station",
            ParamType::Id(NamedKind::Station),
            "all announcements of this station, its groups and clients",
        ),
        Param::optional(
            "group",
            ParamType::Id(NamedKind::Group),
            "all announcements to this group",
        ),
        Param::optional(
            "client",
            ParamType::Id(NamedKind::Client),
            "all announcements to this client",
        ),
    ])
    .exclusive(calls::TARGETS)
    .returns(&[("cancelled", "array")])
    .notifies(&["Aulos.OnAnnouncement"]),
];
