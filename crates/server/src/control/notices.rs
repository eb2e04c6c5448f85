//! Notices as the notifications that controllers know.

use serde_json::{Value, json};

use super::{Control, ControlState};
use crate::registry::{ClientJson, Notice, volume_json};

impl Control {
    /// The method and the parameters of a notification.
    pub(super) fn render(&self, inner: &ControlState, notice: &Notice) -> (&'static str, String) {
        match notice {
            Notice::Server => ("Server.OnUpdate", self.server_text(inner)),
            small => {
                let (method, params) = Self::render_change(inner, small);
                (method, params.to_string())
            }
        }
    }

    /// Everything but the whole house.
    fn render_change(inner: &ControlState, notice: &Notice) -> (&'static str, Value) {
        let registry = &inner.registry;
        let known = |id: &str| registry.client(id).map(|(_, client)| client);
        let client = |id: &str| known(id).map(ClientJson::from);
        let group = |id: &str| registry.group(id);
        match notice {
            Notice::Connected(id) => {
                ("Client.OnConnect", json!({ "id": id, "client": client(id) }))
            }
            Notice::Disconnected(id) => {
                ("Client.OnDisconnect", json!({ "id": id, "client": client(id) }))
            }
            Notice::Volume(id) => (
                "Client.OnVolumeChanged",
                json!({ "id": id, "volume": known(id).map(volume_json) }),
            ),
            Notice::Latency(id) => (
                "Client.OnLatencyChanged",
                json!({ "id": id, "latency": known(id).map(|one| one.latency_ms) }),
            ),
            Notice::ChannelMap(id) => {
                let map = known(id).map(|client| client.map.name());
                ("Aulos.OnChannelMapChanged", json!({ "client": id, "map": map }))
            }
            Notice::ClientName(id) => (
                "Client.OnNameChanged",
                json!({ "id": id, "name": known(id).map(|one| &one.name) }),
            ),
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
            Notice::Server => ("Server.OnUpdate", Value::Null),
        }
    }
}
