//! Why a connection to a server has ended.

use core::fmt;

use super::identity::ServerTrust;

/// Why a connection to a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendspinClientError {
    /// The next step has not come in time.
    TimedOut,
    /// The server does not answer the questions for its time.
    NoAnswer,
    /// A message is none of the protocol, or has no valid fields.
    Malformed,
    /// A message at a time at which it makes no sense.
    OutOfOrder,
    /// The server refuses this client.
    Refused,
    /// The server names a key that this client does not have.
    UnknownKey,
    /// A message does not decrypt: another key, or it was forged or repeated.
    Forged,
    /// The server wants to play and is not paired, and unpaired access is off.
    PairingRequired,
    /// The server wants to do what its key does not let it do.
    Unauthorized(ServerTrust),
    /// The server wants something that this client does not know.
    UnknownActivity,
    /// Another server plays now.
    AnotherServer,
    /// Another server plays, and goes on.
    Occupied,
    /// The station does not need its source now.
    NotNeeded,
}

impl SendspinClientError {
    /// The reason of the goodbye, where one is said.
    pub(super) const fn goodbye(self) -> Option<&'static str> {
        match self {
            Self::PairingRequired => Some("pairing_required"),
            Self::Unauthorized(_) | Self::UnknownActivity => Some("unauthorized"),
            Self::AnotherServer => Some("another_server"),
            Self::Occupied => Some("concurrent_attempt"),
            Self::NotNeeded => Some("restart"),
            _ => None,
        }
    }
}

impl fmt::Display for SendspinClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the server did not go on within 30 s",
            Self::NoAnswer => "the server does not answer questions for its time",
            Self::Malformed => "the server sent a malformed message",
            Self::OutOfOrder => "the server sent a message out of order",
            Self::Refused => "the server refuses this player",
            Self::UnknownKey => {
                "the server uses a key that this player does not have: pair it anew"
            }
            Self::Forged => "a message does not decrypt: another key, or forged",
            Self::PairingRequired => {
                "the server is not paired; enter the token of this source there, or set \
                 `unpaired=true`"
            }
            Self::Unauthorized(_) => "the server wants to do what its key does not let it do",
            Self::UnknownActivity => "the server wants something that is not supported",
            Self::AnotherServer | Self::Occupied => "another server plays",
            Self::NotNeeded => "the station does not need this source now",
        })
    }
}

impl core::error::Error for SendspinClientError {}
