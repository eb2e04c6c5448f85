//! A server of a few messages, written from the protocol's description and not with the parser that
//! is tested.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Types of messages.
const CODEC: u16 = 1;
const CHUNK: u16 = 2;
const SETTINGS: u16 = 3;
const TIME: u16 = 4;
const HELLO: u16 = 5;

/// A server that serves one connection after the other.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `connections` of them, each by a call of `serve`.
    pub(crate) fn start(
        connections: usize,
        mut serve: impl FnMut(&mut Connection) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            for _ in 0..connections {
                let (socket, _) = listener.accept().unwrap();
                socket.set_nodelay(true).unwrap();
                serve(&mut Connection { socket, input: Vec::new(), begin: Instant::now() });
            }
        });
        Self { address, thread: Some(thread) }
    }

    /// Waits until it has served all. The player must have ended.
    pub(crate) fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    input: Vec<u8>,
    begin: Instant,
}

impl Connection {
    /// Reads the Hello and answers with the settings and a codec.
    pub(crate) fn greet(&mut self, codec: &str, header: &[u8]) {
        self.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let id = loop {
            if let Some((HELLO, id, _)) = self.next() {
                break id;
            }
        };
        let settings = r#"{"bufferMs":1000,"latency":0,"muted":false,"volume":100}"#;
        self.send(SETTINGS, id, &blob(settings.as_bytes()));
        self.send(CODEC, 0, &[blob(codec.as_bytes()), blob(header)].concat());
    }

    /// Answers Time requests that have arrived.
    pub(crate) fn answer(&mut self) {
        while let Some((kind, id, sent)) = self.next() {
            if kind == TIME {
                // Both sides read the same clock, up to a constant.
                let received = self.now();
                let latency = received.wrapping_sub(sent);
                self.send(TIME, id, &time(latency));
            }
        }
    }

    /// Microseconds since the connection.
    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.begin.elapsed().as_micros()).unwrap()
    }

    /// Sends a chunk; false if the player is gone.
    pub(crate) fn chunk(&mut self, at: i64, payload: &[u8]) -> bool {
        self.send(CHUNK, 0, &[time(at), blob(payload)].concat())
    }

    /// Writes everything; false if the player is gone.
    fn send(&mut self, kind: u16, refers_to: u16, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap();
        let mut bytes = [kind, 0, refers_to].map(u16::to_le_bytes).concat();
        bytes.extend(time(self.now()));
        bytes.extend(time(0));
        bytes.extend(length.to_le_bytes());
        bytes.extend(payload);
        self.socket.write_all(&bytes).is_ok()
    }

    /// Type, id and sending time of the next message.
    fn next(&mut self) -> Option<(u16, u16, i64)> {
        let mut bytes = [0; 4_096];
        if let Ok(length) = self.socket.read(&mut bytes) {
            self.input.extend(&bytes[..length]);
        }
        let header = self.input.first_chunk::<26>()?;
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let long = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let found = (word(0), word(2), i64::from(long(6)) * 1_000_000 + i64::from(long(10)));
        let whole = 26 + usize::try_from(long(22)).unwrap();
        (self.input.len() >= whole).then(|| {
            self.input.drain(..whole);
            found
        })
    }
}

/// Seconds and microseconds.
fn time(micros: i64) -> Vec<u8> {
    let parts = [micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000)];
    parts.map(|part| i32::try_from(part).unwrap().to_le_bytes()).concat()
}

fn blob(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat()
}

/// The codec header of PCM, 48000:16:2.
pub(crate) fn pcm_header() -> Vec<u8> {
    let mut header = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0".to_vec();
    header.extend(48_000_u32.to_le_bytes());
    header.extend(192_000_u32.to_le_bytes());
    header.extend(b"\x04\0\x10\0data\0\0\0\0");
    header
}
