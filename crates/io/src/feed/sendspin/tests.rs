#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "peers on loopback")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant as StdInstant};

use aulos_core::Codec;
use aulos_proto::sendspin::{ClientIdentity, PlayerHello, SupportedFormat};
use aulos_proto::ws::{WsClient, WsClientEvent, WsMessage};
use aulos_rt::LatestReader;
use aulos_session::sendspin::{SendspinInputConfig, SendspinInputSink, SendspinInputStatus};

use super::*;

/// A feeder, as a reactor would call it.
struct Driven {
    feeder: SendspinFeeder,
    status: LatestReader<SendspinInputStatus>,
    counters: Arc<SendspinCounters>,
    _items: Box<dyn core::any::Any>,
}

impl Driven {
    fn new(address: &str, listens: bool) -> Self {
        let (sink, handles) = SendspinInputSink::new();
        let pcm = SupportedFormat { codec: Codec::Pcm, channels: 2, hz: 48_000, bits: 16 };
        let config = SendspinInputConfig {
            identity: Arc::new(ClientIdentity::new([6; 32])),
            hello: PlayerHello {
                name: "house".to_owned(),
                version: "1".to_owned(),
                formats: vec![pcm],
                buffer_capacity: 1_000_000,
                unpaired_access: false,
            },
            delay: Span::from_secs(1),
            connects: !listens,
            seed: [1; 32],
        };
        let input = SendspinInput::new(config, sink, SystemClock::now());
        let endpoint =
            SendspinEndpoint { address: address.to_owned(), path: "/sendspin".to_owned(), listens };
        let counters = Arc::<SendspinCounters>::default();
        let feeder = SendspinFeeder::new(endpoint, input, Rng::new(1), Arc::clone(&counters));
        let (status, items) = (handles.status, Box::new((handles.items, handles.commands)));
        Self { feeder, status, counters, _items: items }
    }

    /// Calls it every 5 ms until `is_done`, at most ten seconds.
    fn run_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        let begin = StdInstant::now();
        while !is_done(self) {
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", self.status.read());
            assert_ne!(self.feeder.tick(SystemClock::now()), NextPoll::Never);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn error(&mut self) -> Option<String> {
        self.status.read().error.as_ref().map(ToString::to_string)
    }
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[test]
fn a_server_that_connects_gets_the_first_message() {
    let address = listen().1;
    let mut driven = Driven::new(&address, true);
    driven.run_until(|driven| driven.feeder.listener.is_some());
    let mut socket = TcpStream::connect(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut client = WsClient::new(3);
    socket.write_all(client.request(&address, "/sendspin", None).as_bytes()).unwrap();
    let (mut read, mut first) = ([0; 4_096], None);
    driven.run_until(|_| {
        let Ok(length @ 1..) = socket.read(&mut read) else { return false };
        let mut bytes = &read[..length];
        while let Some(event) = client.next(&mut bytes).unwrap() {
            if let WsClientEvent::Message(WsMessage::Text(text)) = event {
                first = Some(String::from_utf8(text.to_vec()).unwrap());
            }
        }
        first.is_some()
    });
    let id = ClientIdentity::new([6; 32]).id().to_string();
    let first = first.unwrap();
    assert!(first.contains("client/init") && first.contains(&id), "{first}");
    // A forged answer ends the connection, and the source waits for the next one.
    let mut forged = Vec::new();
    client.write(aulos_proto::ws::FrameKind::Text, b"{}", &mut forged);
    socket.write_all(&forged).unwrap();
    driven.run_until(|driven| driven.error().is_some());
    assert_eq!(driven.error().unwrap(), "the server sent a malformed message");
    assert!(driven.feeder.links.is_empty());
}

#[test]
fn strangers_and_a_flood_of_connections_are_refused() {
    let address = listen().1;
    let mut driven = Driven::new(&address, true);
    driven.run_until(|driven| driven.feeder.listener.is_some());
    let mut page = TcpStream::connect(&address).unwrap();
    page.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    driven.run_until(|driven| driven.counters.refused.load(Ordering::Relaxed) == 1);
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("404 Not Found"), "{answer}");
    let sockets: Vec<_> = (0..30).map(|_| TcpStream::connect(&address).unwrap()).collect();
    driven.run_until(|driven| driven.counters.refused.load(Ordering::Relaxed) >= 20);
    assert!(driven.feeder.links.len() <= MAX_LINKS);
    assert_eq!(driven.error(), None);
    drop(sockets);
    driven.run_until(|driven| driven.feeder.links.is_empty());
}

#[test]
fn a_server_that_is_away_is_said_and_one_that_is_something_else() {
    let (listener, address) = listen();
    let mut driven = Driven::new(&address, false);
    let mut accepted = None;
    listener.set_nonblocking(true).unwrap();
    driven.run_until(|_| {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let mut socket = accepted.unwrap().0;
    socket.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap();
    driven.run_until(|driven| driven.error().is_some());
    let why = driven.error().unwrap();
    assert!(why.contains("404"), "{why}");
    drop(listener);
    let mut driven = Driven::new(&address, false);
    driven.run_until(|driven| driven.error().is_some());
    assert_eq!(driven.error().unwrap(), "connection refused");
    assert!(driven.status.read().retry_at.is_some());
}
