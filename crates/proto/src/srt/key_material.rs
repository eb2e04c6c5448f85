//! Key messages: the wrapped keys of a stream.

/// A key message. The keys are wrapped (RFC 3394), and opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct KeyMaterial {
    /// Which keys it has.
    pub slots: KeySlots,
    /// The salt, part of every counter block.
    pub salt: [u8; SALT_BYTES],
    /// Bytes of one key: 16, 24 or 32.
    pub key_bytes: usize,
    /// Eight bytes and the keys, the even one first.
    pub wrapped: Vec<u8>,
}

/// Which keys a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "two bits, of which one is set")]
pub enum KeySlots {
    /// One of them.
    One(KeyParity),
    /// Both.
    Both,
}

/// The name of one of the two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there are two")]
pub enum KeyParity {
    /// 1 on the wire.
    Even,
    /// 2 on the wire.
    Odd,
}

impl KeyParity {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }

    /// The key of a data packet; `None` for one that is not encrypted.
    #[must_use]
    pub const fn from_field(key: u8) -> Option<Self> {
        match key {
            1 => Some(Self::Even),
            2 => Some(Self::Odd),
            _ => None,
        }
    }

    /// The field of a data packet.
    #[must_use]
    pub const fn field(self) -> u8 {
        match self {
            Self::Even => 1,
            Self::Odd => 2,
        }
    }
}

impl KeyMaterial {
    /// Reads a message; `None` if it is malformed, or has another cipher than AES-CTR.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let (head, rest) = message.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, sign_high, sign_low, slots, _, _, _, _, cipher, .., salt_words, key_words] =
            *head;
        if (kind, sign_high, sign_low, cipher) != (KIND, SIGN[0], SIGN[1], AES_CTR) {
            return None;
        }
        let slots = match slots & 3 {
            1 => KeySlots::One(KeyParity::Even),
            2 => KeySlots::One(KeyParity::Odd),
            3 => KeySlots::Both,
            _ => return None,
        };
        let keys = if slots == KeySlots::Both { 2 } else { 1 };
        let key_bytes = 4 * usize::from(key_words);
        let (salt, wrapped) = rest.split_first_chunk::<SALT_BYTES>()?;
        let is_valid = 4 * usize::from(salt_words) == SALT_BYTES
            && matches!(key_bytes, 16 | 24 | 32)
            && wrapped.len() == WRAP_BYTES + keys * key_bytes;
        is_valid.then(|| Self { slots, salt: *salt, key_bytes, wrapped: wrapped.to_vec() })
    }

    /// The message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let slots = match self.slots {
            KeySlots::One(parity) => parity.field(),
            KeySlots::Both => 3,
        };
        let key_words = u8::try_from(self.key_bytes / 4).unwrap_or(0);
        let salt_words = u8::try_from(SALT_BYTES / 4).unwrap_or(0);
        let mut out = vec![KIND, SIGN[0], SIGN[1], slots, 0, 0, 0, 0, AES_CTR, 0, STREAM, 0, 0, 0];
        out.extend_from_slice(&[salt_words, key_words]);
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.wrapped);
        out
    }
}

/// Bytes of the salt.
pub const SALT_BYTES: usize = 16;

/// The most bytes that are wrapped: two keys of 32, and what wrapping adds.
pub const MAX_WRAPPED: usize = WRAP_BYTES + 64;

/// What wrapping adds.
const WRAP_BYTES: usize = 8;

const HEAD_BYTES: usize = 16;

/// Version 1 of a key message.
const KIND: u8 = 0x12;
const SIGN: [u8; 2] = [0x20, 0x29];
const AES_CTR: u8 = 2;
/// The stream is SRT's.
const STREAM: u8 = 2;
