//! The methods of Snapcast's control API, one row each.

use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::State;
use super::rpc::{internal, no_method};
use crate::registry::{Effects, NotFound, client_json, group_json};

type Answer = Result<Value, RpcError>;

/// A method: its name, what it is for, and what carries it out.
struct Method {
    name: &'static str,
    description: &'static str,
    run: fn(&mut State<'_>, &Value) -> Answer,
}

/// Carries a call out.
pub(super) fn run(state: &mut State<'_>, method: &str, params: &Value) -> Answer {
    let method = METHODS.iter().find(|known| known.name == method);
    (method.ok_or_else(no_method)?.run)(state, params)
}

const METHODS: [Method; 22] = [
    Method {
        name: "Server.GetStatus",
        description: "groups, clients, streams and the server itself",
        run: |state, _| Ok(state.status()),
    },
    Method {
        name: "Server.GetRPCVersion",
        description: "the version of this API",
        run: |_, _| Ok(json!({ "major": 23, "minor": 0, "patch": 0 })),
    },
    Method {
        name: "Server.DeleteClient",
        description: "forget a client",
        run: |state, params| {
            let effects = state.registry.delete_client(text(params, "id")?)?;
            state.keep(effects);
            Ok(state.status())
        },
    },
    Method {
        name: "Server.Authenticate",
        description: "log in; nobody has to",
        run: |_, _| Ok(json!("ok")),
    },
    Method {
        name: "General.GetRPCCommands",
        description: "this list",
        run: |_, _| Ok(json!({ "commands": METHODS.iter().map(describe).collect::<Vec<_>>() })),
    },
    Method {
        name: "Client.GetStatus",
        description: "one client",
        run: |state, params| {
            let (_, client) = state.registry.client(text(params, "id")?).ok_or(NotFound::Client)?;
            Ok(json!({ "client": client_json(client) }))
        },
    },
    Method {
        name: "Client.SetVolume",
        description: "set a client's volume, its mute, or both",
        run: set_volume,
    },
    Method {
        name: "Client.SetLatency",
        description: "set by how many milliseconds a client's device is late",
        run: |state, params| {
            let id = text(params, "id")?;
            let effects = state.registry.set_latency(id, whole(&params["latency"], "latency")?)?;
            state.keep(effects);
            Ok(json!({ "latency": state.registry.client(id).map(|(_, client)| client.latency_ms) }))
        },
    },
    Method {
        name: "Client.SetName",
        description: "name a client",
        run: |state, params| {
            let id = text(params, "id")?;
            let effects = state.registry.set_client_name(id, text(params, "name")?)?;
            state.keep(effects);
            Ok(json!({ "name": state.registry.client(id).map(|(_, client)| &client.name) }))
        },
    },
    Method {
        name: "Group.GetStatus",
        description: "one group",
        run: |state, params| {
            let group = state.registry.group(text(params, "id")?).ok_or(NotFound::Group)?;
            Ok(json!({ "group": group_json(group) }))
        },
    },
    Method {
        name: "Group.SetMute",
        description: "mute a group, or end that",
        run: |state, params| {
            let mute = params["mute"].as_bool().ok_or_else(|| wanted("mute", "true or false"))?;
            let effects = state.registry.set_mute(text(params, "id")?, mute)?;
            Ok(state.with(effects, json!({ "mute": mute })))
        },
    },
    Method {
        name: "Group.SetStream",
        description: "let a group play another stream",
        run: |state, params| {
            let stream = text(params, "stream_id")?;
            let effects = state.registry.set_stream(text(params, "id")?, stream)?;
            Ok(state.with(effects, json!({ "stream_id": stream })))
        },
    },
    Method {
        name: "Group.SetClients",
        description: "say which clients a group has",
        run: set_clients,
    },
    Method {
        name: "Group.SetName",
        description: "name a group",
        run: |state, params| {
            let id = text(params, "id")?;
            let effects = state.registry.set_group_name(id, text(params, "name")?)?;
            state.keep(effects);
            Ok(json!({ "name": state.registry.group(id).map(|group| &group.name) }))
        },
    },
    Method {
        name: "Stream.Control",
        description: "play, pause, seek; no stream of this version can",
        run: |state, params| {
            state.registry.station(text(params, "id")?).ok_or(NotFound::Station)?;
            Err(match text(params, "command")? {
                "next" => RpcError::new(2, "Stream property canGoNext is false"),
                "previous" => RpcError::new(3, "Stream property canGoPrevious is false"),
                "play" => RpcError::new(4, "Stream property canPlay is false"),
                "pause" | "playPause" => RpcError::new(5, "Stream property canPause is false"),
                "seek" | "setPosition" => RpcError::new(6, "Stream property canSeek is false"),
                "stop" => RpcError::new(7, "Stream property canControl is false"),
                other => RpcError::invalid_params(&format!("Command '{other}' not supported")),
            })
        },
    },
    Method {
        name: "Stream.SetProperty",
        description: "loop, shuffle, rate; no stream of this version can",
        run: |state, params| {
            state.registry.station(text(params, "id")?).ok_or(NotFound::Station)?;
            Err(RpcError::new(7, "Stream property canControl is false"))
        },
    },
    Method {
        name: "Stream.AddStream",
        description: "make a stream; not built yet",
        run: |_, params| {
            text(params, "streamUri")?;
            Err(internal(CONFIGURED))
        },
    },
    Method {
        name: "Stream.RemoveStream",
        description: "remove a stream; not built yet",
        run: |state, params| {
            let id = text(params, "id")?;
            match state.registry.station(id) {
                Some(_) => Err(internal(CONFIGURED)),
                // As snapserver has it: what is not there is as good as removed.
                None => Ok(json!({ "id": id, "stream_id": id })),
            }
        },
    },
    Method {
        name: "Aulos.GetInfo",
        description: "what this server is",
        run: |_, _| Ok(json!({ "name": "aulos", "version": env!("CARGO_PKG_VERSION") })),
    },
    Method {
        name: "Aulos.GetStatus",
        description: "stations, their sources and levels",
        run: |state, _| Ok(state.aulos_status()),
    },
    Method {
        name: "Aulos.GetLoudness",
        description: "how loud a station and its sources are (EBU R 128)",
        run: |state, params| {
            let station = state.station(text(params, "station")?).ok_or(NotFound::Station)?;
            Ok(state.loudness(station))
        },
    },
    Method {
        name: "Aulos.ResetLoudness",
        description: "measure a station and its sources anew from now on",
        run: |state, params| {
            let name = text(params, "station")?;
            state.reset_loudness(state.station(name).ok_or(NotFound::Station)?);
            Ok(json!({ "station": name }))
        },
    },
];

const CONFIGURED: &str =
    "streams are made in the configuration file; at run time is not built yet in this version";

fn set_volume(state: &mut State<'_>, params: &Value) -> Answer {
    let id = text(params, "id")?;
    state.registry.client(id).ok_or(NotFound::Client)?;
    let volume = &params["volume"];
    if !volume.is_object() {
        return Err(wanted("volume", "an object with percent, muted or both"));
    }
    let percent = match &volume["percent"] {
        Value::Null => None,
        percent => Some(whole(percent, "volume.percent")?),
    };
    let muted = match &volume["muted"] {
        Value::Null => None,
        muted => Some(muted.as_bool().ok_or_else(|| wanted("volume.muted", "true or false"))?),
    };
    let effects = state.registry.set_volume(id, percent, muted)?;
    state.keep(effects);
    let (_, client) = state.registry.client(id).ok_or(NotFound::Client)?;
    Ok(json!({ "volume": client_json(client)["config"]["volume"] }))
}

fn set_clients(state: &mut State<'_>, params: &Value) -> Answer {
    let id = text(params, "id")?;
    let ids = || wanted("clients", "a list of client ids");
    let clients = params["clients"].as_array().ok_or_else(ids)?;
    let clients: Option<Vec<String>> =
        clients.iter().map(|id| id.as_str().map(str::to_owned)).collect();
    let effects = state.registry.set_clients(id, &clients.ok_or_else(ids)?)?;
    state.keep(effects);
    Ok(state.status())
}

fn describe(method: &Method) -> Value {
    json!({
        "method": method.name,
        "description": method.description,
        "hasPermission": true,
        "requires": "",
    })
}

fn text<'a>(params: &'a Value, key: &str) -> Result<&'a str, RpcError> {
    params[key].as_str().ok_or_else(|| wanted(key, "text"))
}

/// A whole number, also where it was written with a fraction of zero; clamped to 64 bits.
fn whole(value: &Value, key: &str) -> Result<i64, RpcError> {
    // Saturates; what is wanted is far smaller and clamped by the registry.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let number = value.as_i64().or_else(|| value.as_f64().map(|number| number.round() as i64));
    number.ok_or_else(|| wanted(key, "a number"))
}

fn wanted(key: &str, kind: &str) -> RpcError {
    RpcError::invalid_params(&format!("`{key}` must be {kind}"))
}

impl From<NotFound> for RpcError {
    fn from(error: NotFound) -> Self {
        internal(error.to_string())
    }
}

impl State<'_> {
    fn with(&mut self, effects: Effects, answer: Value) -> Value {
        self.keep(effects);
        answer
    }
}
