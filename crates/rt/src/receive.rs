//! Reads from stream sockets with the time of arrival.
//!
//! A thread that wakes up late reads late. Protocols that compare clocks want to know when the
//! bytes arrived, and the kernel can tell (`SO_TIMESTAMPING`).

use std::io;
use std::os::fd::AsFd;

use crate::{clock, sys};

/// Makes the kernel stamp what arrives at a socket, where it can.
pub fn stamp_arrivals(socket: impl AsFd) {
    sys::stamp_arrivals(socket.as_fd());
}

/// Reads from a stream socket without waiting. Returns the number of bytes, zero at the end of the
/// stream, and the time of [`clock::now`] at which the last of them arrived: the kernel's if
/// [`stamp_arrivals`] was called and the stamp makes sense, otherwise that directly after the read.
/// It is never before the arrival.
///
/// # Errors
/// The socket's; [`io::ErrorKind::WouldBlock`] if nothing is there.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
    let (length, age) = sys::receive_stamped(socket.as_fd(), buffer)?;
    // The age ends before this time, so that a preemption between both makes the result late.
    let now = clock::now();
    let age = age.filter(|age| *age <= MAX_AGE).unwrap_or(0);
    Ok((length, now.saturating_sub(age)))
}

/// Stamps are of the wall clock, which may have been set since.
const MAX_AGE: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a late read")]

    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_late_read_knows_when_the_bytes_came() {
        let (near, mut far) = pair();
        let mut buffer = [0; 16];
        let waiting = receive(&near, &mut buffer).unwrap_err();
        assert_eq!(waiting.kind(), io::ErrorKind::WouldBlock);
        stamp_arrivals(&near);
        // The kernel begins to stamp a while after the first request for it.
        let is_stamped = (0..50).any(|_| {
            let before = clock::now();
            far.write_all(b"hello").unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let read = clock::now();
            let (length, at) = receive(&near, &mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"hello");
            assert!(at >= before, "{at} is before {before}");
            at < read - 50_000_000
        });
        assert!(is_stamped || cfg!(not(target_os = "linux")));
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn without_stamps_it_is_the_time_of_the_read_and_the_end_has_no_bytes() {
        let (near, mut far) = pair();
        far.write_all(b"x").unwrap();
        drop(far);
        std::thread::sleep(Duration::from_millis(20));
        let read = clock::now();
        let mut buffer = [0; 16];
        let (length, at) = receive(&near, &mut buffer).unwrap();
        assert!(length == 1 && at >= read, "{length} {at} {read}");
        assert_eq!(receive(&near, &mut buffer).unwrap().0, 0);
    }
}
