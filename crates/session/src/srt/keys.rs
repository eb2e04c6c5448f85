//! Encryption: AES in counter mode, under keys that are wrapped with the passphrase.

use core::fmt;
use core::num::NonZeroU32;

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use aulos_proto::srt::{KeyMaterial, KeyParity, KeySlots, SALT_BYTES, Sequence};
use ring::pbkdf2;

use super::secret::{SecretNumbers, SrtPassphrase};

/// The keys of one direction.
pub(super) struct Keys {
    salt: [u8; SALT_BYTES],
    /// Wraps the keys; derived from the passphrase and the salt.
    wrapping: Block,
    even: Option<Key>,
    odd: Option<Key>,
}

/// The keys of what this side sends, with the one in use.
pub(super) struct SendKeys {
    keys: Keys,
    current: KeyParity,
    /// Packets under the current key.
    used: u32,
    /// The message for the next key, until the receiver has confirmed it.
    announced: Option<Vec<u8>>,
}

#[derive(Clone)]
struct Key {
    bytes: Vec<u8>,
    block: Block,
}

/// One of the lengths of a key.
#[derive(Clone)]
enum Block {
    Short(Aes128),
    Middle(Aes192),
    Long(Box<Aes256>),
}

impl Keys {
    /// New keys of this length, with the even one in use.
    pub(super) fn generate(
        passphrase: &SrtPassphrase,
        key_bytes: usize,
        secrets: &mut SecretNumbers,
    ) -> Option<Self> {
        let salt = *secrets.bytes().first_chunk()?;
        let even = Key::new(secrets.bytes().get(..key_bytes)?);
        let wrapping = wrapping_key(passphrase, &salt, key_bytes)?;
        Some(Self { salt, wrapping, even, odd: None })
    }

    /// The keys of a peer's message; `None` if the passphrase is another one.
    pub(super) fn open(message: &KeyMaterial, passphrase: &SrtPassphrase) -> Option<Self> {
        let wrapping = wrapping_key(passphrase, &message.salt, message.key_bytes)?;
        let mut keys = Self { salt: message.salt, wrapping, even: None, odd: None };
        keys.take(message).then_some(keys)
    }

    /// Takes another key of the same passphrase and salt; false if it is none.
    pub(super) fn take(&mut self, message: &KeyMaterial) -> bool {
        let plain = match message.salt == self.salt {
            true => unwrap(&self.wrapping, &message.wrapped),
            false => None,
        };
        let Some(plain) = plain else { return false };
        let mut keys = plain.chunks_exact(message.key_bytes).map(Key::new);
        let mut next = || keys.next().flatten();
        match message.slots {
            KeySlots::One(KeyParity::Even) => self.even = next(),
            KeySlots::One(KeyParity::Odd) => self.odd = next(),
            KeySlots::Both => (self.even, self.odd) = (next(), next()),
        }
        true
    }

    /// The keys for the other direction, which begins with the same ones.
    pub(super) fn to_send(&self) -> SendKeys {
        let Self { salt, wrapping, even, odd } = self;
        let current = if even.is_some() { KeyParity::Even } else { KeyParity::Odd };
        let (salt, wrapping) = (*salt, wrapping.clone());
        let keys = Self { salt, wrapping, even: even.clone(), odd: odd.clone() };
        SendKeys { keys, current, used: 0, announced: None }
    }

    /// Encrypts or decrypts the payload of a packet in place; false without the key.
    pub(super) fn apply(&self, parity: KeyParity, sequence: Sequence, payload: &mut [u8]) -> bool {
        let Some(key) = self.key(parity) else { return false };
        let mut counter = self.salt;
        let (number, blocks) = counter.split_at_mut(14);
        blocks.fill(0);
        for (byte, bits) in number.iter_mut().skip(10).zip(sequence.number().to_be_bytes()) {
            *byte ^= bits;
        }
        for (count, piece) in (0u16..).zip(payload.chunks_mut(16)) {
            let mut block = counter;
            let [.., high, low] = &mut block;
            [*high, *low] = count.to_be_bytes();
            key.block.encrypt(&mut block);
            piece.iter_mut().zip(block).for_each(|(byte, bits)| *byte ^= bits);
        }
        true
    }

    /// The message with one key.
    pub(super) fn message(&self, parity: KeyParity) -> Option<Vec<u8>> {
        let key = self.key(parity)?;
        let wrapped = wrap(&self.wrapping, &key.bytes);
        let (slots, key_bytes) = (KeySlots::One(parity), key.bytes.len());
        Some(KeyMaterial { slots, salt: self.salt, key_bytes, wrapped }.emit())
    }

    const fn key(&self, parity: KeyParity) -> Option<&Key> {
        match parity {
            KeyParity::Even => self.even.as_ref(),
            KeyParity::Odd => self.odd.as_ref(),
        }
    }
}

impl SendKeys {
    /// Encrypts the payload of a new packet, and returns the field that names the key. A key serves
    /// for [`PACKETS_PER_KEY`] packets, and the next one is announced before.
    pub(super) fn encrypt(
        &mut self,
        sequence: Sequence,
        payload: &mut [u8],
        secrets: &mut SecretNumbers,
    ) -> u8 {
        self.used += 1;
        if self.used == PACKETS_PER_KEY - ANNOUNCED_BEFORE {
            self.announce(secrets);
        }
        // A receiver that has not confirmed the next key could not read what it encrypts.
        if self.used >= PACKETS_PER_KEY && self.announced.is_none() {
            (self.current, self.used) = (self.current.other(), 0);
        }
        self.keys.apply(self.current, sequence, payload);
        self.current.field()
    }

    /// The message that is to be sent again until it is confirmed.
    pub(super) fn announced(&self) -> Option<&[u8]> {
        self.announced.as_deref()
    }

    /// The receiver's answer; false if it has refused the key.
    pub(super) fn confirm(&mut self, answer: &[u8]) -> bool {
        if self.announced.as_deref() == Some(answer) {
            self.announced = None;
        }
        answer.len() > REFUSAL_BYTES
    }

    fn announce(&mut self, secrets: &mut SecretNumbers) {
        let next = self.current.other();
        let length = self.keys.key(self.current).map_or(16, |key| key.bytes.len());
        let key = secrets.bytes().get(..length).and_then(Key::new);
        match next {
            KeyParity::Even => self.keys.even = key,
            KeyParity::Odd => self.keys.odd = key,
        }
        self.announced = self.keys.message(next);
    }

    #[cfg(test)]
    pub(super) const fn age(&mut self, packets: u32) {
        self.used = packets;
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Option<Self> {
        Some(Self { bytes: bytes.to_vec(), block: Block::new(bytes)? })
    }
}

impl Block {
    fn new(key: &[u8]) -> Option<Self> {
        Some(match key.len() {
            16 => Self::Short(Aes128::new_from_slice(key).ok()?),
            24 => Self::Middle(Aes192::new_from_slice(key).ok()?),
            32 => Self::Long(Box::new(Aes256::new_from_slice(key).ok()?)),
            _ => return None,
        })
    }

    fn encrypt(&self, block: &mut [u8; 16]) {
        let mut array = Array::from(*block);
        match self {
            Self::Short(cipher) => cipher.encrypt_block(&mut array),
            Self::Middle(cipher) => cipher.encrypt_block(&mut array),
            Self::Long(cipher) => cipher.encrypt_block(&mut array),
        }
        *block = array.into();
    }

    fn decrypt(&self, block: &mut [u8; 16]) {
        let mut array = Array::from(*block);
        match self {
            Self::Short(cipher) => cipher.decrypt_block(&mut array),
            Self::Middle(cipher) => cipher.decrypt_block(&mut array),
            Self::Long(cipher) => cipher.decrypt_block(&mut array),
        }
        *block = array.into();
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl fmt::Debug for SendKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendKeys(..)")
    }
}

fn wrapping_key(
    passphrase: &SrtPassphrase,
    salt: &[u8; SALT_BYTES],
    key_bytes: usize,
) -> Option<Block> {
    let mut key = [0; 32];
    let key = key.get_mut(..key_bytes)?;
    let salt = salt.last_chunk::<8>()?;
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, ITERATIONS, salt, passphrase.bytes(), key);
    Block::new(key)
}

/// RFC 3394, 2.2.1. `keys` has whole pieces of 8 bytes.
fn wrap(with: &Block, keys: &[u8]) -> Vec<u8> {
    let mut check = WRAP_CHECK;
    let mut pieces: Vec<[u8; 8]> = keys.as_chunks().0.to_vec();
    let mut step = 0u64;
    for _ in 0..6 {
        for piece in &mut pieces {
            step += 1;
            let mut block = joined(check, *piece);
            with.encrypt(&mut block);
            (check, *piece) = split(block);
            check ^= step;
        }
    }
    let mut wrapped = check.to_be_bytes().to_vec();
    pieces.iter().for_each(|piece| wrapped.extend_from_slice(piece));
    wrapped
}

/// RFC 3394, 2.2.2; `None` if the check is wrong.
fn unwrap(with: &Block, wrapped: &[u8]) -> Option<Vec<u8>> {
    let (check, keys) = wrapped.split_first_chunk()?;
    let mut check = u64::from_be_bytes(*check);
    let mut pieces: Vec<[u8; 8]> = keys.as_chunks().0.to_vec();
    let mut step = 6 * pieces.len() as u64;
    for _ in 0..6 {
        for piece in pieces.iter_mut().rev() {
            let mut block = joined(check ^ step, *piece);
            with.decrypt(&mut block);
            (check, *piece) = split(block);
            step -= 1;
        }
    }
    (check == WRAP_CHECK).then(|| pieces.concat())
}

fn joined(check: u64, piece: [u8; 8]) -> [u8; 16] {
    (u128::from(check) << 64 | u128::from(u64::from_be_bytes(piece))).to_be_bytes()
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves")]
fn split(block: [u8; 16]) -> (u64, [u8; 8]) {
    let bits = u128::from_be_bytes(block);
    ((bits >> 64) as u64, (bits as u64).to_be_bytes())
}

/// A counter block must never occur twice under a key: its number has 31 bits, so a key could
/// serve longer, but the peers change it after so many.
const PACKETS_PER_KEY: u32 = 1 << 24;

/// Packets between the announcement of a key and its use.
const ANNOUNCED_BEFORE: u32 = 1 << 12;

/// A refused key is answered with a status of so many bytes.
const REFUSAL_BYTES: usize = 4;

const ITERATIONS: NonZeroU32 = NonZeroU32::new(2_048).unwrap();
const WRAP_CHECK: u64 = 0xA6A6_A6A6_A6A6_A6A6;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    /// RFC 3394, 4.1, 4.3 and 4.6.
    #[test]
    fn keys_are_wrapped_as_the_standards_examples() {
        let kek = "000102030405060708090A0B0C0D0E0F 101112131415161718191A1B1C1D1E1F";
        let key = "00112233445566778899AABBCCDDEEFF 000102030405060708090A0B0C0D0E0F";
        for (kek_bytes, key_bytes, expected) in [
            (16, 16, "1FA68B0A8112B447 AEF34BD8FB5A7B82 9D3E862371D2CFE5"),
            (32, 16, "64E8C3F9CE0F5BA2 63E9777905818A2A 93C8191E7D6E8AE7"),
            (
                32,
                32,
                "28C9F404C4B810F4 CBCCB35CFB87F826 3F5786E2D80ED326 CBC7F0E71A99F43B \
                 FB988B9B7A02DD21",
            ),
        ] {
            let with = Block::new(&bytes(kek)[..kek_bytes]).unwrap();
            let wrapped = wrap(&with, &bytes(key)[..key_bytes]);
            assert_eq!(wrapped, bytes(expected), "{kek_bytes} {key_bytes}");
            assert_eq!(unwrap(&with, &wrapped).unwrap(), bytes(key)[..key_bytes]);
            let mut damaged = wrapped;
            damaged[3] ^= 1;
            assert_eq!(unwrap(&with, &damaged), None);
        }
    }

    /// NIST SP 800-38A, F.5.1: the counter block is built here from the salt and a number.
    #[test]
    fn a_payload_is_encrypted_as_the_standards_example() {
        let key = Key::new(&bytes("2b7e151628aed2a6abf7158809cf4f3c"));
        let salt = *bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfd0000").first_chunk().unwrap();
        let wrapping = Block::new(&[0; 16]).unwrap();
        let keys = Keys { salt, wrapping, even: key, odd: None };
        let mut block = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfd0000");
        block[10..14].iter_mut().zip([0, 0, 1, 2]).for_each(|(byte, bits)| *byte ^= bits);
        let mut expected: [u8; 16] = *block.first_chunk().unwrap();
        keys.even.as_ref().unwrap().block.encrypt(&mut expected);
        let mut payload = [0; 16];
        assert!(keys.apply(KeyParity::Even, Sequence::new(0x102), &mut payload));
        assert_eq!(payload, expected);
        assert!(!keys.apply(KeyParity::Odd, Sequence::new(0x102), &mut payload), "no such key");
    }
}
