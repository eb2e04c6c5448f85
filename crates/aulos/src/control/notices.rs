//! Notices as the notifications that controllers know.

use serde_json::{Value, json};

use super::{Control, Inner};
use crate::registry::{Notice, client_json};

impl Control {
    /// The method and the parameters of a notification.
    pub(super) fn render(&self, inner: &Inner, notice: &Notice) -> (&'static str, Value) {
        let registry = &inner.registry;
        let client = |id: &str| registry.client(id).map(|(_, client)| client_json(client));
        let config = |id: &str, key: &str| client(id).map(|client| client["config"][key].clone());
        let group = |id: &str| registry.group(id);
        match notice {
            Notice::Connected(id) => {
                ("Client.OnConnect", json!({ "id": id, "client": client(id) }))
            }
            Notice::Disconnected(id) => {
                ("Client.OnDisconnect", json!({ "id": id, "client": client(id) }))
            }
            Notice::Volume(id) => {
                ("Client.OnVolumeChanged", json!({ "id": id, "volume": config(id, "volume") }))
            }
            Notice::Latency(id) => {
                ("Client.OnLatencyChanged", json!({ "id": id, "latency": config(id, "latency") }))
            }
            Notice::ClientName(id) => {
                ("Client.OnNameChanged", json!({ "id": id, "name": config(id, "name") }))
            }
            Notice::Mute(id) => {
                ("Group.OnMute", json!({ "id": id, "mute": group(id).map(|group| group.muted) }))
            }
            Notice::Stream(id) => (
                "Group.OnStreamChanged",
                json!({ "id": id, "stream_id": group(id).map(|group| &group.station) }),
            ),
            Notice::GroupName(id) => (
                "Group.OnNameChanged",
                json!({ "id": id, "name": group(id).map(|group| &group.name) }),
            ),
            Notice::Server => ("Server.OnUpdate", self.server_json(inner)),
        }
    }
}
