//! A player of an Icecast stream.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::frames::FrameCounter;
use super::listener::Listener;

/// Between two connections: players come back at once, but not in a loop.
const PAUSE: Duration = Duration::from_millis(200);

/// How often a blocked read looks whether it is over.
const LOOK: Duration = Duration::from_millis(500);

pub(super) fn play(listener: &Listener) {
    while !listener.is_over() {
        if connect(listener).is_err() && !listener.is_over() {
            listener.note(|playout, _| playout.error());
            std::thread::sleep(PAUSE);
        }
    }
}

/// One connection, until it ends.
fn connect(listener: &Listener) -> io::Result<()> {
    let mut socket = TcpStream::connect(listener.server)?;
    socket.set_read_timeout(Some(LOOK))?;
    write!(
        socket,
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: listener\r\n\r\n",
        listener.path, listener.server
    )?;
    let (mut head, mut is_body) = (Vec::new(), false);
    let (mut counter, mut block) = (FrameCounter::default(), vec![0; 16_384]);
    while !listener.is_over() {
        let count = match socket.read(&mut block) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        };
        let mut bytes = &block[..count];
        if !is_body {
            head.extend_from_slice(bytes);
            let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            if !head.starts_with(b"HTTP/1.1 200") {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            is_body = true;
            bytes = &head[end + 4..];
        }
        let sound = counter.push(bytes).ok_or(io::ErrorKind::InvalidData)?;
        listener.note(|playout, now| playout.arrived(now, sound));
        listener.keep(bytes);
    }
    Ok(())
}
