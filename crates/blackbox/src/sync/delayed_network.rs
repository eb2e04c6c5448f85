//! A network of several namespaces, each behind a line with a delay of its own in each direction,
//! that can be cut: places that are connected through NATS.
//!
//! As in [`delayed_link`](super::delayed_link), a thread takes each packet from one tunnel
//! interface to another one, later. Kernels without `netem` can do that too.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::delayed_link::{MAX_PACKET, MAX_WAIT, MAX_WAITING, be_punctual, ports, tunnel};
use crate::net::NetNamespaces;
use crate::signal::NoiseRng;

/// The delay of a place's line in each direction.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct LineDelay {
    /// From the place to the others.
    pub up: Duration,
    /// From the others to the place.
    pub down: Duration,
    /// A delay between zero and this comes on top, in each direction.
    pub jitter: Duration,
}

/// The network. It ends when this value is dropped.
#[derive(Debug)]
pub struct DelayedNetwork {
    state: Arc<NetworkState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct NetworkState {
    stop: AtomicBool,
    /// By place: whether its line is cut.
    cut: Vec<AtomicBool>,
}

impl DelayedNetwork {
    /// Connects all namespaces with each other.
    ///
    /// # Errors
    /// If the system has no tunnel interfaces, or this process lacks the privilege.
    pub fn start(net: &NetNamespaces, lines: &[LineDelay], seed: u64) -> io::Result<Self> {
        let number = |place: usize| u8::try_from(place + 1).unwrap_or(u8::MAX);
        let ends = (0..lines.len()).map(|place| net.run_inside(place, || tunnel(number(place))));
        let ends = ends.collect::<io::Result<Vec<_>>>()?;
        let cut = lines.iter().map(|_| AtomicBool::new(false)).collect();
        let state = Arc::new(NetworkState { stop: AtomicBool::new(false), cut });
        let mut router = Router {
            ends,
            lines: lines.to_vec(),
            state: Arc::clone(&state),
            random: NoiseRng(seed | 1),
            waiting: BinaryHeap::new(),
            last: HashMap::new(),
            taken: 0,
        };
        let thread = std::thread::spawn(move || {
            be_punctual();
            while !router.state.stop.load(Ordering::Relaxed) {
                router.step();
            }
        });
        Ok(Self { state, thread: Some(thread) })
    }

    /// The address of a place.
    #[must_use]
    pub fn address(place: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, 0, u8::try_from(place + 1).unwrap_or(u8::MAX))
    }

    /// Cuts the line of a place: all packets are lost, and nothing is refused.
    pub fn cut(&self, place: usize, is_cut: bool) {
        self.state.cut[place].store(is_cut, Ordering::Relaxed);
    }
}

impl Drop for DelayedNetwork {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; the test fails by what did not arrive.
            drop(thread.join());
        }
    }
}

#[derive(Debug)]
struct Router {
    ends: Vec<File>,
    lines: Vec<LineDelay>,
    state: Arc<NetworkState>,
    random: NoiseRng,
    /// The soonest first, in the order of their arrival.
    waiting: BinaryHeap<Reverse<WaitingPacket>>,
    /// When the last packet of a connection and direction leaves.
    last: HashMap<(usize, usize, [u8; 4]), Instant>,
    taken: u64,
}

/// When it leaves, how many packets arrived before it, where it goes, and its bytes.
type WaitingPacket = (Instant, u64, usize, Vec<u8>);

impl Router {
    /// Waits for packets, or until one is due, and moves them.
    fn step(&mut self) {
        let due = self.waiting.peek().map(|Reverse((at, ..))| *at);
        let wait = due.map_or(MAX_WAIT, |at| at.saturating_duration_since(Instant::now()));
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.min(MAX_WAIT).subsec_nanos().into() };
        let mut fds: Vec<_> = self.ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        if poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0) {
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for from in (0..ready.len()).filter(|from| ready[*from]) {
                self.take(from);
            }
        }
        while let Some(next) = self.waiting.peek_mut() {
            if next.0.0 > Instant::now() {
                break;
            }
            let Reverse((_, _, to, packet)) = std::collections::binary_heap::PeekMut::pop(next);
            // A full interface loses packets, as everywhere.
            drop(self.ends[to].write_all(&packet));
        }
    }

    /// Takes what has arrived from one place.
    fn take(&mut self, from: usize) {
        let mut buffer = [0; MAX_PACKET];
        let is_cut = |place: usize| self.state.cut[place].load(Ordering::Relaxed);
        while let Ok(length @ 1..) = self.ends[from].read(&mut buffer) {
            let now = Instant::now();
            let packet = buffer[..length].to_vec();
            let Some(to) = destination(&packet).filter(|to| *to < self.lines.len()) else {
                continue;
            };
            if is_cut(from) || is_cut(to) || self.waiting.len() >= MAX_WAITING {
                continue;
            }
            let (up, down) = (self.lines[from], self.lines[to]);
            let mut jitter = up.jitter.mul_f64(f64::midpoint(self.random.sample(), 1.0));
            jitter += down.jitter.mul_f64(f64::midpoint(self.random.sample(), 1.0));
            let last = self.last.entry((from, to, ports(&packet))).or_insert(now);
            *last = (now + up.up + down.down + jitter).max(*last);
            self.taken += 1;
            self.waiting.push(Reverse((*last, self.taken, to, packet)));
        }
    }
}

/// The place to which a packet of IPv4 goes.
fn destination(packet: &[u8]) -> Option<usize> {
    let [10, 78, 0, number] = *packet.get(16..20)? else { return None };
    usize::from(number).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::peer::skip;

    #[test]
    fn each_direction_has_its_delay_and_a_cut_line_carries_nothing() {
        let Ok(net) = NetNamespaces::isolated(3) else { return skip("network namespaces") };
        let millis = Duration::from_millis;
        let line = |up, down| LineDelay { up: millis(up), down: millis(down), jitter: millis(0) };
        let lines = [line(0, 0), line(2, 5), line(0, 0)];
        let network = DelayedNetwork::start(&net, &lines, 7).inspect_err(|e| println!("{e}"));
        let Ok(network) = network else { return skip("tunnel interfaces") };
        let server =
            net.run_inside(0, || TcpListener::bind((DelayedNetwork::address(0), 0)).unwrap());
        let address = server.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            for mut peer in server.incoming().take(2).map(Result::unwrap) {
                let mut byte = [0];
                while peer.read_exact(&mut byte).is_ok() && byte[0] > 0 {
                    peer.write_all(&byte).unwrap();
                }
            }
        });
        let exchange = |socket: &mut TcpStream| {
            let begin = Instant::now();
            socket.write_all(&[1]).unwrap();
            socket.read_exact(&mut [0]).map(|()| begin.elapsed())
        };
        let mut shortest = [1, 2].map(|place| {
            net.run_inside(place, || {
                let mut socket = TcpStream::connect(address).unwrap();
                socket.set_nodelay(true).unwrap();
                let times = (0..50).map(|_| exchange(&mut socket).unwrap()).min().unwrap();
                if place == 1 {
                    socket.set_read_timeout(Some(millis(300))).unwrap();
                    network.cut(1, true);
                    assert!(exchange(&mut socket).is_err());
                    network.cut(1, false);
                    // TCP repeats what was lost.
                    socket.set_read_timeout(None).unwrap();
                    socket.read_exact(&mut [0]).unwrap();
                }
                socket.write_all(&[0]).unwrap();
                times
            })
        });
        echo.join().unwrap();
        println!("shortest round trips: {shortest:?}");
        assert!(shortest[0] >= millis(7), "{shortest:?}");
        shortest.sort();
        assert!(shortest[0] < millis(7), "{shortest:?}");
    }
}
