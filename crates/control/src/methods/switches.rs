//! The methods for switches at a time.

use crate::access::Role;
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType};
use crate::stations;

const STATION: Param = Param::required("station", ParamType::Text, "the station's name");

pub(crate) const SWITCHES: &[Method] = &[
    Method::new(
        "Aulos.SwitchAt",
        Role::Control,
        "Select a station's source at a time, to the frame",
        stations::schedule::calls::switch_at,
    )
    .params(&[
        STATION,
        Param::optional(
            "source",
            ParamType::Checked("a source's name, its number from 0, or auto", "string|integer"),
            "missing and `auto` both mean automatic selection",
        ),
        Param::optional(
            "at",
            ParamType::Text,
            "a time with its offset, as in 2026-12-24T18:00:00+01:00",
        ),
        Param::optional(
            "in_s",
            ParamType::Seconds { min: 0.0, max: 2_678_400.0 },
            "instead: a time in so many seconds",
        ),
        Param::optional("frame", ParamType::Count, "instead: a frame of the station"),
        Param::optional(
            "for_s",
            ParamType::Seconds { min: stations::calls::MIN_DURATION_S, max: 604_800.0 },
            "how long the selection lasts; without it until an entry of the schedule or another \
             switch begins",
        ),
    ])
    .returns(&[
        ("station", "string"),
        ("id", "integer"),
        ("source", "string|null"),
        ("at", "string"),
        ("until", "string|null"),
    ])
    .notifies(&["Aulos.OnSwitch"]),
    Method::new(
        "Aulos.CancelSwitch",
        Role::Control,
        "Cancel a switch, before its time or while it lasts",
        stations::schedule::calls::cancel_switch,
    )
    .params(&[STATION, Param::required("id", ParamType::Count, "the id of the switch")])
    .returns(&[("station", "string"), ("id", "integer")]),
    Method::new(
        "Aulos.GetSwitches",
        Role::Listen,
        "List the switches that calls have asked for, until they have ended",
        stations::schedule::calls::get_switches,
    )
    .params(&[STATION])
    .returns(&[("station", "string"), ("switches", "array")]),
];
