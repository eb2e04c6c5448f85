//! A client of each dialect against the admission.

use snow::{HandshakeState, TransportState};

use super::super::noise::test_responder;
use super::*;

const SERVER: [u8; KEY_LEN] = [5; KEY_LEN];
const CLIENT: [u8; KEY_LEN] = [6; KEY_LEN];

/// A client: the keys that it knows, and its end of the connection.
struct Client {
    known: Vec<Psk>,
    dialect: Dialect,
    unpaired_access: bool,
    handshake_prologue: Vec<u8>,
    transport: Option<TransportState>,
    pairs_with: Option<Psk>,
    activities: Vec<Value>,
}

struct World {
    admission: Admission,
    client: Client,
    trust: Trust,
    asked: Vec<ClientQuestion>,
    paired: Option<Psk>,
    waits: bool,
    done: Option<ActivatedClient>,
    failed: Option<AdmissionError>,
}

fn now() -> Instant {
    Instant::from_nanos(1_000_000)
}

impl World {
    fn new(dialect: Dialect, known: &[Psk], trust: Trust) -> Self {
        let server = Arc::new(ServerInfo::new("aulos".to_owned(), SERVER));
        let client = Client {
            known: known.to_vec(),
            dialect,
            unpaired_access: true,
            handshake_prologue: Vec::new(),
            transport: None,
            pairs_with: None,
            activities: Vec::new(),
        };
        Self {
            admission: Admission::new(server, [7; KEY_LEN], now()),
            client,
            trust,
            asked: Vec::new(),
            paired: None,
            waits: false,
            done: None,
            failed: None,
        }
    }

    fn run(mut self) -> Self {
        let first = match self.client.dialect {
            Dialect::Legacy => message("client/hello", &self.client.hello()),
            _ => message(
                "client/init",
                &json!({
                    "client_id": public_key(&CLIENT).to_string(),
                    "version": 1,
                    "suite": "25519_ChaChaPoly_SHA256",
                }),
            ),
        };
        self.client.handshake_prologue = first.clone().into_bytes();
        self.admission.handle_input(now(), AdmissionInput::Text(first.as_bytes()));
        self.drain();
        self
    }

    fn drain(&mut self) {
        while let Some(output) = self.admission.poll_output() {
            let answers = match output {
                AdmissionOutput::SendText(text) => self.client.text(&text),
                AdmissionOutput::SendBinary(message) => self.client.binary(&message),
                AdmissionOutput::Ask(question) => {
                    self.asked.push(question);
                    self.admission.handle_input(now(), AdmissionInput::Trust(self.trust));
                    continue;
                }
                AdmissionOutput::Waits(_) => {
                    self.waits = true;
                    continue;
                }
                AdmissionOutput::Paired { client, psk } => {
                    assert_eq!(client, public_key(&CLIENT));
                    self.paired = Some(psk);
                    continue;
                }
                AdmissionOutput::Done(client) => {
                    self.done = Some(client);
                    continue;
                }
                AdmissionOutput::Fail(error) => {
                    self.failed = Some(error);
                    continue;
                }
            };
            for (is_text, answer) in answers {
                let input = match is_text {
                    true => AdmissionInput::Text(&answer),
                    false => AdmissionInput::Binary(&answer),
                };
                self.admission.handle_input(now(), input);
            }
        }
    }
}

impl Client {
    fn hello(&self) -> Value {
        let mut hello = json!({
            "name": "Kitchen",
            "supported_roles": ["player@v1", "controller@v1"],
            "player@v1_support": { "supported_formats": [], "buffer_capacity": 100_000 },
            "unpaired_access": { "enabled": self.unpaired_access },
        });
        match self.dialect {
            Dialect::Legacy => hello["client_id"] = "browser".into(),
            Dialect::FirstNoise => hello["trust_level"] = "none".into(),
            Dialect::Current => {}
        }
        hello
    }

    /// Answers the server's first message of a handshake.
    fn handshake(&mut self, text: &Value) -> Option<(HandshakeState, String)> {
        let data = URL_SAFE_NO_PAD.decode(text["payload"]["data"].as_str().unwrap()).unwrap();
        let mut room = vec![0; MAX_HANDSHAKE];
        let mut state = test_responder(&SERVER, &CLIENT, &self.handshake_prologue);
        let length = state.read_message(&data, &mut room).unwrap();
        let payload: Value = serde_json::from_slice(&room[..length]).unwrap();
        let wanted = payload["psk_id"].as_str().unwrap();
        let known = self.known.iter().find(|psk| psk_id(psk) == wanted);
        state.set_psk(2, &known.unwrap_or(&SENTINEL_PSK).0).unwrap();
        let length = state.write_message(b"{}", &mut room).unwrap();
        let data = URL_SAFE_NO_PAD.encode(&room[..length]);
        self.handshake_prologue = state.get_handshake_hash().to_vec();
        Some((state, message("noise/handshake", &json!({ "data": data }))))
    }

    fn text(&mut self, text: &str) -> Vec<(bool, Vec<u8>)> {
        let value: Value = serde_json::from_str(text).unwrap();
        match value["type"].as_str().unwrap() {
            "server/init" => {
                self.handshake_prologue.extend_from_slice(text.as_bytes());
                Vec::new()
            }
            "noise/handshake" => {
                let (state, answer) = self.handshake(&value).unwrap();
                self.transport = Some(state.into_transport_mode().unwrap());
                vec![(true, answer.into_bytes())]
            }
            _ => Vec::new(),
        }
    }

    fn binary(&mut self, sealed: &[u8]) -> Vec<(bool, Vec<u8>)> {
        let mut room = vec![0; 65_536];
        let transport = self.transport.as_mut().unwrap();
        let length = transport.read_message(sealed, &mut room).unwrap();
        assert_eq!(room[0], frame::JSON);
        let value: Value = serde_json::from_slice(&room[1..length]).unwrap();
        match value["type"].as_str().unwrap() {
            "server/hello" => {
                let hello = self.hello();
                vec![self.seal(&message("client/hello", &hello))]
            }
            "server/activate" => {
                let activities = value["payload"]["activities"].clone();
                self.activities.push(activities.clone());
                let psk = Key(self.pairs_with.unwrap_or(SENTINEL_PSK).0).to_string();
                let finalize = json!({ "long_term_psk": psk });
                match activities == json!(["pairing"]) {
                    true => {
                        self.known.extend(self.pairs_with);
                        vec![
                            self.seal(&message("client/pair-init", &json!({"pairing_index": 1}))),
                            self.seal(&message("client/pair-finalize", &finalize)),
                        ]
                    }
                    false => vec![self.seal(&message("client/time", &json!({})))],
                }
            }
            "noise/handshake" => {
                let (state, answer) = self.handshake(&value).unwrap();
                let sealed = self.seal(&answer);
                self.transport = Some(state.into_transport_mode().unwrap());
                vec![sealed]
            }
            _ => Vec::new(),
        }
    }

    fn seal(&mut self, text: &str) -> (bool, Vec<u8>) {
        let plaintext = [&[frame::JSON], text.as_bytes()].concat();
        let mut room = vec![0; plaintext.len() + 16];
        self.transport.as_mut().unwrap().write_message(&plaintext, &mut room).unwrap();
        (false, room)
    }
}

fn trust() -> Trust {
    Trust::default()
}

const PAIRED: Psk = Psk([9; KEY_LEN]);
const TOKEN: Psk = Psk([10; KEY_LEN]);

#[test]
fn a_paired_client_and_an_approved_one_are_let_in() {
    for dialect in [Dialect::Current, Dialect::FirstNoise] {
        let paired = Trust { paired: Some(PAIRED), ..trust() };
        let world = World::new(dialect, &[PAIRED], paired).run();
        let client = world.done.unwrap();
        assert!(client.is_paired && client.cipher.is_some());
        assert_eq!(client.hello.dialect, dialect);
        assert_eq!(client.hello.client_id, public_key(&CLIENT).to_string());
        assert_eq!(world.client.activities, [json!(["playback"])]);
        let approved = Trust { is_approved: true, ..trust() };
        let client = World::new(dialect, &[], approved).run().done.unwrap();
        assert!(!client.is_paired);
    }
}

#[test]
fn a_client_that_nobody_has_approved_waits_until_somebody_does() {
    let mut world = World::new(Dialect::Current, &[], trust()).run();
    assert!(world.waits && world.done.is_none());
    assert_eq!(world.client.activities, [json!([])]);
    assert_eq!(world.admission.poll_timeout(), None);
    let approved = Trust { is_approved: true, ..trust() };
    world.admission.handle_input(now(), AdmissionInput::Trust(approved));
    world.drain();
    assert!(world.done.is_some());
}

#[test]
fn approval_counts_only_where_the_client_admits_it() {
    let approved = Trust { is_approved: true, ..trust() };
    let mut world = World::new(Dialect::Current, &[], approved);
    world.client.unpaired_access = false;
    let world = world.run();
    assert!(world.waits && world.done.is_none());
}

#[test]
fn a_client_that_has_forgotten_its_key_is_none_that_is_paired() {
    let paired = Trust { paired: Some(PAIRED), ..trust() };
    let world = World::new(Dialect::Current, &[], paired).run();
    assert!(world.waits && world.done.is_none());
}

#[test]
fn a_token_pairs_at_once_or_while_the_client_waits() {
    for dialect in [Dialect::Current, Dialect::FirstNoise] {
        for later in [false, true] {
            let with_token = Trust { pairing: Some(TOKEN), ..trust() };
            let first = if later { trust() } else { with_token };
            let mut world = World::new(dialect, &[TOKEN], first);
            world.client.pairs_with = Some(PAIRED);
            let mut world = world.run();
            if later {
                assert!(world.waits);
                world.admission.handle_input(now(), AdmissionInput::Trust(with_token));
                world.drain();
            }
            assert_eq!(world.paired, Some(PAIRED), "{dialect:?} {later} {:?}", world.failed);
            assert!(world.done.unwrap().is_paired);
            assert_eq!(world.client.activities.last(), Some(&json!(["playback"])));
        }
    }
}

#[test]
fn a_wrong_token_pairs_nobody() {
    let with_token = Trust { pairing: Some(TOKEN), ..trust() };
    let world = World::new(Dialect::Current, &[], with_token).run();
    assert!(world.waits && world.paired.is_none() && world.done.is_none());
}

#[test]
fn without_encryption_only_by_permission_and_never_under_the_id_of_another() {
    let world = World::new(Dialect::Legacy, &[], trust()).run();
    assert_eq!(world.failed, Some(AdmissionError::LegacyOff("browser".to_owned())));
    let allowed = Trust { allows_legacy: true, ..trust() };
    let world = World::new(Dialect::Legacy, &[], allowed).run();
    assert!(world.done.is_some_and(|client| client.cipher.is_none()));
    for known in [Trust { paired: Some(PAIRED), ..allowed }, Trust { is_approved: true, ..allowed }]
    {
        let world = World::new(Dialect::Legacy, &[], known).run();
        assert_eq!(world.failed, Some(AdmissionError::Downgrade));
    }
}

#[test]
fn forged_and_repeated_messages_end_the_connection() {
    let mut world = World::new(Dialect::Current, &[], trust()).run();
    let (_, sealed) = world.client.seal(&message("client/time", &json!({})));
    world.admission.handle_input(now(), AdmissionInput::Binary(&sealed));
    world.drain();
    assert_eq!(world.failed, None);
    world.admission.handle_input(now(), AdmissionInput::Binary(&sealed));
    world.drain();
    assert_eq!(world.failed, Some(AdmissionError::Forged));
}

#[test]
fn a_client_that_does_not_go_on_is_not_waited_for() {
    let server = Arc::new(ServerInfo::new("aulos".to_owned(), SERVER));
    let mut admission = Admission::new(server, [0; KEY_LEN], now());
    admission.handle_timeout(admission.poll_timeout().unwrap());
    let output = admission.poll_output();
    assert!(matches!(output, Some(AdmissionOutput::Fail(AdmissionError::TimedOut))));
    assert_eq!(admission.poll_timeout(), None);
}

proptest::proptest! {
    #[test]
    fn no_first_message_panics(text in ".{0,300}", binary: bool, kind in "client/(init|hello)") {
        let server = Arc::new(ServerInfo::new("aulos".to_owned(), SERVER));
        let mut admission = Admission::new(server, [0; KEY_LEN], now());
        let text = format!(r#"{{"type": "{kind}", "payload": {text}}}"#);
        let input = match binary {
            true => AdmissionInput::Binary(text.as_bytes()),
            false => AdmissionInput::Text(text.as_bytes()),
        };
        admission.handle_input(now(), input);
        while admission.poll_output().is_some() {}
    }
}
