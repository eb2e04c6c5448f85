//! The methods of Snapcast. Their answers and errors are snapserver's.

use aulos_proto::snap::control::RpcError;
use serde_json::json;

use crate::access::{Credentials, LoginError, Role};
use crate::clients::registry::{ClientJson, Effects, GroupJson, NotFound, Notice, volume_json};
use crate::control::context::CallContext;
use crate::control::state::Control;
use crate::methods::method::{DISCOVER, Method};
use crate::methods::params::{Param, ParamType, Params};
use crate::methods::roles::{FORBIDDEN, UNAUTHORIZED};
use crate::methods::rpc::MethodResult;
use crate::stations::playback;
use crate::stations::streams::StreamOrigin;

const CLIENT: Param = Param::required("id", ParamType::Text, "the client's id");
const GROUP: Param = Param::required("id", ParamType::Text, "the group's id");
const STREAM: Param = Param::required("id", ParamType::Text, "the stream's name");
const NAME: Param = Param::required("name", ParamType::Text, "");

pub(crate) const SERVER: &[Method] = &[
    Method::snapcast(
        "Server.GetStatus",
        Role::Listen,
        "Return groups, clients, streams and the server itself",
        |context, _| Ok(context.status()),
    )
    .returns(&[("server", "object")])
    .long(),
    Method::snapcast(
        "Server.GetRPCVersion",
        Role::None,
        "Return the version of this API",
        |_, _| Ok(json!({ "major": 23, "minor": 0, "patch": 0 })),
    )
    .returns(&[("major", "integer"), ("minor", "integer"), ("patch", "integer")]),
    Method::snapcast("Server.DeleteClient", Role::Admin, "Delete a client", delete_client)
        .params(&[CLIENT])
        .returns(&[("server", "object")])
        .notifies(&["Server.OnUpdate"])
        .long(),
    Method::snapcast("Server.Authenticate", Role::None, "Log in", authenticate).params(&[
        Param::required("scheme", ParamType::Text, "`Basic`, `Plain` or `Bearer`"),
        Param::required("param", ParamType::Text, "the credentials"),
    ]),
    Method::snapcast(
        "General.GetRPCCommands",
        Role::None,
        "List the methods, with the caller's permissions",
        |context, _| {
            let list = Control::method_list(context.caller.role).to_owned();
            Ok(context.answer_text(list))
        },
    )
    .returns(&[("commands", "array")]),
    Method::snapcast(
        DISCOVER,
        Role::None,
        "Describe all methods as an OpenRPC document",
        |context, _| Ok(context.answer_text(Control::openrpc().to_owned())),
    )
    .returns_document("an [OpenRPC](https://spec.open-rpc.org) document"),
];

pub(crate) const CLIENTS: &[Method] = &[
    Method::snapcast(
        "Client.GetStatus",
        Role::Listen,
        "Return the state of a client",
        |context, params| {
            let client = context.inner.registry.table.client(params.text("id")?);
            let (_, client) = client.ok_or(NotFound::Client)?;
            Ok(json!({ "client": ClientJson::from(client) }))
        },
    )
    .params(&[CLIENT])
    .returns(&[("client", "object")]),
    Method::snapcast(
        "Client.SetVolume",
        Role::Control,
        "Set the volume of a client, its mute, or both",
        set_volume,
    )
    .params(&[CLIENT, Param::required("volume", VOLUME, "members that are not given stay")])
    .returns(&[("volume", "object")])
    .notifies(&["Client.OnVolumeChanged"]),
    Method::snapcast(
        "Client.SetLatency",
        Role::Control,
        "Set the additional latency of a client's device",
        set_latency,
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
    Method::snapcast("Client.SetName", Role::Control, "Set the name of a client", set_client_name)
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
            let registry = &context.inner.registry;
            let group = registry.table.group(params.text("id")?).ok_or(NotFound::Group)?;
            Ok(json!({ "group": GroupJson::new(registry, group) }))
        },
    )
    .params(&[GROUP])
    .returns(&[("group", "object")]),
    Method::snapcast("Group.SetMute", Role::Control, "Mute or unmute a group", set_mute)
        .params(&[GROUP, Param::required("mute", ParamType::Bool, "")])
        .returns(&[("mute", "boolean")])
        .notifies(&["Group.OnMute"]),
    Method::snapcast("Group.SetStream", Role::Control, "Set the stream of a group", set_stream)
        .params(&[GROUP, Param::required("stream_id", ParamType::Text, "the stream's name")])
        .returns(&[("stream_id", "string")])
        .notifies(&["Group.OnStreamChanged"]),
    Method::snapcast("Group.SetClients", Role::Control, "Set the clients of a group", set_clients)
        .params(&[GROUP, Param::required("clients", ParamType::Texts("client ids"), "")])
        .returns(&[("server", "object")])
        .notifies(&["Server.OnUpdate"])
        .long(),
    Method::snapcast("Group.SetName", Role::Control, "Set the name of a group", set_group_name)
        .params(&[GROUP, NAME])
        .returns(&[("name", "string")])
        .notifies(&["Group.OnNameChanged"]),
];

pub(crate) const STREAMS: &[Method] = &[
    Method::snapcast(
        "Stream.Control",
        Role::Control,
        "Pass a command to the control script of a stream",
        playback::control,
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
        playback::set_property,
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
    Method::snapcast("Stream.AddStream", Role::Admin, "Add a stream", add_stream)
        .params(&[Param::required("streamUri", ParamType::Text, "`TYPE://host/path?name=NAME`")])
        .returns(&[("id", "string"), ("stream_id", "string")])
        .notifies(&["Server.OnUpdate"])
        .heavy(),
    Method::snapcast(
        "Stream.RemoveStream",
        Role::Admin,
        "Remove a stream that a call has added",
        remove_stream,
    )
    .params(&[STREAM])
    .returns(&[("id", "string"), ("stream_id", "string")])
    .notifies(&["Group.OnStreamChanged", "Server.OnUpdate"])
    .heavy(),
];

const SECONDS: ParamType = ParamType::Checked("a number of seconds", "number");

fn delete_client(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let effects = context.inner.registry.delete_client(params.text("id")?)?;
    context.push_effects(effects);
    Ok(context.status())
}

fn authenticate(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let access = &context.control.access;
    if access.rules().users.is_empty() {
        // No users are configured, so any login succeeds.
        return Ok(json!("ok"));
    }
    let credentials = Credentials::parse(params.text("scheme")?, params.text("param")?);
    let denied = |(code, message), data: &str| RpcError {
        data: Some(data.into()),
        ..RpcError::new(code, message)
    };
    let role =
        context.control.login(context.caller.from, &credentials).map_err(|why| match why {
            LoginError::WrongCredentials => denied(UNAUTHORIZED, "the name or the secret is wrong"),
            LoginError::RateLimited => {
                denied(FORBIDDEN, "too many wrong logins: try again in a minute")
            }
        })?;
    context.caller.role = role.max(context.caller.role);
    context.caller.has_logged_in = true;
    if let Some(peer) = context.caller.peer.filter(|_| role >= Role::Listen) {
        context.inner.peers.subscribe(peer);
    }
    Ok(json!("ok"))
}

fn set_volume(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.inner.registry;
    registry.table.client(id).ok_or(NotFound::Client)?;
    let volume = params.object("volume", "volume.")?;
    let percent = volume.optional_integer("percent")?;
    let effects = registry.set_volume(id, percent, volume.optional_bool("muted")?)?;
    let (_, client) = registry.table.client(id).ok_or(NotFound::Client)?;
    let answer = json!({ "volume": volume_json(client) });
    context.push_effects(effects);
    Ok(answer)
}

fn set_latency(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.inner.registry;
    let effects = registry.set_latency(id, params.integer("latency")?)?;
    let answer =
        json!({ "latency": registry.table.client(id).map(|(_, client)| client.latency_ms) });
    context.push_effects(effects);
    Ok(answer)
}

fn set_client_name(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.inner.registry;
    let effects = registry.set_client_name(id, params.text("name")?)?;
    let answer = json!({ "name": registry.table.client(id).map(|(_, client)| &client.name) });
    context.push_effects(effects);
    Ok(answer)
}

fn set_mute(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let mute = params.bool("mute")?;
    let effects = context.inner.registry.set_mute(params.text("id")?, mute)?;
    context.push_effects(effects);
    Ok(json!({ "mute": mute }))
}

fn set_stream(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let stream = params.text("stream_id")?;
    let id = params.text("id")?;
    let effects = context.inner.registry.set_stream(id, stream)?;
    context.push_effects(effects);
    let group = context.inner.registry.table.group(id).ok_or(NotFound::Group)?;
    Ok(json!({ "stream_id": group.station }))
}

fn set_clients(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let clients: Vec<String> = params.texts("clients")?.into_iter().map(str::to_owned).collect();
    let effects = context.inner.registry.set_clients(id, &clients)?;
    context.push_effects(effects);
    Ok(context.status())
}

fn set_group_name(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.inner.registry;
    let effects = registry.set_group_name(id, params.text("name")?)?;
    let answer = json!({ "name": registry.table.group(id).map(|group| &group.name) });
    context.push_effects(effects);
    Ok(answer)
}

fn add_stream(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let origin = StreamOrigin::Call(context.caller.from);
    let id = context.control.add_stream(context.inner, params.text("streamUri")?, origin)?;
    let notices = vec![Notice::Server];
    context.push_effects(Effects { save: true, notices, ..Effects::default() });
    Ok(json!({ "id": id, "stream_id": id }))
}

fn remove_stream(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let number = context.inner.slot(id).map(|(number, _)| number);
    let effects = context.control.remove_stream(context.inner, id)?;
    context.push_effects(effects);
    context.outcome.removed_stations.extend(number);
    Ok(json!({ "id": id, "stream_id": id }))
}
