//! A network between two UDP sockets that delays and loses datagrams.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Passes datagrams between one caller and a server until it is dropped.
#[derive(Debug)]
pub struct LossyProxy {
    /// Where the caller sends to, on loopback.
    pub port: u16,
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

/// What the network does.
#[derive(Clone, Copy, Debug)]
pub struct Impairment {
    /// The share of datagrams that are lost, in each direction.
    pub loss: f64,
    /// The delay in one direction.
    pub delay: Duration,
    /// Decides which datagrams are lost.
    pub seed: u64,
}

impl LossyProxy {
    /// A network to a server on this port of loopback.
    ///
    /// # Errors
    /// If there are no sockets or threads left.
    pub fn start(to: u16, network: Impairment) -> io::Result<Self> {
        let outer = UdpSocket::bind("127.0.0.1:0")?;
        let inner = UdpSocket::bind("127.0.0.1:0")?;
        inner.connect(("127.0.0.1", to))?;
        outer.set_nonblocking(true)?;
        inner.set_nonblocking(true)?;
        let port = outer.local_addr()?.port();
        let is_done = Arc::<AtomicBool>::default();
        let done = Arc::clone(&is_done);
        let thread = std::thread::Builder::new()
            .name("lossy-proxy".to_owned())
            .spawn(move || run(&outer, &inner, network, &done))?;
        Ok(Self { port, is_done, thread: Some(thread) })
    }

    /// Ends it, and returns how many datagrams it has lost.
    #[must_use]
    pub fn stop(mut self) -> u64 {
        self.is_done.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}

fn run(outer: &UdpSocket, inner: &UdpSocket, network: Impairment, done: &AtomicBool) -> u64 {
    let mut caller: Option<SocketAddr> = None;
    let mut on_way: VecDeque<(Instant, bool, Vec<u8>)> = VecDeque::new();
    let (mut random, mut lost) = (network.seed | 1, 0);
    let mut bytes = [0; 2_048];
    while !done.load(Ordering::Relaxed) {
        let due = Instant::now() + network.delay;
        let mut pass = |is_inward: bool, datagram: &[u8]| {
            // A linear congruential generator; its high bits are good enough here.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            #[expect(clippy::cast_precision_loss, reason = "31 bits")]
            if ((random >> 33) as f64) < network.loss * 2f64.powi(31) {
                lost += 1;
            } else {
                on_way.push_back((due, is_inward, datagram.to_vec()));
            }
        };
        while let Ok((count, from)) = outer.recv_from(&mut bytes) {
            caller = Some(from);
            pass(true, &bytes[..count]);
        }
        while let Ok(count) = inner.recv(&mut bytes) {
            pass(false, &bytes[..count]);
        }
        let now = Instant::now();
        while on_way.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, is_inward, datagram)) = on_way.pop_front() else { break };
            if is_inward {
                drop(inner.send(&datagram));
            } else if let Some(caller) = caller {
                drop(outer.send_to(&datagram, caller));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    lost
}
