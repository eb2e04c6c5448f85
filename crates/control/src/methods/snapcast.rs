//! The methods of Snapcast. Their answers and errors are snapserver's.

use serde_json::json;

use crate::access::Role;
use crate::clients::calls;
use crate::clients::registry::{ClientJson, GroupJson, NotFound};
use crate::methods::method::{DISCOVER, Method};
use crate::methods::params::{Param, ParamType};
use crate::names::NamedKind;
use crate::{peers, stations};

const CLIENT: Param = Param::required("id", ParamType::Id(NamedKind::Client), "");
const GROUP: Param = Param::required("id", ParamType::Id(NamedKind::Group), "");
const STREAM: Param = Param::required("id", ParamType::Id(NamedKind::Station), "");
/// To remove a stream that is gone succeeds, and must not remove one whose name differs in case.
const REMOVED_STREAM: Param = Param::required("id", ParamType::Text, "the stream's whole name");
const NAME: Param = Param::required("name", ParamType::Text, "");

pub(crate) const SERVER: &[Method] = &[
    Method::snapcast(
        "Server.GetStatus",
        Role::Listen,
        "Return groups, clients, streams and the server itself",
        |context, _| Ok(context.server_status()),
    )
    .returns(&[("server", "object")])
    .long(),
    Method::snapcast(
        "Server.GetRPCVersion",
        Role::None,
        "Return the version of this API",
        |_, _| Ok(json!({ "major": 23, "minor": 0, "patch": 0 }).into()),
    )
    .returns(&[("major", "integer"), ("minor", "integer"), ("patch", "integer")]),
    Method::snapcast("Server.DeleteClient", Role::Admin, "Delete a client", calls::delete_client)
        .params(&[CLIENT])
        .returns(&[("server", "object")])
        .notifies(&["Server.OnUpdate"])
        .long(),
    Method::snapcast("Server.Authenticate", Role::None, "Log in", peers::calls::authenticate)
        .params(&[
            Param::required("scheme", ParamType::Text, "`Basic`, `Plain` or `Bearer`"),
            Param::required("param", ParamType::Text, "the credentials"),
        ]),
    Method::snapcast(
        "General.GetRPCCommands",
        Role::None,
        "List the methods, with the caller's permissions",
        |context, _| Ok(context.method_list()),
    )
    .returns(&[("commands", "array")]),
    Method::snapcast(
        DISCOVER,
        Role::None,
        "Describe all methods as an OpenRPC document",
        |context, _| Ok(context.openrpc()),
    )
    .returns_document("an [OpenRPC](https://spec.open-rpc.org) document"),
];

pub(crate) const CLIENTS: &[Method] = &[
    Method::snapcast(
        "Client.GetStatus",
        Role::Listen,
        "Return the state of a client",
        |context, params| {
            let client = context.subjects.clients.registry.table.client(params.text("id")?);
            let (_, client) = client.ok_or(NotFound::Client)?;
            Ok(json!({ "client": ClientJson::from(client) }).into())
        },
    )
    .params(&[CLIENT])
    .returns(&[("client", "object")]),
    Method::snapcast(
        "Client.SetVolume",
        Role::Control,
        "Set the volume of a client, its mute, or both",
        calls::set_client_volume,
    )
    .params(&[CLIENT, Param::required("volume", VOLUME, "members that are not given stay")])
    .returns(&[("volume", "object")])
    .notifies(&["Client.OnVolumeChanged"]),
    Method::snapcast(
        "Client.SetLatency",
        Role::Control,
        "Set the additional latency of a client's device",
        calls::set_latency,
    )
    .params(&[
        CLIENT,
        Param::required(
            "latency",
            ParamType::Integer,
            "milliseconds, limited to the range from -10000 to the stream's buffer",
        ),
    ])
    .returns(&[("latency", "integer")])
    .notifies(&["Client.OnLatencyChanged"]),
    Method::snapcast(
        "Client.SetName",
        Role::Control,
        "Set the name of a client",
        calls::set_client_name,
    )
    .params(&[CLIENT, NAME])
    .returns(&[("name", "string")])
    .notifies(&["Client.OnNameChanged"]),
];

const VOLUME: ParamType = ParamType::Object(
    &[
        Param::optional("percent", ParamType::Integer, "0 to 100"),
        Param::optional("muted", ParamType::Bool, ""),
    ],
    "an object with percent, muted or both",
);

pub(crate) const GROUPS: &[Method] = &[
    Method::snapcast(
        "Group.GetStatus",
        Role::Listen,
        "Return the state of a group",
        |context, params| {
            let group = context.subjects.clients.registry.table.view(params.text("id")?);
            let group = group.ok_or(NotFound::Group)?;
            Ok(json!({ "group": GroupJson::new(&group) }).into())
        },
    )
    .params(&[GROUP])
    .returns(&[("group", "object")]),
    Method::snapcast("Group.SetMute", Role::Control, "Mute or unmute a group", calls::set_mute)
        .params(&[GROUP, Param::required("mute", ParamType::Bool, "")])
        .returns(&[("mute", "boolean")])
        .notifies(&["Group.OnMute"]),
    Method::snapcast(
        "Group.SetStream",
        Role::Control,
        "Set the stream of a group",
        calls::set_stream,
    )
    .params(&[GROUP, Param::required("stream_id", ParamType::Id(NamedKind::Station), "")])
    .returns(&[("stream_id", "string")])
    .notifies(&["Group.OnStreamChanged"]),
    Method::snapcast(
        "Group.SetClients",
        Role::Control,
        "Set the clients of a group",
        calls::set_clients,
    )
    .params(&[GROUP, Param::required("clients", ParamType::Ids(NamedKind::Client), "")])
    .returns(&[("server", "object")])
    .notifies(&["Server.OnUpdate"])
    .long(),
    Method::snapcast(
        "Group.SetName",
        Role::Control,
        "Set the name of a group",
        calls::set_group_name,
    )
    .params(&[GROUP, NAME])
    .returns(&[("name", "string")])
    .notifies(&["Group.OnNameChanged"]),
];

pub(crate) const STREAMS: &[Method] = &[
    Method::snapcast(
        "Stream.Control",
        Role::Control,
        "Pass a command to the control script of a stream",
        stations::calls::control,
    )
    .params(&[
        STREAM,
        Param::required(
            "command",
            ParamType::Text,
            "`play`, `pause`, `playPause`, `stop`, `next`, `previous`, `seek` or `setPosition`",
        ),
        Param::optional(
            "params",
            ParamType::Checked("an object", "object"),
            "the parameters of the command; they may also be beside it",
        ),
        Param::optional("offset", SECONDS, "of `seek`"),
        Param::optional("position", SECONDS, "of `setPosition`"),
    ])
    .notifies(&["Stream.OnProperties"]),
    Method::snapcast(
        "Stream.SetProperty",
        Role::Control,
        "Pass a property to the control script of a stream",
        stations::calls::set_property,
    )
    .params(&[
        STREAM,
        Param::required(
            "property",
            ParamType::Text,
            "`loopStatus`, `shuffle`, `volume`, `mute` or `rate`",
        ),
        Param::required(
            "value",
            ParamType::Checked("a value of the property", "string|boolean|number"),
            "of `loopStatus`: `none`, `track` or `playlist`",
        ),
    ])
    .notifies(&["Stream.OnProperties"]),
    Method::snapcast("Stream.AddStream", Role::Admin, "Add a stream", stations::calls::add_stream)
        .params(&[Param::required("streamUri", ParamType::Text, "`TYPE://host/path?name=NAME`")])
        .returns(&[("id", "string"), ("stream_id", "string")])
        .notifies(&["Server.OnUpdate"])
        .heavy(),
    Method::snapcast(
        "Stream.RemoveStream",
        Role::Admin,
        "Remove a stream that a call has added",
        stations::calls::remove_stream,
    )
    .params(&[REMOVED_STREAM])
    .returns(&[("id", "string"), ("stream_id", "string")])
    .notifies(&["Group.OnStreamChanged", "Server.OnUpdate"])
    .heavy(),
];

const SECONDS: ParamType = ParamType::Checked("a number of seconds", "number");
