//! The methods that Snapcast does not have.

use serde_json::json;

use super::client_sound::CHANNEL_MAPS;
use crate::access::Role;
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType, Presence};
use crate::names::NamedKind;
use crate::{clients, cluster, events, hooks, peers, relays, stations};

pub(super) const STATION: Param = Param::required("station", ParamType::Id(NamedKind::Station), "");
/// A source of the station, for a switch.
pub(super) const SOURCE: Param = Param::optional(
    "source",
    ParamType::Checked("a source's name, its number from 0, or auto", "string|integer"),
    "missing and `auto` both mean automatic selection",
);
const CLIENT: Param = Param::required("client", ParamType::Id(NamedKind::Client), "");
const PRESET: Param = Param::required("name", ParamType::Text, "the preset's name");

/// The members of the status of aulos, with their JSON types.
pub const STATUS_MEMBERS: &[(&str, &str)] = &[
    ("version", "string"),
    ("host", "string"),
    ("uptime_s", "integer"),
    ("stations", "array"),
    ("hooks", "array"),
    ("relays", "array"),
    ("counters", "object"),
];

/// The members of a list of events.
pub const EVENT_LIST_MEMBERS: &[(&str, &str)] = &[
    ("events", "array"),
    ("newest", "integer"),
    ("unacknowledged", "integer"),
    ("dropped", "integer"),
];

pub(crate) const STATUS: &[Method] = &[
    Method::new(
        "Aulos.GetInfo",
        Role::None,
        "Return the name, version and id of this server",
        |context, _| {
            let id = &context.control.host.id;
            Ok(json!({ "name": "aulos", "version": env!("CARGO_PKG_VERSION"), "id": id }).into())
        },
    )
    .returns(&[("name", "string"), ("version", "string"), ("id", "string")]),
    Method::new(
        "Aulos.GetServers",
        Role::Listen,
        "List other servers on the network",
        clients::calls::get_servers,
    )
    .returns(&[("servers", "array")]),
    Method::new(
        "Aulos.GetStatus",
        Role::Listen,
        "Return stations, their sources, levels, clients and counters",
        |context, _| Ok(context.aulos_status()),
    )
    .returns(STATUS_MEMBERS)
    .long(),
    Method::new(
        "Aulos.GetClusterStatus",
        Role::Listen,
        "Return the nodes of the cluster with their stations, groups and clients; takes half a second",
        cluster::calls::get_status,
    )
    .returns(&[
        ("site", "string"),
        ("node", "string"),
        ("connected", "boolean"),
        ("nodes", "array"),
    ]),
    Method::new(
        "Aulos.Subscribe",
        Role::Listen,
        "Set what this WebSocket is sent: the status when it changes, meters as binary frames, and events",
        peers::calls::subscribe,
    )
    .params(&[
        Param::default(
            "status",
            ParamType::Bool,
            Presence::Bool(false),
            "send `Aulos.OnStatus` now and after each change",
        ),
        Param::optional("meters", peers::calls::METERS, "without it no meters are sent"),
        Param::default(
            "events",
            ParamType::Bool,
            Presence::Bool(false),
            "send `Aulos.OnEvents` when there are new events, or some are acknowledged",
        ),
    ])
    .returns(&[("status", "boolean"), ("meters", "object|null"), ("events", "boolean")])
    .notifies(&["Aulos.OnStatus", "Aulos.OnMeterLayout", "Aulos.OnEvents"]),
    Method::new(
        "Aulos.Reload",
        Role::Admin,
        "Read the configuration file again and apply the differences",
        |context, _| {
            let (report, effects) = context.control.reload_call(context.subjects)?;
            context.push_effects(effects);
            Ok(report.json().into())
        },
    )
    .returns(&[
        ("added", "array"),
        ("changed", "array"),
        ("adjusted", "array"),
        ("removed", "array"),
        ("settings", "array"),
        ("needs_restart", "array"),
        ("failed", "array"),
        ("relays", "object"),
    ])
    .notifies(&["Server.OnUpdate"])
    .heavy(),
];

pub(crate) const EVENTS: &[Method] = &[
    Method::new(
        "Aulos.GetEvents",
        Role::Listen,
        "Return the newest events of the server, or those that follow one",
        events::calls::get,
    )
    .params(events::calls::QUERY)
    .returns(EVENT_LIST_MEMBERS),
    Method::new(
        "Aulos.AcknowledgeEvents",
        Role::Control,
        "Acknowledge one warning or error, or all up to one",
        events::calls::acknowledge,
    )
    .params(events::calls::ACKNOWLEDGEMENT)
    .returns(&[("acknowledged", "integer"), ("unacknowledged", "integer")])
    .notifies(&["Aulos.OnEvents"]),
];

pub(crate) const SOUND: &[Method] = &[
    Method::new(
        "Aulos.GetLoudness",
        Role::Listen,
        "Return the loudness of a station and its sources (EBU R 128)",
        stations::calls::get_loudness,
    )
    .params(&[STATION])
    .returns(&[("station", "string"), ("loudness", "object"), ("sources", "array")]),
    Method::new(
        "Aulos.ResetLoudness",
        Role::Control,
        "Restart the loudness measurement of a station and its sources",
        stations::calls::reset_loudness,
    )
    .params(&[STATION])
    .returns(&[("station", "string")]),
    Method::new(
        "Aulos.GetNormalize",
        Role::Listen,
        "Return a station's loudness normalization and its state",
        stations::calls::get_normalize,
    )
    .params(&[STATION])
    .returns(&[("station", "string"), ("normalize", "object|null"), ("status", "object|null")]),
    Method::new(
        "Aulos.SetNormalize",
        Role::Control,
        "Change or disable a station's loudness normalization",
        stations::calls::set_normalize,
    )
    .params(&[
        STATION,
        Param::required(
            "normalize",
            ParamType::Checked("true, false, a preset or an object", "boolean|string|object"),
            "keys of the object that are not given stay",
        ),
    ])
    .returns(&[("station", "string"), ("normalize", "object|null")])
    .notifies(&["Aulos.OnSoundChanged"]),
    Method::new(
        "Aulos.SetCompare",
        Role::Control,
        "Play a station's programme without normalization, at the same loudness",
        stations::calls::set_compare,
    )
    .params(&[STATION, Param::required("compare", ParamType::Bool, "")])
    .returns(&[("station", "string"), ("compare", "boolean")])
    .notifies(&["Aulos.OnCompareChanged"]),
    Method::new(
        "Aulos.GetEqualizer",
        Role::Listen,
        "Return the bands of a station's equalizer",
        stations::calls::get_equalizer,
    )
    .params(&[STATION])
    .returns(&[("station", "string"), ("equalizer", "array")]),
    Method::new(
        "Aulos.SetEqualizer",
        Role::Control,
        "Set the bands of a station's equalizer",
        stations::calls::set_equalizer,
    )
    .params(&[
        STATION,
        Param::required(
            "equalizer",
            ParamType::Checked("a list of bands", "array"),
            "an empty list disables the equalizer",
        ),
    ])
    .returns(&[("station", "string"), ("equalizer", "array")])
    .notifies(&["Aulos.OnSoundChanged"]),
];

pub(crate) const VOLUME: &[Method] = &[
    Method::new(
        "Aulos.SetVolume",
        Role::Control,
        "Set or change the volume of a client or a group",
        clients::calls::set_volume,
    )
    .params(&[
        Param::optional("client", ParamType::Id(NamedKind::Client), "the client; or `group`"),
        Param::optional("group", ParamType::Id(NamedKind::Group), "the group"),
        Param::optional("percent", ParamType::Integer, "the volume, 0 to 100; or `delta`"),
        Param::optional("delta", ParamType::Integer, "the change of the volume"),
    ])
    .returns(&[("percent", "integer")])
    .notifies(&["Client.OnVolumeChanged"]),
    Method::new(
        "Aulos.SetVolumeCap",
        Role::Admin,
        "Set the maximum volume of a client",
        clients::calls::set_cap,
    )
    .params(&[CLIENT, Param::required("percent", ParamType::Integer, "0 to 100")])
    .returns(&[("cap", "integer")])
    .notifies(&["Client.OnVolumeChanged"]),
    Method::new(
        "Aulos.SetChannelMap",
        Role::Control,
        "Set which channels of its stream a client plays",
        clients::calls::set_map,
    )
    .params(&[CLIENT, Param::required("map", ParamType::Word(CHANNEL_MAPS), "")])
    .returns(&[("map", "string")])
    .notifies(&["Aulos.OnChannelMapChanged"]),
];

pub(crate) const PRESETS: &[Method] = &[
    Method::new(
        "Aulos.GetPresets",
        Role::Listen,
        "List all presets, or return one with its groups",
        clients::calls::get_presets,
    )
    .params(&[Param::optional("name", ParamType::Text, "the preset to return")])
    .returns(&[("presets", "array")])
    .long(),
    Method::new(
        "Aulos.SavePreset",
        Role::Control,
        "Save the groups as a preset",
        clients::calls::save_preset,
    )
    .params(&[PRESET])
    .returns(&[("presets", "array")])
    .for_all_clients(),
    Method::new(
        "Aulos.ApplyPreset",
        Role::Control,
        "Restore the groups of a preset",
        clients::calls::apply_preset,
    )
    .params(&[
        PRESET,
        Param::default("volumes", ParamType::Bool, Presence::Bool(false), "also restore volumes"),
    ])
    .returns(&[("server", "object")])
    .notifies(&["Server.OnUpdate"])
    .for_all_clients(),
    Method::new(
        "Aulos.DeletePreset",
        Role::Control,
        "Delete a preset",
        clients::calls::delete_preset,
    )
    .params(&[PRESET])
    .returns(&[("presets", "array")])
    .long(),
];

pub(crate) const SOURCES: &[Method] = &[
    Method::new(
        "Aulos.SetNowPlaying",
        Role::Control,
        "Show a title for what a station plays, until the next title",
        stations::titles::now_playing::set,
    )
    .params(stations::titles::now_playing::SET)
    .returns(&[("station", "string"), ("title", "string|null"), ("artist", "string|null")])
    .notifies(&["Stream.OnProperties"]),
    Method::new(
        "Aulos.GetNowPlaying",
        Role::Listen,
        "Return the title that a station plays, and those before it with their times",
        stations::titles::now_playing::get,
    )
    .params(stations::titles::now_playing::GET)
    .returns(&[("station", "string"), ("now", "object|null"), ("played", "array")]),
    Method::new(
        "Aulos.SetSource",
        Role::Control,
        "Select a station's source, or return to automatic selection",
        stations::calls::set_source,
    )
    .params(&[
        STATION,
        SOURCE,
        Param::optional(
            "for_s",
            ParamType::Seconds {
                min: stations::calls::MIN_DURATION_S,
                max: stations::calls::MAX_DURATION_S,
            },
            "how long the selection lasts; without it until the source fails",
        ),
    ])
    .returns(&[("station", "string"), ("source", "string|null"), ("for_s", "number|null")])
    .notifies(&["Aulos.OnSwitch"]),
    Method::new(
        "Aulos.SkipTrack",
        Role::Control,
        "Skip the file that a playlist plays",
        stations::calls::skip_track,
    )
    .params(&[
        STATION,
        Param::optional(
            "source",
            ParamType::Text,
            "the name of the playlist; without it the one on air, else the first one",
        ),
    ])
    .returns(&[("station", "string"), ("source", "string")]),
    Method::new("Aulos.TestHook", Role::Admin, "Send a test event to a hook", hooks::calls::test)
        .params(&[Param::required(
            "hook",
            ParamType::Checked("a hook's name or its number from 0", "string|integer"),
            "",
        )])
        .returns(&[("hook", "string"), ("id", "string")]),
];

pub(crate) const RELAYS: &[Method] = &[
    Method::new(
        "Aulos.GetRelays",
        Role::Listen,
        "List the RTP relays and their counters",
        relays::calls::get,
    )
    .params(&[Param::default(
        "streams",
        ParamType::Bool,
        Presence::Bool(false),
        "also return each stream",
    )])
    .returns(&[("relays", "array"), ("threads", "array"), ("streams", "array")])
    .heavy(),
    Method::new(
        "Aulos.AddRelay",
        Role::Admin,
        "Add an RTP relay, which runs until the server ends",
        relays::calls::add,
    )
    .unchecked_params(&[
        Param::required("name", ParamType::Text, ""),
        Param::required("listen", ParamType::Text, "`udp://ADDRESS:PORT`; port 0 takes a free one"),
        Param::required("from", ParamType::Text, "the encoding that is received"),
        Param::required("to", ParamType::Text, "the encoding that is sent"),
        Param::required(
            "dest",
            ParamType::Text,
            "`udp://HOST:PORT`; the other keys of `[[relay]]` are accepted as well",
        ),
    ])
    .returns(&[("name", "string"), ("listen", "string"), ("dest", "string")])
    .heavy(),
    Method::new("Aulos.RemoveRelay", Role::Admin, "Remove an RTP relay", relays::calls::remove)
        .params(&[Param::required("name", ParamType::Text, "the relay's name")])
        .returns(&[("name", "string")])
        .heavy(),
];
