//! The methods for switches at a time.

use crate::access::Role;
use crate::methods::aulos::{SOURCE, STATION};
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType};
use crate::stations::calls::MIN_DURATION_S;
use crate::stations::schedule::calls::{self, MAX_AHEAD_S, MAX_LENGTH_S};

pub(crate) const SWITCHES: &[Method] = &[
    Method::new(
        "Aulos.SwitchAt",
        Role::Control,
        "Select a station's source at a time, to the frame",
        calls::switch_at,
    )
    .params(&[
        STATION,
        SOURCE,
        Param::optional(
            "at",
            ParamType::Text,
            "a time with its offset, as in 2026-12-24T18:00:00+01:00",
        ),
        Param::optional(
            "in_s",
            ParamType::Seconds { min: 0.0, max: MAX_AHEAD_S as f64 },
            "instead: a time in so many seconds",
        ),
        Param::optional("frame", ParamType::Count, "instead: a frame of the station"),
        Param::optional(
            "for_s",
            ParamType::Seconds { min: MIN_DURATION_S, max: MAX_LENGTH_S },
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
        calls::cancel_switch,
    )
    .params(&[STATION, Param::required("id", ParamType::Count, "the id of the switch")])
    .returns(&[("station", "string"), ("id", "integer")]),
    Method::new(
        "Aulos.GetSwitches",
        Role::Listen,
        "List the switches that calls have asked for, until they have ended",
        calls::get_switches,
    )
    .params(&[STATION])
    .returns(&[("station", "string"), ("switches", "array")]),
];
