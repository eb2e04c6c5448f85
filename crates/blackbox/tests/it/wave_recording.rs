//! What a station plays, recorded in WAVE while a test does something else.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// The header of a file of 16 bits.
const WAVE_HEADER: usize = 44;

/// A listener on a thread of its own.
pub(crate) struct WaveRecording {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u8>>,
}

impl WaveRecording {
    /// Records a station from now on.
    pub(crate) fn start(http: SocketAddr, station: &str) -> Self {
        let mut socket = TcpStream::connect(http).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET /listen/{station}.wav HTTP/1.1\r\nHost: {http}\r\n\r\n").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut block) = (Vec::new(), vec![0; 65_536]);
            while !ends.load(Ordering::Relaxed) {
                let count = socket.read(&mut block).unwrap();
                assert!(count > 0, "the server closed");
                bytes.extend_from_slice(&block[..count]);
            }
            let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            assert!(bytes[body..].starts_with(b"RIFF"), "a WAVE file");
            bytes.split_off(body + WAVE_HEADER)
        });
        Self { stop, thread }
    }

    /// Ends it; the bytes of its frames.
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// Ends it; the samples of the first of two channels.
    pub(crate) fn left(self) -> Vec<i16> {
        let bytes = self.bytes();
        let frames = bytes.chunks_exact(4);
        frames.map(|frame| i16::from_le_bytes([frame[0], frame[1]])).collect()
    }
}
