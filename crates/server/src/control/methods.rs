//! The methods of Snapcast's control API, one row each.

use std::sync::LazyLock;

use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::roles::{self, FORBIDDEN, UNAUTHORIZED};
use super::rpc::{internal, no_method};
use super::streams::Slot;
use super::{State, announce, fallback, hooks, house_methods, playing, recordings, relays, sound};
use crate::access::{Credentials, Denied, Role};
use crate::registry::{ClientShape, Effects, GroupShape, NotFound, Notice, volume_json};

pub(super) type Answer = Result<Value, RpcError>;

/// A method: its name, what it is for, and what carries it out.
struct Method {
    name: &'static str,
    description: &'static str,
    run: fn(&mut State<'_>, &Value) -> Answer,
}

/// Carries a call out.
pub(super) fn run(state: &mut State<'_>, method: &str, params: &Value) -> Answer {
    let method = METHODS.iter().find(|known| known.name == method).ok_or_else(no_method)?;
    roles::may(state.caller, method.name)?;
    (method.run)(state, params)
}

const METHODS: [Method; 49] = [
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
            let effects = state.inner.registry.delete_client(text(params, "id")?)?;
            state.keep(effects);
            Ok(state.status())
        },
    },
    Method { name: "Server.Authenticate", description: "log in", run: authenticate },
    Method {
        name: "General.GetRPCCommands",
        description: "this list",
        run: |state, _| {
            *state.text = Some(commands(state.caller.role).to_owned());
            Ok(Value::Null)
        },
    },
    Method {
        name: "Client.GetStatus",
        description: "one client",
        run: |state, params| {
            let (_, client) =
                state.inner.registry.client(text(params, "id")?).ok_or(NotFound::Client)?;
            Ok(json!({ "client": ClientShape::from(client) }))
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
            let effects =
                state.inner.registry.set_latency(id, whole(&params["latency"], "latency")?)?;
            state.keep(effects);
            Ok(
                json!({ "latency": state.inner.registry.client(id).map(|(_, client)| client.latency_ms) }),
            )
        },
    },
    Method {
        name: "Client.SetName",
        description: "name a client",
        run: |state, params| {
            let id = text(params, "id")?;
            let effects = state.inner.registry.set_client_name(id, text(params, "name")?)?;
            state.keep(effects);
            Ok(json!({ "name": state.inner.registry.client(id).map(|(_, client)| &client.name) }))
        },
    },
    Method {
        name: "Group.GetStatus",
        description: "one group",
        run: |state, params| {
            let registry = &state.inner.registry;
            let group = registry.group(text(params, "id")?).ok_or(NotFound::Group)?;
            Ok(json!({ "group": GroupShape::new(registry, group) }))
        },
    },
    Method {
        name: "Group.SetMute",
        description: "mute a group, or end that",
        run: |state, params| {
            let mute = params["mute"].as_bool().ok_or_else(|| wanted("mute", "true or false"))?;
            let effects = state.inner.registry.set_mute(text(params, "id")?, mute)?;
            Ok(state.with(effects, json!({ "mute": mute })))
        },
    },
    Method {
        name: "Group.SetStream",
        description: "let a group play another stream",
        run: |state, params| {
            let stream = text(params, "stream_id")?;
            let effects = state.inner.registry.set_stream(text(params, "id")?, stream)?;
            state.keep(effects);
            let group = state.inner.registry.group(text(params, "id")?).ok_or(NotFound::Group)?;
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
            let id = text(params, "id")?;
            let effects = state.inner.registry.set_group_name(id, text(params, "name")?)?;
            state.keep(effects);
            Ok(json!({ "name": state.inner.registry.group(id).map(|group| &group.name) }))
        },
    },
    Method {
        name: "Stream.Control",
        description: "play, pause, stop, next, previous, seek; by the stream's control script",
        run: |state, params| {
            let slot = state.voice(text(params, "id")?)?;
            playing::control(slot, text(params, "command")?, params)
        },
    },
    Method {
        name: "Stream.SetProperty",
        description: "loop, shuffle, volume, mute, rate; by the stream's control script",
        run: |state, params| {
            let slot = state.voice(text(params, "id")?)?;
            playing::set_property(slot, text(params, "property")?, &params["value"])
        },
    },
    Method {
        name: "Stream.AddStream",
        description: "make a stream out of its address",
        run: |state, params| {
            let uri = text(params, "streamUri")?;
            let id = state.control.add_stream(state.inner, uri, true)?;
            state.keep(Effects { save: true, notices: vec![Notice::Server], ..Effects::default() });
            Ok(json!({ "id": id, "stream_id": id }))
        },
    },
    Method {
        name: "Stream.RemoveStream",
        description: "remove a stream that was added",
        run: |state, params| {
            let id = text(params, "id")?;
            let number = state.inner.slot(id).map(|(number, _)| number);
            let effects = state.control.remove_stream(state.inner, id)?;
            state.keep(effects);
            state.ended.extend(number);
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
        run: |state, _| Ok(house_methods::servers(&state.neighbours())),
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
            state.keep(effects);
            Ok(reloaded.json())
        },
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
        run: house_methods::set_volume,
    },
    Method {
        name: "Aulos.SetVolumeCap",
        description: "say how loud a client may get",
        run: house_methods::set_cap,
    },
    Method {
        name: "Aulos.SetChannelMap",
        description: "let a client play one channel of its stream, or all",
        run: house_methods::set_map,
    },
    Method {
        name: "Aulos.GetPresets",
        description: "names and sizes of all presets, or one preset with its groups",
        run: house_methods::get_presets,
    },
    Method {
        name: "Aulos.SavePreset",
        description: "keep the groups as they are under a name",
        run: house_methods::save_preset,
    },
    Method {
        name: "Aulos.ApplyPreset",
        description: "put the groups back as they were",
        run: house_methods::apply_preset,
    },
    Method {
        name: "Aulos.DeletePreset",
        description: "forget an arrangement",
        run: house_methods::delete_preset,
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
];

/// The names of all methods.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|method| method.name)
}

fn authenticate(state: &mut State<'_>, params: &Value) -> Answer {
    let access = &state.control.access;
    if access.rules().users.is_empty() {
        // Nobody has to say anything, so nothing that is said is wrong.
        return Ok(json!("ok"));
    }
    let credentials = Credentials::of(text(params, "scheme")?, text(params, "param")?);
    let denied = |(code, message), data: &str| RpcError {
        data: Some(data.into()),
        ..RpcError::new(code, message)
    };
    let role = state.control.login(state.caller.from, &credentials).map_err(|why| match why {
        Denied::Wrong => denied(UNAUTHORIZED, "the name or the secret is wrong"),
        Denied::Slowed => denied(FORBIDDEN, "too many wrong logins: try again in a minute"),
    })?;
    state.caller.role = role.max(state.caller.role);
    state.caller.has_logged_in = true;
    if let Some(peer) = state.caller.peer.filter(|_| role >= Role::Listen) {
        state.inner.peers.let_hear(peer);
    }
    Ok(json!("ok"))
}

fn set_volume(state: &mut State<'_>, params: &Value) -> Answer {
    let id = text(params, "id")?;
    state.inner.registry.client(id).ok_or(NotFound::Client)?;
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
    let effects = state.inner.registry.set_volume(id, percent, muted)?;
    state.keep(effects);
    let (_, client) = state.inner.registry.client(id).ok_or(NotFound::Client)?;
    Ok(json!({ "volume": volume_json(client) }))
}

fn set_clients(state: &mut State<'_>, params: &Value) -> Answer {
    let id = text(params, "id")?;
    let ids = || wanted("clients", "a list of client ids");
    let clients = params["clients"].as_array().ok_or_else(ids)?;
    let clients: Option<Vec<String>> =
        clients.iter().map(|id| id.as_str().map(str::to_owned)).collect();
    let effects = state.inner.registry.set_clients(id, &clients.ok_or_else(ids)?)?;
    state.keep(effects);
    Ok(state.status())
}

/// The list of methods as JSON. It is the same for ever, so it is written once for each role: whoever
/// may do nothing else may ask for it.
fn commands(role: Role) -> &'static str {
    static LISTS: [LazyLock<String>; 4] = [
        LazyLock::new(|| list(Role::Nobody)),
        LazyLock::new(|| list(Role::Listen)),
        LazyLock::new(|| list(Role::Control)),
        LazyLock::new(|| list(Role::Admin)),
    ];
    let [nobody, listen, control, admin] = &LISTS;
    match role {
        Role::Nobody => nobody,
        Role::Listen => listen,
        Role::Control => control,
        Role::Admin => admin,
    }
}

fn list(role: Role) -> String {
    let commands: Vec<_> = METHODS.iter().map(|method| describe(method, role)).collect();
    json!({ "commands": commands }).to_string()
}

fn describe(method: &Method, role: Role) -> Value {
    let needed = roles::needs(method.name);
    json!({
        "method": method.name,
        "description": method.description,
        "hasPermission": role >= needed,
        "requires": if needed == Role::Nobody { "" } else { needed.name() },
    })
}

pub(super) fn text<'a>(params: &'a Value, key: &str) -> Result<&'a str, RpcError> {
    params[key].as_str().ok_or_else(|| wanted(key, "text"))
}

/// A whole number, also where it was written with a fraction of zero; clamped to 64 bits.
pub(super) fn whole(value: &Value, key: &str) -> Result<i64, RpcError> {
    // Saturates; what is wanted is far smaller and clamped by the registry.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let number = value.as_i64().or_else(|| value.as_f64().map(|number| number.round() as i64));
    number.ok_or_else(|| wanted(key, "a number"))
}

pub(super) fn wanted(key: &str, kind: &str) -> RpcError {
    RpcError::invalid_params(&format!("`{key}` must be {kind}"))
}

impl From<NotFound> for RpcError {
    fn from(error: NotFound) -> Self {
        internal(error.to_string())
    }
}

impl State<'_> {
    /// Who controls a stream.
    fn voice(&self, name: &str) -> Result<&Slot, NotFound> {
        let (number, _) = self.inner.slot(name).ok_or(NotFound::Station)?;
        self.control.voice(self.inner, number).ok_or(NotFound::Station)
    }

    fn with(&mut self, effects: Effects, answer: Value) -> Value {
        self.keep(effects);
        answer
    }
}
