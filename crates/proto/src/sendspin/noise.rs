//! Noise (`KKpsk2`, revision 34) through the crate `snow`: we write no cryptography.

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver, FallbackResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, TransportState};

use super::key::{KEY_LEN, Key};
use super::session::{CipherError, MessageCipher};

/// A secret key that both sides know.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a key")]
pub struct Psk(pub [u8; KEY_LEN]);

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(..)")
    }
}

/// The key of clients that are not paired; everybody knows it. SHA-256 of
/// `sendspin-sentinel-psk-v1`.
pub const SENTINEL_PSK: Psk = Psk([
    0x1b, 0x5e, 0x24, 0xdb, 0xc1, 0xae, 0xd9, 0x5f, 0xc2, 0xa5, 0xa3, 0x38, 0xa9, 0x0c, 0x05, 0xdf,
    0x44, 0xbd, 0x10, 0xf5, 0xec, 0x1f, 0x4c, 0xd6, 0x6c, 0xbf, 0x86, 0x27, 0x27, 0x67, 0xb9, 0xd3,
]);

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    ChaChaPoly,
    AesGcm,
}

impl Suite {
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "25519_ChaChaPoly_SHA256" => Some(Self::ChaChaPoly),
            "25519_AESGCM_SHA256" => Some(Self::AesGcm),
            _ => None,
        }
    }

    const fn pattern(self) -> &'static str {
        match self {
            Self::ChaChaPoly => "Noise_KKpsk2_25519_ChaChaPoly_SHA256",
            Self::AesGcm => "Noise_KKpsk2_25519_AESGCM_SHA256",
        }
    }
}

/// The name of a key: what the first message of a handshake says, so that the client finds it.
#[must_use]
pub fn psk_id(psk: &Psk) -> String {
    let hash = sha256(&[b"sendspin-psk-id-v1", &psk.0]);
    URL_SAFE_NO_PAD.encode(hash)
}

/// The public key of a private one.
#[must_use]
pub fn public_key(private: &[u8; KEY_LEN]) -> Key {
    let mut key = [0; KEY_LEN];
    if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
        dh.set(private);
        if let Some(public) = dh.pubkey().first_chunk() {
            key = *public;
        }
    }
    Key(key)
}

/// A key for another purpose, which does not tell `key`.
pub(super) fn derive(purpose: &[u8], key: &[u8; KEY_LEN]) -> [u8; KEY_LEN] {
    sha256(&[purpose, key])
}

/// The same, for one peer.
pub(super) fn derive_for(purpose: &[u8], key: &[u8; KEY_LEN], peer: &Key) -> [u8; KEY_LEN] {
    sha256(&[purpose, key, &peer.0])
}

/// Random bytes for the next connection or handshake, which do not tell those of this one.
#[must_use]
pub fn next_seed(seed: &[u8; KEY_LEN]) -> [u8; KEY_LEN] {
    derive(b"aulos-next-handshake", seed)
}

fn sha256(parts: &[&[u8]]) -> [u8; KEY_LEN] {
    let mut sum = [0; KEY_LEN];
    if let Some(mut hash) = DefaultResolver.resolve_hash(&HashChoice::SHA256) {
        parts.iter().for_each(|part| hash.input(part));
        hash.result(&mut sum);
    }
    sum
}

/// The server's side of a handshake, between its two messages.
pub(super) struct Initiator {
    state: HandshakeState,
    /// What to try when the client does not know the key: that of clients that are not paired.
    fallback: Option<Psk>,
}

/// Who takes part in a handshake.
pub(super) struct Parties<'a> {
    pub(super) suite: Suite,
    pub(super) private: &'a [u8; KEY_LEN],
    /// The other side.
    pub(super) peer: &'a Key,
    pub(super) psk: &'a Psk,
    /// Key of this handshake alone, never used before.
    pub(super) ephemeral: [u8; KEY_LEN],
}

impl<'a> Parties<'a> {
    fn builder(&self, prologue: &'a [u8]) -> Option<Builder<'a>> {
        let params: NoiseParams = self.suite.pattern().parse().ok()?;
        let random = Box::new(GivenRandom(self.ephemeral));
        let default: BoxedCryptoResolver = Box::new(DefaultResolver);
        let resolver = Box::new(FallbackResolver::new(random, default));
        Builder::with_resolver(params, resolver)
            .local_private_key(self.private)
            .and_then(|builder| builder.remote_public_key(&self.peer.0))
            .and_then(|builder| builder.prologue(prologue))
            .and_then(|builder| builder.psk(2, &self.psk.0))
            .ok()
    }
}

impl Initiator {
    /// Begins; returns the first message.
    pub(super) fn begin<'a>(
        parties: &Parties<'a>,
        prologue: &'a [u8],
        payload: &[u8],
    ) -> Option<(Self, Vec<u8>)> {
        let mut state = parties.builder(prologue)?.build_initiator().ok()?;
        let mut message = vec![0; MAX_HANDSHAKE];
        let length = state.write_message(payload, &mut message).ok()?;
        message.truncate(length);
        let fallback = (*parties.psk != SENTINEL_PSK).then_some(SENTINEL_PSK);
        Some((Self { state, fallback }, message))
    }

    /// Reads the client's answer. Besides the cipher and the hash of the handshake: whether the client
    /// did not know the key and is to be taken as not paired.
    pub(super) fn finish(mut self, message: &[u8]) -> Option<(NoiseCipher, Vec<u8>, bool)> {
        let mut payload = vec![0; MAX_HANDSHAKE];
        let mut is_forgotten = false;
        if self.state.read_message(message, &mut payload).is_err() {
            self.state.set_psk(2, &self.fallback?.0).ok()?;
            self.state.read_message(message, &mut payload).ok()?;
            is_forgotten = true;
        }
        let hash = self.state.get_handshake_hash().to_vec();
        let transport = self.state.into_transport_mode().ok()?;
        Some((NoiseCipher(transport), hash, is_forgotten))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator").finish_non_exhaustive()
    }
}

/// The client's side of a handshake, between its two messages.
pub(super) struct Responder(HandshakeState);

impl Responder {
    /// Reads the first message; returns its payload, which names the key of the handshake. Any key
    /// does in `parties`.
    pub(super) fn begin<'a>(
        parties: &Parties<'a>,
        prologue: &'a [u8],
        message: &[u8],
    ) -> Option<(Self, Vec<u8>)> {
        let mut state = parties.builder(prologue)?.build_responder().ok()?;
        let mut payload = vec![0; MAX_HANDSHAKE];
        let length = state.read_message(message, &mut payload).ok()?;
        payload.truncate(length);
        Some((Self(state), payload))
    }

    /// Answers with this key: the second message, the cipher, and the hash of the handshake.
    pub(super) fn finish(mut self, psk: &Psk) -> Option<(Vec<u8>, NoiseCipher, Vec<u8>)> {
        self.0.set_psk(2, &psk.0).ok()?;
        let mut message = vec![0; MAX_HANDSHAKE];
        let length = self.0.write_message(b"{}", &mut message).ok()?;
        message.truncate(length);
        let hash = self.0.get_handshake_hash().to_vec();
        let transport = self.0.into_transport_mode().ok()?;
        Some((message, NoiseCipher(transport), hash))
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}

/// The cipher of a connection.
pub(super) struct NoiseCipher(TransportState);

impl MessageCipher for NoiseCipher {
    fn encrypt(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        let start = out.len();
        out.resize(start + plaintext.len() + TAG_LEN, 0);
        let room = out.get_mut(start..).unwrap_or_default();
        self.0.write_message(plaintext, room).map(drop).map_err(|_| CipherError)
    }

    fn decrypt(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        out.clear();
        out.resize(message.len(), 0);
        let length = self.0.read_message(message, out).map_err(|_| CipherError)?;
        out.truncate(length);
        Ok(())
    }
}

impl fmt::Debug for NoiseCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseCipher").finish_non_exhaustive()
    }
}

/// Gives the ephemeral key, which comes from outside: nothing here asks the system.
struct GivenRandom([u8; KEY_LEN]);

impl Random for GivenRandom {
    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), snow::Error> {
        let own = self.0.get(..into.len()).ok_or(snow::Error::Rng)?;
        into.copy_from_slice(own);
        // Never twice.
        self.0 = derive(b"again", &self.0);
        Ok(())
    }
}

impl CryptoResolver for GivenRandom {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Self(self.0)))
    }

    fn resolve_dh(&self, _: &DHChoice) -> Option<Box<dyn Dh>> {
        None
    }

    fn resolve_hash(&self, _: &HashChoice) -> Option<Box<dyn Hash>> {
        None
    }

    fn resolve_cipher(&self, _: &CipherChoice) -> Option<Box<dyn Cipher>> {
        None
    }
}

/// Bytes that the cipher adds.
const TAG_LEN: usize = 16;

/// Longest message of a handshake; the first has 124 bytes.
pub(super) const MAX_HANDSHAKE: usize = 1_024;

/// A client's side of a handshake, which answers with another key for each message.
#[cfg(test)]
pub(super) fn test_responder(
    server: &[u8; KEY_LEN],
    client: &[u8; KEY_LEN],
    prologue: &[u8],
) -> HandshakeState {
    let params: NoiseParams = Suite::ChaChaPoly.pattern().parse().unwrap();
    let random = Box::new(GivenRandom(derive(prologue, client)));
    let resolver = Box::new(FallbackResolver::new(random, Box::new(DefaultResolver)));
    let own = public_key(server);
    Builder::with_resolver(params, resolver)
        .local_private_key(client)
        .and_then(|builder| builder.remote_public_key(&own.0))
        .and_then(|builder| builder.prologue(prologue))
        .and_then(|builder| builder.psk(2, &SENTINEL_PSK.0))
        .and_then(Builder::build_responder)
        .unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(first: u8) -> [u8; KEY_LEN] {
        core::array::from_fn(|at| first + u8::try_from(at).unwrap())
    }

    /// The vectors of `facts/home.md` 1.11, which were decrypted by another implementation.
    #[test]
    fn handshakes_have_the_bytes_of_the_vectors() {
        let (server, client) = (counted(0), counted(0x20));
        assert_eq!(public_key(&server).to_string(), "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8");
        let client_key = public_key(&client);
        assert_eq!(client_key.to_string(), "NYBy1jZYgNGu6jKa35EhODhR7SGijjt16WXQ0s0WYlQ");
        assert_eq!(psk_id(&SENTINEL_PSK), "GFsV9tLaSQm9HcFWpKsgYQOr7wFTvNUtkmFwuVz3zoo");
        for (suite, name, first, second, hash, sealed) in [
            (
                Suite::ChaChaPoly,
                "25519_ChaChaPoly_SHA256",
                "eaYx7t4b-cmPEgMs3q3Q56B5OY_HhriMyEbsia-FpRopdF3sAPyS1hD3Tt47MDzq2cP-0ScSFMP5fJ9jLvL_bbbGfocxSZGK2sYnsQgqDZ12-xpVTwDjr7ejz-2olRYqjlfLsxTa5leAyamU6QDZ7ZL_sgZ7rJFOWS43Ew",
                "Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS9WuYzzGq7Q-dExLJjHyYJTHkw",
                "85943c1b4985c58915702d3176bcc7f72e144032e1da27a50e0c272970bf24db",
                "9a6e88d778e190f516c6b82d596651e8488d89481520d23fba62ddf96df123aae96220b0fe4ef2f1bf9ed6b8f0c8d3b2410ea78bfdaac095ba7db62cb84703e5927aee",
            ),
            (
                Suite::AesGcm,
                "25519_AESGCM_SHA256",
                "eaYx7t4b-cmPEgMs3q3Q56B5OY_HhriMyEbsia-FpRoD2FCyDdmUfaxv-a3iJQxxgQmqNGij2AijHsRIvkGk37xD9Ylx9pp_dU11tGsx9-s0S1es7nzferq2UHfKEb-LddHx1U6GOD1I8JNl6zDhi8Z-Zi3ofhbRDgPdjg",
                "Z13VdO13iTELPS52gfN5C0ZsdzsVIf7PNld5WDcepS94r9MxS_7YLdTK_pCYHrZxN0Q",
                "c5aac34673b83d946484d6942114be86500f73323d04837ce7b2ec8cd7c6d104",
                "8f92dcb2e5ee8949c484faab64059e16e5e738d3e15f9e631f2b2fff61e7c0b9bcc1432c796ddd99022a4f879530cc75ded230b7420901bbe948444f7f1974f11fbf66",
            ),
        ] {
            let init = format!(
                r#"{{"type":"client/init","payload":{{"client_id":"{client_key}","version":1,"suite":"{name}"}}}}"#
            );
            let answer = format!(
                r#"{{"type":"server/init","payload":{{"server_id":"{}","version":1}}}}"#,
                public_key(&server)
            );
            let prologue = [init.as_bytes(), answer.as_bytes()].concat();
            let payload =
                format!(r#"{{"psk_id":"{}","psk_category":"sn"}}"#, psk_id(&SENTINEL_PSK));
            let parties = Parties {
                suite,
                private: &server,
                peer: &client_key,
                psk: &SENTINEL_PSK,
                ephemeral: counted(0x40),
            };
            let (initiator, message) =
                Initiator::begin(&parties, &prologue, payload.as_bytes()).unwrap();
            assert_eq!(URL_SAFE_NO_PAD.encode(&message), first);
            let answer = URL_SAFE_NO_PAD.decode(second).unwrap();
            let (mut cipher, own_hash, is_forgotten) = initiator.finish(&answer).unwrap();
            assert!(!is_forgotten);
            let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
            assert_eq!(hex(&own_hash), hash);
            let mut out = Vec::new();
            let text = br#"{"type":"server/hello","payload":{"name":"aulos"}}"#;
            cipher.encrypt(&[&[0], text.as_slice()].concat(), &mut out).unwrap();
            assert_eq!(hex(&out), sealed);
            // One bit flipped.
            out[3] ^= 1;
            assert_eq!(cipher.decrypt(&out, &mut Vec::new()), Err(CipherError));
        }
    }

    #[test]
    fn an_answer_with_another_key_or_a_flipped_bit_is_refused() {
        let (server, client) = (counted(0), counted(0x20));
        let psk = Psk(counted(7));
        for (known, forgotten) in
            [(psk, Some(false)), (SENTINEL_PSK, Some(true)), (Psk([9; 32]), None)]
        {
            let parties = Parties {
                suite: Suite::ChaChaPoly,
                private: &server,
                peer: &public_key(&client),
                psk: &psk,
                ephemeral: counted(0x40),
            };
            let (initiator, message) = Initiator::begin(&parties, b"prologue", b"{}").unwrap();
            let mut responder = test_responder(&server, &client, b"prologue");
            responder.set_psk(2, &known.0).unwrap();
            let mut room = vec![0; MAX_HANDSHAKE];
            responder.read_message(&message, &mut room).unwrap();
            let length = responder.write_message(b"{}", &mut room).unwrap();
            let found = initiator.finish(&room[..length]).map(|(_, _, forgotten)| forgotten);
            assert_eq!(found, forgotten);
        }
    }
}
