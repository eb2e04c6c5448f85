//! The methods for recorders.

use aulos_engine::recorder::MAX_PRE_ROLL;

use crate::access::Role;
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType, Presence};
use crate::names::NamedKind;
use crate::recordings;

const RECORDER_STATIONS: Param = Param::optional(
    "station",
    ParamType::IdOrIds(NamedKind::Station),
    "the recorders of these stations; or `recorder`, or both",
);
const RECORDER_NAMES: Param = Param::optional("recorder", ParamType::Names, "these recorders");
const AT: Param = Param::optional(
    "at",
    ParamType::Text,
    "the moment as a time in UTC, as in `2026-11-22T20:00:00Z`; now without `at`, `ago_s`, `in_s` and `frame`",
);
const AGO_S: Param = Param::optional(
    "ago_s",
    ParamType::Seconds { min: 0.0, max: MAX_PRE_ROLL.as_millis() as f64 / 1e3 },
    "the moment before now; at most the pre-roll",
);
const IN_S: Param = Param::optional(
    "in_s",
    ParamType::Seconds { min: 0.0, max: recordings::calls::MAX_AHEAD_S },
    "the moment after now",
);
const FRAME: Param =
    Param::optional("frame", ParamType::Count, "the moment as a frame of the station's clock");
const COMMAND_PARAMS: &[Param] = &[RECORDER_STATIONS, RECORDER_NAMES, AT, AGO_S, IN_S, FRAME];
const COMMAND_RESULT: &[(&str, &str)] = &[("recorders", "array"), ("refused", "array")];

pub(crate) const RECORDINGS: &[Method] = &[
    Method::new(
        "Aulos.GetRecordings",
        Role::Listen,
        "List the recorders and their state",
        recordings::calls::get,
    )
    .params(&[Param::optional(
        "station",
        ParamType::Id(NamedKind::Station),
        "only the recorders of this station",
    )])
    .returns(&[("recorders", "array")]),
    Method::new(
        "Aulos.StartRecording",
        Role::Control,
        "Start recorders at an exact moment, which may be in the pre-roll",
        recordings::calls::start,
    )
    .params(COMMAND_PARAMS)
    .returns(COMMAND_RESULT)
    .notifies(&["Aulos.OnRecording"]),
    Method::new(
        "Aulos.StopRecording",
        Role::Control,
        "Stop recorders at an exact moment",
        recordings::calls::stop,
    )
    .params(COMMAND_PARAMS)
    .returns(COMMAND_RESULT)
    .notifies(&["Aulos.OnRecording"]),
    Method::new("Aulos.PauseRecording", Role::Control, "Pause recorders", recordings::calls::pause)
        .params(&[
            RECORDER_STATIONS,
            RECORDER_NAMES,
            AT,
            AGO_S,
            IN_S,
            FRAME,
            Param::default(
                "gap",
                ParamType::Word(&["silence", "closed"]),
                Presence::Text("silence"),
                "record silence meanwhile, or nothing",
            ),
        ])
        .returns(COMMAND_RESULT)
        .notifies(&["Aulos.OnRecording"]),
    Method::new(
        "Aulos.ResumeRecording",
        Role::Control,
        "Resume paused recorders",
        recordings::calls::resume,
    )
    .params(COMMAND_PARAMS)
    .returns(COMMAND_RESULT)
    .notifies(&["Aulos.OnRecording"]),
    Method::new(
        "Aulos.CutRecording",
        Role::Control,
        "End the file of a recording and begin the next one, without a gap",
        recordings::calls::cut,
    )
    .params(COMMAND_PARAMS)
    .returns(COMMAND_RESULT)
    .notifies(&["Aulos.OnRecording"]),
    Method::new(
        "Aulos.AddMarker",
        Role::Control,
        "Label a frame of a recording",
        recordings::markers::add,
    )
    .params(&[
        Param::required(
            "label",
            ParamType::Text,
            "1 to 128 bytes of UTF-8 without control characters",
        ),
        RECORDER_STATIONS,
        RECORDER_NAMES,
        AT,
        AGO_S,
        IN_S,
        FRAME,
    ])
    .returns(COMMAND_RESULT)
    .notifies(&["Aulos.OnRecording"]),
];
