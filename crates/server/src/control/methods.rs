//! The methods of the control API, one row each.

use std::sync::LazyLock;

use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::roles::{self, FORBIDDEN, UNAUTHORIZED};
use super::rpc::{internal_error, method_not_found};
use super::streams::StationSlot;
use super::{
    CallContext, announce, extension_methods, fallback, hooks, markers, playback, recordings,
    relays, sound,
};
use crate::access::{Credentials, LoginError, Role};
use crate::registry::{ClientJson, Effects, GroupJson, NotFound, Notice, volume_json};

pub(super) type MethodResult = Result<Value, RpcError>;

/// A method: name, description and implementation.
struct Method {
    name: &'static str,
    description: &'static str,
    run: fn(&mut CallContext<'_>, &Value) -> MethodResult,
}

/// Executes a call.
pub(super) fn dispatch(state: &mut CallContext<'_>, method: &str, params: &Value) -> MethodResult {
    let method = METHODS.iter().find(|known| known.name == method).ok_or_else(method_not_found)?;
    roles::authorize(state.caller, method.name)?;
    (method.run)(state, params)
}

const METHODS: [Method; 50] = [
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
            let effects = state.inner.registry.delete_client(text_param(params, "id")?)?;
            state.push_effects(effects);
            Ok(state.status())
        },
    },
    Method { name: "Server.Authenticate", description: "log in", run: authenticate },
    Method {
        name: "General.GetRPCCommands",
        description: "this list",
        run: |state, _| {
            *state.text_answer = Some(commands(state.caller.role).to_owned());
            Ok(Value::Null)
        },
    },
    Method {
        name: "Client.GetStatus",
        description: "one client",
        run: |state, params| {
            let (_, client) =
                state.inner.registry.client(text_param(params, "id")?).ok_or(NotFound::Client)?;
            Ok(json!({ "client": ClientJson::from(client) }))
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
            let id = text_param(params, "id")?;
            let effects =
                state.inner.registry.set_latency(id, integer(&params["latency"], "latency")?)?;
            state.push_effects(effects);
            Ok(
                json!({ "latency": state.inner.registry.client(id).map(|(_, client)| client.latency_ms) }),
            )
        },
    },
    Method {
        name: "Client.SetName",
        description: "name a client",
        run: |state, params| {
            let id = text_param(params, "id")?;
            let effects = state.inner.registry.set_client_name(id, text_param(params, "name")?)?;
            state.push_effects(effects);
            Ok(json!({ "name": state.inner.registry.client(id).map(|(_, client)| &client.name) }))
        },
    },
    Method {
        name: "Group.GetStatus",
        description: "one group",
        run: |state, params| {
            let registry = &state.inner.registry;
            let group = registry.group(text_param(params, "id")?).ok_or(NotFound::Group)?;
            Ok(json!({ "group": GroupJson::new(registry, group) }))
        },
    },
    Method {
        name: "Group.SetMute",
        description: "mute a group, or end that",
        run: |state, params| {
            let mute =
                params["mute"].as_bool().ok_or_else(|| invalid_param("mute", "true or false"))?;
            let effects = state.inner.registry.set_mute(text_param(params, "id")?, mute)?;
            Ok(state.answer_with_effects(effects, json!({ "mute": mute })))
        },
    },
    Method {
        name: "Group.SetStream",
        description: "let a group play another stream",
        run: |state, params| {
            let stream = text_param(params, "stream_id")?;
            let effects = state.inner.registry.set_stream(text_param(params, "id")?, stream)?;
            state.push_effects(effects);
            let group =
                state.inner.registry.group(text_param(params, "id")?).ok_or(NotFound::Group)?;
            Ok(json!({ "stream_id": group.station }))
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
            let id = text_param(params, "id")?;
            let effects = state.inner.registry.set_group_name(id, text_param(params, "name")?)?;
            state.push_effects(effects);
            Ok(json!({ "name": state.inner.registry.group(id).map(|group| &group.name) }))
        },
    },
    Method {
        name: "Stream.Control",
        description: "play, pause, stop, next, previous, seek; by the stream's control script",
        run: |state, params| {
            let slot = state.metadata_slot(text_param(params, "id")?)?;
            playback::control(slot, text_param(params, "command")?, params)
        },
    },
    Method {
        name: "Stream.SetProperty",
        description: "loop, shuffle, volume, mute, rate; by the stream's control script",
        run: |state, params| {
            let slot = state.metadata_slot(text_param(params, "id")?)?;
            playback::set_property(slot, text_param(params, "property")?, &params["value"])
        },
    },
    Method {
        name: "Stream.AddStream",
        description: "make a stream out of its address",
        run: |state, params| {
            let uri = text_param(params, "streamUri")?;
            let id = state.control.add_stream(state.inner, uri, true)?;
            state.push_effects(Effects {
                save: true,
                notices: vec![Notice::Server],
                ..Effects::default()
            });
            Ok(json!({ "id": id, "stream_id": id }))
        },
    },
    Method {
        name: "Stream.RemoveStream",
        description: "remove a stream that was added",
        run: |state, params| {
            let id = text_param(params, "id")?;
            let number = state.inner.slot(id).map(|(number, _)| number);
            let effects = state.control.remove_stream(state.inner, id)?;
            state.push_effects(effects);
            state.removed_stations.extend(number);
            Ok(json!({ "id": id, "stream_id": id }))
        },
    },
    Method {
        name: "Aulos.GetInfo",
        description: "what this server is",
        run: |_, _| Ok(json!({ "name": "aulos", "version": env!("CARGO_PKG_VERSION") })),
    },
    Method {
        name: "Aulos.GetServers",
        description: "other servers on the network",
        run: |state, _| Ok(extension_methods::servers(&state.neighbours())),
    },
    Method {
        name: "Aulos.GetStatus",
        description: "stations, their sources and levels",
        run: |state, _| Ok(state.aulos_status()),
    },
    Method {
        name: "Aulos.Reload",
        description: "read the configuration file again and do what differs",
        run: |state, _| {
            let (reloaded, effects) = state.control.reload_call(state.inner)?;
            state.push_effects(effects);
            Ok(reloaded.json())
        },
    },
    Method {
        name: "Aulos.GetLoudness",
        description: "how loud a station and its sources are (EBU R 128)",
        run: |state, params| {
            let station = state.station(text_param(params, "station")?).ok_or(NotFound::Station)?;
            Ok(state.loudness(station))
        },
    },
    Method {
        name: "Aulos.ResetLoudness",
        description: "measure a station and its sources anew from now on",
        run: |state, params| {
            let name = text_param(params, "station")?;
            state.reset_loudness(state.station(name).ok_or(NotFound::Station)?);
            Ok(json!({ "station": name }))
        },
    },
    Method {
        name: "Aulos.GetNormalize",
        description: "how a station is normalized, and what that does",
        run: sound::get_normalize,
    },
    Method {
        name: "Aulos.SetNormalize",
        description: "normalize a station, otherwise than before, or no more",
        run: sound::set_normalize,
    },
    Method {
        name: "Aulos.SetCompare",
        description: "let a station be heard as it comes, as loud as normalized",
        run: sound::set_compare,
    },
    Method {
        name: "Aulos.GetEqualizer",
        description: "the bands of a station's equalizer",
        run: sound::get_equalizer,
    },
    Method {
        name: "Aulos.SetEqualizer",
        description: "give a station's equalizer other bands",
        run: sound::set_equalizer,
    },
    Method {
        name: "Aulos.SetVolume",
        description: "set the volume of a client or of a group, or change it by a number",
        run: extension_methods::set_volume,
    },
    Method {
        name: "Aulos.SetVolumeCap",
        description: "say how loud a client may get",
        run: extension_methods::set_cap,
    },
    Method {
        name: "Aulos.SetChannelMap",
        description: "let a client play one channel of its stream, or all",
        run: extension_methods::set_map,
    },
    Method {
        name: "Aulos.GetPresets",
        description: "names and sizes of all presets, or one preset with its groups",
        run: extension_methods::get_presets,
    },
    Method {
        name: "Aulos.SavePreset",
        description: "keep the groups as they are under a name",
        run: extension_methods::save_preset,
    },
    Method {
        name: "Aulos.ApplyPreset",
        description: "put the groups back as they were",
        run: extension_methods::apply_preset,
    },
    Method {
        name: "Aulos.DeletePreset",
        description: "forget an arrangement",
        run: extension_methods::delete_preset,
    },
    Method {
        name: "Aulos.SetSource",
        description: "let a station play one of its sources for a while, or choose by itself again",
        run: fallback::set_source,
    },
    Method {
        name: "Aulos.TestHook",
        description: "send a test to one of the hooks",
        run: hooks::test,
    },
    Method {
        name: "Aulos.Announce",
        description: "say something over a station's programme",
        run: announce::announce,
    },
    Method {
        name: "Aulos.CancelAnnouncement",
        description: "end an announcement, or all of a station",
        run: announce::cancel,
    },
    Method {
        name: "Aulos.GetRelays",
        description: "what is relayed, and what that came to",
        run: relays::get,
    },
    Method {
        name: "Aulos.AddRelay",
        description: "relay RTP until the server ends",
        run: relays::add,
    },
    Method { name: "Aulos.RemoveRelay", description: "end a relay", run: relays::remove },
    Method {
        name: "Aulos.GetRecordings",
        description: "every recorder, and what it does",
        run: recordings::get,
    },
    Method {
        name: "Aulos.StartRecording",
        description: "begin to record, at an exact moment that may have gone by",
        run: recordings::start,
    },
    Method {
        name: "Aulos.StopRecording",
        description: "end a recording, at an exact moment",
        run: recordings::stop,
    },
    Method {
        name: "Aulos.PauseRecording",
        description: "record nothing for a while, or silence",
        run: recordings::pause,
    },
    Method {
        name: "Aulos.ResumeRecording",
        description: "go on after a pause",
        run: recordings::resume,
    },
    Method {
        name: "Aulos.CutRecording",
        description: "end the file of a recording and begin the next one, without a gap",
        run: recordings::cut,
    },
    Method {
        name: "Aulos.AddMarker",
        description: "name a frame of a recording",
        run: markers::add,
    },
];

/// The names of all methods.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|method| method.name)
}

fn authenticate(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let access = &state.control.access;
    if access.rules().users.is_empty() {
        // No users are configured, so any login succeeds.
        return Ok(json!("ok"));
    }
    let credentials =
        Credentials::parse(text_param(params, "scheme")?, text_param(params, "param")?);
    let denied = |(code, message), data: &str| RpcError {
        data: Some(data.into()),
        ..RpcError::new(code, message)
    };
    let role = state.control.login(state.caller.from, &credentials).map_err(|why| match why {
        LoginError::WrongCredentials => denied(UNAUTHORIZED, "the name or the secret is wrong"),
        LoginError::RateLimited => {
            denied(FORBIDDEN, "too many wrong logins: try again in a minute")
        }
    })?;
    state.caller.role = role.max(state.caller.role);
    state.caller.has_logged_in = true;
    if let Some(peer) = state.caller.peer.filter(|_| role >= Role::Listen) {
        state.inner.peers.subscribe(peer);
    }
    Ok(json!("ok"))
}

fn set_volume(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let id = text_param(params, "id")?;
    state.inner.registry.client(id).ok_or(NotFound::Client)?;
    let volume = &params["volume"];
    if !volume.is_object() {
        return Err(invalid_param("volume", "an object with percent, muted or both"));
    }
    let percent = match &volume["percent"] {
        Value::Null => None,
        percent => Some(integer(percent, "volume.percent")?),
    };
    let muted = match &volume["muted"] {
        Value::Null => None,
        muted => {
            Some(muted.as_bool().ok_or_else(|| invalid_param("volume.muted", "true or false"))?)
        }
    };
    let effects = state.inner.registry.set_volume(id, percent, muted)?;
    state.push_effects(effects);
    let (_, client) = state.inner.registry.client(id).ok_or(NotFound::Client)?;
    Ok(json!({ "volume": volume_json(client) }))
}

fn set_clients(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let id = text_param(params, "id")?;
    let ids = || invalid_param("clients", "a list of client ids");
    let clients = params["clients"].as_array().ok_or_else(ids)?;
    let clients: Option<Vec<String>> =
        clients.iter().map(|id| id.as_str().map(str::to_owned)).collect();
    let effects = state.inner.registry.set_clients(id, &clients.ok_or_else(ids)?)?;
    state.push_effects(effects);
    Ok(state.status())
}

/// The list of methods as JSON. It never changes, so it is rendered once per role; even a caller
/// without permissions may request it.
fn commands(role: Role) -> &'static str {
    static LISTS: [LazyLock<String>; 4] = [
        LazyLock::new(|| render_list(Role::Nobody)),
        LazyLock::new(|| render_list(Role::Listen)),
        LazyLock::new(|| render_list(Role::Control)),
        LazyLock::new(|| render_list(Role::Admin)),
    ];
    let [nobody, listen, control, admin] = &LISTS;
    match role {
        Role::Nobody => nobody,
        Role::Listen => listen,
        Role::Control => control,
        Role::Admin => admin,
    }
}

fn render_list(role: Role) -> String {
    let commands: Vec<_> = METHODS.iter().map(|method| describe(method, role)).collect();
    json!({ "commands": commands }).to_string()
}

fn describe(method: &Method, role: Role) -> Value {
    let needed = roles::required_role(method.name);
    json!({
        "method": method.name,
        "description": method.description,
        "hasPermission": role >= needed,
        "requires": if needed == Role::Nobody { "" } else { needed.name() },
    })
}

pub(super) fn text_param<'a>(params: &'a Value, key: &str) -> Result<&'a str, RpcError> {
    params[key].as_str().ok_or_else(|| invalid_param(key, "text"))
}

/// An integer; a float with a zero fraction is accepted. Clamped to 64 bits.
pub(super) fn integer(value: &Value, key: &str) -> Result<i64, RpcError> {
    // The cast saturates; the registry clamps to a much smaller range.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let number = value.as_i64().or_else(|| value.as_f64().map(|number| number.round() as i64));
    number.ok_or_else(|| invalid_param(key, "a number"))
}

pub(super) fn invalid_param(key: &str, kind: &str) -> RpcError {
    RpcError::invalid_params(&format!("`{key}` must be {kind}"))
}

impl From<NotFound> for RpcError {
    fn from(error: NotFound) -> Self {
        internal_error(error.to_string())
    }
}

impl CallContext<'_> {
    /// The slot whose control script controls a stream.
    fn metadata_slot(&self, name: &str) -> Result<&StationSlot, NotFound> {
        let (number, _) = self.inner.slot(name).ok_or(NotFound::Station)?;
        self.control.metadata_slot(self.inner, number).ok_or(NotFound::Station)
    }

    fn answer_with_effects(&mut self, effects: Effects, answer: Value) -> Value {
        self.push_effects(effects);
        answer
    }
}
