//! A network with a delay that varies and with losses, for real TCP connections.
//!
//! Two tunnel interfaces, one in each of two namespaces, and a thread that takes each packet from
//! one to the other, later. The order within a connection and direction is kept, as in most
//! networks; connections do not wait for each other, so that two players have delays of their own.

#![allow(unsafe_code, reason = "only a system call without a safe form makes an interface")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::thread::{gettid, set_current_timer_slack};

use crate::net::{NetNamespaces, ip};
use crate::signal::NoiseRng;

/// What happens to a packet, in each direction.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct DelayModel {
    /// The least delay.
    pub base: Duration,
    /// A delay between zero and this comes on top.
    pub jitter: Duration,
    /// Probability that the packet is lost.
    pub loss: f64,
}

/// The network. It ends when this value is dropped.
#[derive(Debug)]
pub struct DelayedLink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DelayedLink {
    /// The address of the first namespace; the other one is `10.78.0.2`.
    pub const NEAR: &'static str = "10.78.0.1";

    /// Connects two namespaces.
    ///
    /// # Errors
    /// If the system has no tunnel interfaces, or this process lacks the privilege.
    pub fn start(net: &NetNamespaces, model: DelayModel, seed: u64) -> io::Result<Self> {
        let ends = [net.run_inside(0, || tunnel(1))?, net.run_inside(1, || tunnel(2))?];
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let mut forwarder = Forwarder {
            ends,
            model,
            random: NoiseRng(seed | 1),
            waiting: BinaryHeap::new(),
            last: HashMap::new(),
            taken: 0,
        };
        let thread = std::thread::spawn(move || {
            be_punctual();
            while !asked.load(Ordering::Relaxed) {
                forwarder.step();
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for DelayedLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; the test fails by what did not arrive.
            drop(thread.join());
        }
    }
}

#[derive(Debug)]
struct Forwarder {
    ends: [File; 2],
    model: DelayModel,
    random: NoiseRng,
    /// The soonest first, in the order of their arrival.
    waiting: BinaryHeap<Reverse<WaitingPacket>>,
    /// When the last packet of a connection and direction leaves.
    last: HashMap<(usize, [u8; 4]), Instant>,
    taken: u64,
}

/// When it leaves, how many packets arrived before it, at which end, and its bytes.
type WaitingPacket = (Instant, u64, usize, Vec<u8>);

impl Forwarder {
    /// Waits for packets, or until one is due, and moves them.
    fn step(&mut self) {
        let due = self.waiting.peek().map(|Reverse((at, ..))| *at);
        let wait = due.map_or(MAX_WAIT, |at| at.saturating_duration_since(Instant::now()));
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.min(MAX_WAIT).subsec_nanos().into() };
        let mut fds = self.ends.each_ref().map(|end| PollFd::new(end, PollFlags::IN));
        if poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0) {
            let ready = fds.map(|fd| !fd.revents().is_empty());
            for from in (0..2).filter(|from| ready[*from]) {
                self.take(from);
            }
        }
        while let Some(next) = self.waiting.peek_mut() {
            if next.0.0 > Instant::now() {
                break;
            }
            let Reverse((_, _, from, packet)) = std::collections::binary_heap::PeekMut::pop(next);
            // A full interface loses packets, as everywhere.
            drop(self.ends[1 - from].write_all(&packet));
        }
    }

    /// Takes what has arrived at one end.
    fn take(&mut self, from: usize) {
        let mut buffer = [0; MAX_PACKET];
        while let Ok(length) = self.ends[from].read(&mut buffer) {
            let now = Instant::now();
            if length == 0 || f64::midpoint(self.random.sample(), 1.0) < self.model.loss {
                continue;
            }
            let jitter = self.model.jitter.mul_f64(f64::midpoint(self.random.sample(), 1.0));
            let packet = buffer[..length].to_vec();
            let last = self.last.entry((from, ports(&packet))).or_insert(now);
            *last = (now + self.model.base + jitter).max(*last);
            self.taken += 1;
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(Reverse((*last, self.taken, from, packet)));
            }
        }
    }
}

/// The two ports of a packet of TCP over IPv4, which name its connection.
pub(super) fn ports(packet: &[u8]) -> [u8; 4] {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    packet.get(header..header + 4).and_then(|ports| ports.try_into().ok()).unwrap_or_default()
}

/// Makes a tunnel interface in the namespace of this thread, with the address `10.78.0.NUMBER`.
pub(super) fn tunnel(number: u8) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).write(true).custom_flags(nonblocking).open("/dev/net/tun")?;
    // `struct ifreq`: the name, and flags: packets of IP without a header before them.
    let mut request = [0_u8; 40];
    request[..TUNNEL.len()].copy_from_slice(TUNNEL.as_bytes());
    request[16..18].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
    // SAFETY: TUNSETIFF takes a `struct ifreq`, which has at most 40 bytes.
    let request = unsafe { Updater::<{ TUNSETIFF }, [u8; 40]>::new(&mut request) };
    // SAFETY: the kernel reads and writes nothing but the request.
    unsafe { ioctl(&file, request) }?;
    ip(&format!("address add 10.78.0.{number}/24 dev {TUNNEL}"))?;
    ip(&format!("link set {TUNNEL} up"))?;
    Ok(file)
}

/// Lets this thread wake up in time, as far as the system grants it.
pub(super) fn be_punctual() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let id = gettid().as_raw_nonzero().to_string();
    let mut command = Command::new("chrt");
    drop(command.args(["-f", "-p", "6", &id]).stderr(Stdio::null()).status());
}

const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);
/// Name of the interface in its namespace.
const TUNNEL: &str = "delayed";

const IFF_TUN: u16 = 1;
const IFF_NO_PI: u16 = 0x1000;

/// More than the interface's packets have.
pub(super) const MAX_PACKET: usize = 2_048;

/// Packets on their way; more are lost.
pub(super) const MAX_WAITING: usize = 100_000;

/// Until the thread looks whether it is to stop.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::peer::skip;

    #[test]
    fn a_connection_has_the_delay_of_the_model_and_survives_losses() {
        let Ok(net) = NetNamespaces::new() else { return skip("network namespaces") };
        let millis = Duration::from_millis;
        let model = DelayModel { base: millis(3), jitter: millis(2), loss: 0.02 };
        let link = DelayedLink::start(&net, model, 7).inspect_err(|error| println!("{error}"));
        let Ok(link) = link else { return skip("tunnel interfaces") };
        let server = net.run_inside(0, || TcpListener::bind((DelayedLink::NEAR, 0)).unwrap());
        let address = server.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            let (mut peer, _) = server.accept().unwrap();
            let mut byte = [0];
            while peer.read_exact(&mut byte).is_ok() {
                peer.write_all(&byte).unwrap();
            }
        });
        let mut times: Vec<Duration> = net.run_inside(1, || {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.set_nodelay(true).unwrap();
            let mut exchange = || {
                let begin = Instant::now();
                socket.write_all(&[1]).unwrap();
                socket.read_exact(&mut [0]).unwrap();
                begin.elapsed()
            };
            (0..100).map(|_| exchange()).collect()
        });
        echo.join().unwrap();
        drop(link);
        times.sort();
        println!("round trips: {:?} {:?} {:?}", times[0], times[50], times[99]);
        assert!(times[0] >= millis(6) && times[5] < millis(8), "{times:?}");
        // A lost packet comes again after the least timeout of 200 ms.
        assert!(times[50] >= millis(7) && times[99] > millis(150), "{times:?}");
    }
}
