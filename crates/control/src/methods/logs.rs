//! The methods for legal logs, which are for the role `log`.

use crate::access::Role;
use crate::logs;
use crate::methods::aulos::STATION;
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType};

const FROM: Param =
    Param::required("from", ParamType::Text, "as `2026-11-22T10:00:00Z`, or a local time");
const TO: Param =
    Param::required("to", ParamType::Text, "the time before which the range ends, at most 31 days");
const ZONE: Param = Param::optional(
    "zone",
    ParamType::Text,
    "the time zone of local times and of the answer; the server's without it",
);

pub(crate) const LOGS: &[Method] = &[
    Method::new(
        "Aulos.GetLog",
        Role::Listen,
        "Find a range of time in the log of a station, and what is missing in it",
        logs::get,
    )
    .params(&[STATION, FROM, TO, ZONE])
    .returns(&[
        ("station", "string"),
        ("from", "string"),
        ("to", "string"),
        ("log", "object"),
        ("files", "array"),
        ("gaps", "array"),
        ("left_out", "integer"),
    ])
    .for_logs()
    .heavy(),
    Method::new(
        "Aulos.GetLogHolds",
        Role::Listen,
        "List the holds of the log of a station",
        logs::get_holds,
    )
    .params(&[STATION, ZONE])
    .returns(&[("holds", "array")])
    .for_logs()
    .heavy(),
    Method::new(
        "Aulos.AddLogHold",
        Role::Listen,
        "Keep a range of the log of a station from being deleted",
        logs::hold,
    )
    .params(&[
        STATION,
        FROM,
        TO,
        Param::required("why", ParamType::Text, "the reason, at most 1,000 bytes"),
        Param::optional("until", ParamType::Text, "when the hold ends by itself"),
        ZONE,
    ])
    .returns(&[
        ("hold", "integer"),
        ("from", "string"),
        ("to", "string"),
        ("why", "string"),
        ("until", "string|null"),
    ])
    .for_logs()
    .heavy(),
    Method::new(
        "Aulos.ReleaseLogHold",
        Role::Listen,
        "Release a hold of the log of a station",
        logs::release,
    )
    .params(&[STATION, Param::required("hold", ParamType::Count, "the number of the hold")])
    .returns(&[("hold", "integer")])
    .for_logs()
    .heavy(),
];
