//! Many listeners of one HTTP stream on one thread, at low cost, because they share the machine
//! with the server.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::load::{LoadPhase, raise_file_limit};

/// Listeners of a stream of constant bit rate.
#[derive(Clone, Copy, Debug)]
pub struct StreamLoad<'a> {
    /// The HTTP port.
    pub server: SocketAddr,
    /// The path of the stream.
    pub path: &'a str,
    /// Number of listeners.
    pub listeners: usize,
    /// Bytes that a player plays in a second.
    pub bytes_per_second: u32,
    /// Time after the last connect in which bursts arrive.
    pub settle: Duration,
    /// Duration of the measurement after that.
    pub listen: Duration,
}

/// What the listeners have received.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamReport {
    /// Bytes of all listeners during the measurement.
    pub bytes: u64,
    /// The fewest bytes of one listener during the measurement.
    pub least: u64,
    /// Listeners that were refused or disconnected.
    pub cut: usize,
    /// The smallest reserve of a player that has started at its first byte, in seconds; negative
    /// if one had nothing to play.
    pub reserve_s: f64,
    /// Duration of the measurement.
    pub elapsed: Duration,
}

#[derive(Debug)]
struct StreamListener {
    socket: TcpStream,
    /// The beginning of the response, until its status is known.
    head: Vec<u8>,
    started: Option<Instant>,
    bytes: u64,
    is_cut: bool,
}

impl StreamLoad<'_> {
    /// Connects all listeners, receives, and reports; `mark` is called at both boundaries.
    ///
    /// # Errors
    /// If the server cannot be reached or a system call fails.
    pub fn run(self, mut mark: impl FnMut(LoadPhase)) -> io::Result<StreamReport> {
        raise_file_limit()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut pool = Pool { listeners: Vec::new(), buffer: vec![0; 256 * 1_024], reserve: None };
        for number in 0..self.listeners {
            let mut socket = TcpStream::connect(self.server)?;
            write!(socket, "GET {} HTTP/1.0\r\nHost: localhost\r\n\r\n", self.path)?;
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(number as u64), EventFlags::IN)?;
            let (head, started) = (Vec::new(), None);
            pool.listeners.push(StreamListener { socket, head, started, bytes: 0, is_cut: false });
            if number % CONNECTED_AT_ONCE == 0 {
                self.receive(&epoll, &mut pool, CONNECT_PAUSE)?;
            }
        }
        self.receive(&epoll, &mut pool, self.settle)?;
        let before: Vec<u64> = pool.listeners.iter().map(|one| one.bytes).collect();
        pool.reserve = Some(f64::MAX);
        mark(LoadPhase::Begin);
        let begun = Instant::now();
        self.receive(&epoll, &mut pool, self.listen)?;
        let elapsed = begun.elapsed();
        mark(LoadPhase::End);
        let received =
            || pool.listeners.iter().zip(&before).map(|(now, before)| now.bytes - before);
        Ok(StreamReport {
            bytes: received().sum(),
            least: received().min().unwrap_or(0),
            cut: pool.listeners.iter().filter(|one| one.is_cut).count(),
            reserve_s: pool.reserve.unwrap_or(f64::NAN),
            elapsed,
        })
    }

    fn receive(
        &self,
        epoll: &impl std::os::fd::AsFd,
        pool: &mut Pool,
        time: Duration,
    ) -> io::Result<()> {
        let end = Instant::now() + time;
        let mut events = Vec::with_capacity(1_024);
        while Instant::now() < end {
            events.clear();
            let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let number = usize::try_from({ event.data }.u64()).unwrap_or(usize::MAX);
                if let Some(socket) = pool.read(number, self.bytes_per_second) {
                    epoll::delete(epoll, socket)?;
                }
            }
        }
        Ok(())
    }
}

struct Pool {
    listeners: Vec<StreamListener>,
    buffer: Vec<u8>,
    /// Set while it is measured.
    reserve: Option<f64>,
}

impl Pool {
    /// Reads one listener; gives its socket if it has been disconnected.
    fn read(&mut self, number: usize, bytes_per_second: u32) -> Option<&TcpStream> {
        let Self { listeners, buffer, reserve } = self;
        let listener = listeners.get_mut(number)?;
        let count = match listener.socket.read(buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(_) => 0,
        };
        let start = *listener.started.get_or_insert_with(Instant::now);
        if let Some(least) = reserve {
            // Before these bytes arrived it was smallest.
            #[expect(clippy::cast_precision_loss, reason = "less than 2^53 bytes")]
            let received = listener.bytes as f64 / f64::from(bytes_per_second);
            *least = least.min(received - start.elapsed().as_secs_f64());
        }
        listener.bytes += count as u64;
        if listener.head.len() < STATUS_BYTES {
            listener.head.extend(buffer.iter().take(count.min(STATUS_BYTES)));
        }
        let is_refused = listener.head.get(STATUS).is_some_and(|status| status != b"200");
        listener.is_cut |= count == 0 || is_refused;
        listener.is_cut.then_some(&listener.socket)
    }
}

/// Listeners that connect before the others are read: icecast2's queue of new connections holds
/// five, and one that is full costs a second each.
const CONNECTED_AT_ONCE: usize = 4;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// The status code of a response, and the bytes up to its end.
const STATUS: core::ops::Range<usize> = 9..12;
const STATUS_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn bytes_are_counted_and_disconnected_and_refused_listeners_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let served = std::thread::spawn(move || {
            let answers: [&[u8]; 3] = [
                b"HTTP/1.0 200 OK\r\n\r\n",
                b"HTTP/1.0 200 OK\r\n\r\n",
                b"HTTP/1.0 503 Full\r\n\r\n",
            ];
            let mut sockets: Vec<TcpStream> = Vec::new();
            for answer in answers {
                let mut socket = listener.accept().unwrap().0;
                socket.write_all(answer).unwrap();
                sockets.push(socket);
            }
            drop(sockets.remove(1));
            std::thread::sleep(Duration::from_millis(600));
            sockets[0].write_all(&[0; 1_000]).unwrap();
            std::thread::sleep(Duration::from_millis(600));
        });
        let (mut marks, short) = (Vec::new(), Duration::from_millis(300));
        let load = StreamLoad {
            server,
            path: "/",
            listeners: 3,
            bytes_per_second: 1_000,
            settle: short,
            listen: short * 2,
        };
        let report = load.run(|mark| marks.push(mark)).unwrap();
        assert_eq!(marks, [LoadPhase::Begin, LoadPhase::End]);
        assert_eq!((report.bytes, report.least, report.cut), (1_000, 0, 2), "{report:?}");
        assert!((-1.0..-0.4).contains(&report.reserve_s), "{report:?}");
        served.join().unwrap();
    }
}
