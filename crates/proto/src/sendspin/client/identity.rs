//! Who a client is, and what it says of itself.

use core::fmt;

use serde_json::{Value, json};

use crate::sendspin::dialect::Dialect;
use crate::sendspin::format::SupportedFormat;
use crate::sendspin::hello::{ARTWORK, CONTROLLER, METADATA, PLAYER};
use crate::sendspin::key::{KEY_LEN, Key, PairingToken};
use crate::sendspin::noise::{Psk, SENTINEL_PSK, derive, derive_for, psk_id, public_key};

/// The keys of a client, all of which follow from its private one.
///
/// So there is one secret to keep, and nothing to save when a server is paired: its key is made from
/// the private key and its id, and only a paired server has been told it. Another private key makes
/// all servers strangers.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    private: [u8; KEY_LEN],
    public: Key,
}

/// What a player says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct PlayerHello {
    /// Its name for people.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// What it can play, the best first; not empty.
    pub formats: Vec<SupportedFormat>,
    /// Bytes that it holds before they are played; not 0.
    pub buffer_capacity: u32,
    /// Whether a server may play that is not paired.
    pub unpaired_access: bool,
}

/// When a player needs its sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct PlayerDelays {
    /// How long before its timestamp sound is played, in ms, at most 5000.
    pub output_ms: u32,
    /// How long before that it has to arrive, in ms.
    pub lead_ms: u32,
}

/// What a server has proved to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the kinds of keys of the protocol")]
pub enum ServerTrust {
    /// Nothing: everybody has its key.
    #[default]
    Unpaired,
    /// The key of the token, with which it can be paired.
    Pairing,
    /// The key of its pairing.
    Paired,
}

impl ClientIdentity {
    /// The client with this private key.
    #[must_use]
    pub fn new(private: [u8; KEY_LEN]) -> Self {
        Self { public: public_key(&private), private }
    }

    /// The public key, which is the client's id.
    #[must_use]
    pub const fn id(&self) -> Key {
        self.public
    }

    /// What the operator of a server enters there to pair it.
    #[must_use]
    pub fn pairing_token(&self) -> PairingToken {
        PairingToken { client: self.public, psk: self.pairing_psk().0 }
    }

    pub(super) const fn private(&self) -> &[u8; KEY_LEN] {
        &self.private
    }

    /// The key of the pairing with this server.
    pub(super) fn long_term_psk(&self, server: &Key) -> Psk {
        Psk(derive_for(b"aulos-sendspin-paired-v1", &self.private, server))
    }

    /// What the server knows that names a key by this id, and the key; `None` for another one.
    pub(super) fn find(&self, server: &Key, id: &str) -> Option<(ServerTrust, Psk)> {
        let all = [
            (ServerTrust::Paired, self.long_term_psk(server)),
            (ServerTrust::Pairing, self.pairing_psk()),
            (ServerTrust::Unpaired, SENTINEL_PSK),
        ];
        all.into_iter().find(|(_, psk)| psk_id(psk) == id)
    }

    fn pairing_psk(&self) -> Psk {
        Psk(derive(b"aulos-sendspin-pairing-v1", &self.private))
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").field("id", &self.public).finish_non_exhaustive()
    }
}

impl PlayerHello {
    /// The payload of `client/hello`.
    #[allow(clippy::indexing_slicing, reason = "members of objects that are made here")]
    pub(super) fn to_json(&self, dialect: Dialect, trust: ServerTrust) -> Value {
        let formats: Vec<Value> = self.formats.iter().map(|format| format.to_json()).collect();
        let mut hello = json!({
            "name": self.name,
            "device_info": {
                "product_name": "aulos",
                "manufacturer": "aulos",
                "software_version": self.version,
            },
            "supported_roles": [PLAYER, METADATA, CONTROLLER, ARTWORK],
            "player@v1_support": {
                "supported_formats": formats,
                "buffer_capacity": self.buffer_capacity,
            },
            "unpaired_access": { "enabled": self.unpaired_access },
        });
        match dialect {
            Dialect::Current => {
                let methods = json!({ "pairing_psk": { "locations": ["operator"] } });
                hello["supported_pair_methods"] = methods;
            }
            Dialect::FirstNoise | Dialect::Legacy => {
                hello["player@v1_support"]["supported_commands"] = json!([]);
                hello["artwork@v1_support"] = artwork_support(dialect);
                let is_paired = trust == ServerTrust::Paired;
                hello["trust_level"] = if is_paired { "user" } else { "none" }.into();
                hello["supported_pair_methods"] = json!([{ "method": "pairing_psk" }]);
            }
        }
        hello
    }
}

impl PlayerDelays {
    /// The payload of `client/state`.
    #[allow(clippy::indexing_slicing, reason = "members of objects that are made here")]
    pub(super) fn state(self, dialect: Dialect, available: bool, has_artwork: bool) -> Value {
        let mut player = json!({
            "required_lead_time_ms": self.lead_ms,
            "min_buffer_ms": self.lead_ms,
            "supported_commands": [],
        });
        player[dialect.info().delay_key] = self.output_ms.into();
        let mut state = json!({ "available": available, "player": player });
        if has_artwork && dialect.info().has_artwork_transfers {
            state["artwork"] = artwork_support(dialect);
        }
        state
    }
}

/// The object that says which pictures are wanted: in the state, or in the first dialects in the hello.
fn artwork_support(dialect: Dialect) -> Value {
    let (width, height) = match dialect {
        Dialect::Current => ("width", "height"),
        Dialect::FirstNoise | Dialect::Legacy => ("media_width", "media_height"),
    };
    json!({ "channels": [
        { "source": "album", "format": "jpeg", width: ARTWORK_SIDE, height: ARTWORK_SIDE },
    ] })
}

/// Sides of the picture: what a page shows on a dense screen, in some 100 kB.
const ARTWORK_SIDE: u32 = 640;
