//! Keys as text, and the tokens by which operators hand them over.

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Length of every key.
pub const KEY_LEN: usize = 32;

/// A public key, by which a server or client is known; as text, base64url without padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; KEY_LEN]);

impl Key {
    /// Its id of 43 characters; `None` if `text` is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What a client's operator copies to the server: who the client is, and the key of the pairing.
#[derive(Clone, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the content of a token")]
pub struct PairingToken {
    /// The client.
    pub client: Key,
    /// The key with which it lets itself be paired.
    pub psk: [u8; KEY_LEN],
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a pairing token: it begins with SP:0 and has 107 characters")
    }
}

impl core::error::Error for KeyError {}

impl PairingToken {
    /// Parses `SP:0` and 103 characters of base32 (RFC 4648), in which 9 stands for 2.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let digits = text.trim().strip_prefix("SP:0").ok_or(KeyError)?;
        let mut bytes = Vec::with_capacity(2 * KEY_LEN);
        let (mut value, mut bits) = (0_u32, 0);
        for digit in digits.bytes() {
            let five = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'9' => 26,
                b'3'..=b'7' => digit - b'2' + 26,
                _ => return Err(KeyError),
            };
            (value, bits) = (value << 5 | u32::from(five), bits + 5);
            if bits >= 8 {
                bits -= 8;
                bytes.push(u8::try_from(value >> bits).map_err(|_| KeyError)?);
                value &= (1 << bits) - 1;
            }
            if bytes.len() > 2 * KEY_LEN {
                return Err(KeyError);
            }
        }
        let (client, psk) = bytes.split_at_checked(KEY_LEN).ok_or(KeyError)?;
        let client = Key(client.try_into().map_err(|_| KeyError)?);
        let psk = psk.try_into().map_err(|_| KeyError)?;
        if value == 0 { Ok(Self { client, psk }) } else { Err(KeyError) }
    }

    /// The text for the operator of a server. It has the secret.
    #[must_use]
    pub fn to_text(&self) -> String {
        let bytes = [self.client.0, self.psk].concat();
        let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
        let five =
            |digit| (5 * digit..5 * digit + 5).fold(0, |five, at| five << 1 | u8::from(bit(at)));
        let digits = (0..(16 * KEY_LEN).div_ceil(5)).map(|digit| match five(digit) {
            letter @ 0..26 => char::from(b'A' + letter),
            26 => '9',
            digit => char::from(b'2' + digit - 26),
        });
        "SP:0".chars().chain(digits).collect()
    }
}

impl fmt::Debug for PairingToken {
    /// Without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairingToken").field("client", &self.client).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_and_written() {
        let text = "SP:0AAAQEAYEAUDAOCAJBIFQYDIOB4IBCEQTCQKRMFYYDENBWHA5DYP6BYPC4PSOLZXH5DU6V97M5XXO74HR6LZ7J5PW674PT6X37T6757Y";
        let token = PairingToken::parse(text).unwrap();
        assert!(token.client.0.iter().copied().eq(0..32));
        assert!(token.psk.iter().copied().eq(0xe0..=0xff));
        assert_eq!(token.to_text(), text);
        for end in 0..text.len() {
            assert_eq!(PairingToken::parse(&text[..end]), Err(KeyError));
        }
        assert_eq!(PairingToken::parse(&format!("{text}A")), Err(KeyError));
        assert_eq!(PairingToken::parse(&text.replace('Q', "2")), Err(KeyError));
    }

    #[test]
    fn keys_are_ids() {
        let text = "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8";
        assert_eq!(Key::parse(text).unwrap().to_string(), text);
        assert_eq!(Key::parse(&text[1..]), None);
        assert_eq!(Key::parse("kitchen"), None);
    }
}
