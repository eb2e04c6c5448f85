//! Sendspin: how homes of Music Assistant play in sync.
//!
//! ```text
//!  server: WebSocket -> Admission (which dialect, who, with which key) -> ActivatedClient
//!                    -> ClientSession (clock, state, volume, sound) <-> the driver
//!  client: WebSocket -> SendspinClient (keys, clock, streams, titles) <-> the driver
//! ```
//!
//! A draft whose bytes have changed twice under one version number: [`Dialect`] is the table of what
//! differs. Text and layouts: the specification of Sendspin (`connection.md`, `roles/`), as of
//! September 2026. What is supported is in `docs/standards/sendspin.md`.

#[cfg(feature = "noise")]
mod admission;
mod artwork;
#[cfg(feature = "noise")]
mod client;
mod dialect;
mod format;
mod frame;
mod hello;
mod key;
mod message;
#[cfg(feature = "noise")]
mod noise;
mod pacing;
mod room;
mod session;

#[cfg(feature = "noise")]
pub use admission::{
    ActivatedClient, Admission, AdmissionError, AdmissionInput, AdmissionOutput, ClientQuestion,
    STEP_TIMEOUT, ServerInfo, Trust,
};
pub use artwork::{
    ArtworkFormat, ArtworkRendition, ArtworkRequest, ArtworkUpdate, MAX_ARTWORK_CHANNELS,
    MAX_ARTWORK_SIDE, MAX_WHOLE_ARTWORK,
};
#[cfg(feature = "noise")]
pub use client::{
    ClientIdentity, PlayerDelays, PlayerHello, SendspinClient, SendspinClientError,
    SendspinClientEvent, SendspinClientOutput, SendspinOutgoing, ServerActivity, ServerTrust,
    TransportCommand, TransportCommands,
};
pub use dialect::{Dialect, DialectInfo};
pub use format::{AudioFormat, SupportedFormat};
pub use frame::{AUDIO_HEADER_LEN, FragmentError, MAX_PLAINTEXT};
pub use hello::{ClientDevice, ClientHello, HelloError, PlayerSupport};
pub use key::{KEY_LEN, Key, KeyError, PairingToken};
pub use message::{ControllerCommand, Goodbye};
#[cfg(feature = "noise")]
pub use noise::{Psk, SENTINEL_PSK, next_seed, psk_id, public_key};
pub use pacing::Lead;
pub use room::{ControllerState, PlaybackState, RoomState, TrackInfo};
pub use session::{
    AudioChunk, CIPHER_OVERHEAD, CipherError, ClientSession, ClientSessionEvent,
    ClientSessionOutput, MessageCipher, STATE_TIMEOUT, SessionMessage,
};

/// Path of the WebSocket on either side.
pub const PATH: &str = "/sendspin";

/// Port on which servers listen.
pub const SERVER_PORT: u16 = 8927;

/// Port on which clients listen that are dialled.
pub const CLIENT_PORT: u16 = 8928;

/// Service under which servers are announced, without the domain.
pub const SERVER_SERVICE: &str = "_sendspin-server._tcp";

/// Service under which clients are announced that are dialled, without the domain.
pub const CLIENT_SERVICE: &str = "_sendspin._tcp";
