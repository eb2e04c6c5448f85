//! Groups and clients in Snapcast's JSON, as controllers read them and as `server.json` keeps them.

use serde_json::{Value, json};

use super::client::{Client, Group, Wall, clip};

/// A client as `Client.GetStatus` shows it.
#[must_use]
pub fn client_json(client: &Client) -> Value {
    let mut shape = json!({
        "id": client.id,
        "connected": client.session.is_some(),
        "config": {
            "instance": client.instance,
            "latency": client.latency_ms,
            "name": client.name,
            "volume": { "muted": client.muted, "percent": client.volume },
        },
        "host": {
            "arch": client.arch,
            "ip": client.ip,
            "mac": client.mac,
            "name": client.host_name,
            "os": client.os,
        },
        "lastSeen": { "sec": client.last_seen.sec, "usec": client.last_seen.usec },
        "snapclient": {
            "name": client.software,
            "protocolVersion": client.protocol,
            "version": client.version,
        },
    });
    if client.cap < 100 {
        shape["config"]["volume"]["cap"] = json!(client.cap);
    }
    shape
}

/// A group as `Group.GetStatus` shows it.
#[must_use]
pub fn group_json(group: &Group) -> Value {
    let mut value = json!({
        "id": group.id,
        "name": group.name,
        "stream_id": group.station,
        "muted": group.muted,
    });
    // Put in and not written above: `json!` copies the trees that it is given.
    value["clients"] = group.clients.iter().map(client_json).collect();
    value
}

/// A group that was saved, by us or by snapserver. What is missing has its default; what has no id
/// is left out.
pub(super) fn group_from(value: &Value) -> Group {
    let clients = value["clients"].as_array().map_or(&[][..], Vec::as_slice);
    Group {
        id: text(&value["id"]),
        name: text(&value["name"]),
        station: text(&value["stream_id"]),
        muted: value["muted"].as_bool().unwrap_or(false),
        clients: clients.iter().filter_map(client_from).collect(),
    }
}

fn client_from(value: &Value) -> Option<Client> {
    let (config, host, program) = (&value["config"], &value["host"], &value["snapclient"]);
    let id = text(&value["id"]);
    let percent = config["volume"]["percent"].as_i64().unwrap_or(100);
    let latency = config["latency"].as_i64().unwrap_or(0);
    let whole = |value: &Value, default| {
        value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    (!id.is_empty()).then(|| Client {
        id,
        name: text(&config["name"]),
        volume: super::clamp_volume(percent),
        muted: config["volume"]["muted"].as_bool().unwrap_or(false),
        cap: super::clamp_volume(config["volume"]["cap"].as_i64().unwrap_or(100)),
        latency_ms: i32::try_from(latency).unwrap_or(0).max(super::MIN_LATENCY_MS),
        instance: whole(&config["instance"], 1),
        host_name: text(&host["name"]),
        os: text(&host["os"]),
        arch: text(&host["arch"]),
        mac: text(&host["mac"]),
        ip: text(&host["ip"]),
        software: text(&program["name"]),
        version: text(&program["version"]),
        protocol: whole(&program["protocolVersion"], 2),
        last_seen: Wall {
            sec: value["lastSeen"]["sec"].as_i64().unwrap_or(0),
            usec: whole(&value["lastSeen"]["usec"], 0),
        },
        session: None,
    })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(String::new, clip)
}
