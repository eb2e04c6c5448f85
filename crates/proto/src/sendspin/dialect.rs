//! The three dialects that are spoken under version 1, and what tells them apart.

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Without encryption; sendspin-js up to 3.2, small devices of 2026. It begins with `client/hello`.
    Legacy,
    /// The first one with Noise; aiosendspin 9 and Music Assistant 2.10. Its hello has `trust_level`,
    /// or the commands of the player.
    FirstNoise,
    /// The specification; aiosendspin 10.
    Current,
}

/// What differs between the dialects. A further one is a further row of [`Dialect::info`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a row of the table")]
pub struct DialectInfo {
    /// Its letter in the documentation, for logs and the status.
    pub name: &'static str,
    /// Whether messages are encrypted.
    pub is_encrypted: bool,
    /// Whether the header of sound tells how far ahead it was sent: 13 bytes in place of 9.
    pub has_send_ahead: bool,
    /// Whether each state of a client is whole; otherwise it has what changed.
    pub has_whole_states: bool,
    /// Whether fragments have flags; otherwise the last one has a type of its own.
    pub has_fragment_flags: bool,
    /// Whether the commands that a player takes are in its state; otherwise in its hello.
    pub has_commands_in_state: bool,
    /// Whether pictures come in parts and their channels are in a client's state; otherwise each is
    /// one message, and the channels are in the hello.
    pub has_artwork_transfers: bool,
    /// The key of a player's output delay.
    pub delay_key: &'static str,
}

impl Dialect {
    /// Its row.
    #[must_use]
    pub const fn info(self) -> DialectInfo {
        match self {
            Self::Legacy => DialectInfo {
                name: "A",
                is_encrypted: false,
                has_send_ahead: false,
                has_whole_states: false,
                has_fragment_flags: false,
                has_commands_in_state: false,
                has_artwork_transfers: false,
                delay_key: "static_delay_ms",
            },
            Self::FirstNoise => DialectInfo {
                name: "B",
                is_encrypted: true,
                has_send_ahead: false,
                has_whole_states: false,
                has_fragment_flags: false,
                has_commands_in_state: false,
                has_artwork_transfers: false,
                delay_key: "static_delay_ms",
            },
            Self::Current => DialectInfo {
                name: "C",
                is_encrypted: true,
                has_send_ahead: true,
                has_whole_states: true,
                has_fragment_flags: true,
                has_commands_in_state: true,
                has_artwork_transfers: true,
                delay_key: "output_delay_ms",
            },
        }
    }
}
