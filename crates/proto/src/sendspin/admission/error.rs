//! Why a client is not let in.

use core::fmt;

use crate::sendspin::hello::HelloError;
use crate::sendspin::message::Goodbye;

/// Why a admission has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionError {
    /// The next step has not come in time.
    TimedOut,
    /// A message is none of the protocol, or has no valid fields.
    Malformed,
    /// A message at a time at which it makes no sense.
    OutOfOrder,
    /// Another version than 1.
    Version,
    /// A cipher suite that we do not have.
    Suite,
    /// The handshake cannot be made with this key.
    Handshake,
    /// A message does not decrypt: a wrong key, or it was forged or repeated.
    Forged,
    /// The hello is not valid.
    Hello(HelloError),
    /// A client with this id speaks without encryption, which is not allowed.
    LegacyOff(String),
    /// A client that is paired or approved seems to speak without encryption.
    Downgrade,
    /// The client has ended the pairing.
    PairingAborted,
    /// The client has ended the connection.
    Goodbye(Goodbye),
}

impl AdmissionError {
    /// Name for logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Malformed => "malformed",
            Self::OutOfOrder => "out_of_order",
            Self::Version => "version",
            Self::Suite => "suite",
            Self::Handshake => "handshake",
            Self::Forged => "forged",
            Self::Hello(_) => "hello",
            Self::LegacyOff(_) => "legacy_off",
            Self::Downgrade => "downgrade",
            Self::PairingAborted => "pairing_aborted",
            Self::Goodbye(_) => "goodbye",
        }
    }
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("it did not go on within 30 s"),
            Self::Malformed => f.write_str("it sent a malformed message"),
            Self::OutOfOrder => f.write_str("it sent a message out of order"),
            Self::Version => f.write_str("it speaks another version than 1"),
            Self::Suite => f.write_str("it wants another cipher than ChaChaPoly or AESGCM"),
            Self::Handshake => f.write_str("its key cannot be used"),
            Self::Forged => f.write_str("a message does not decrypt: another key, or forged"),
            Self::Hello(error) => write!(f, "{error}"),
            Self::LegacyOff(id) => write!(
                f,
                "it speaks without encryption; to let it in, set `legacy = [\"{id}\"]` in \
                 [sendspin]"
            ),
            Self::Downgrade => f.write_str(
                "a client without encryption has the id of one that is paired or approved",
            ),
            Self::PairingAborted => f.write_str("it has ended the pairing"),
            Self::Goodbye(reason) => f.write_str(reason.text()),
        }
    }
}

impl core::error::Error for AdmissionError {}
