//! Who sends: a thread with a grid of 1 ms, or the other end of a trunk.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use aulos_core::{Instant, Span};
use aulos_dsp::g711::{G711Law, encode};
use aulos_io::SystemClock;
use aulos_io::udp::{UdpConfig, UdpContext};
use aulos_session::datagram::{Machine, Outbox, Packets, Route};

/// What has been sent, and the order to stop.
#[derive(Default)]
struct State {
    sent: AtomicU64,
    stop: AtomicBool,
}

pub(crate) struct Generator {
    state: Arc<State>,
    thread: JoinHandle<()>,
}

impl Generator {
    pub(crate) fn start(role: &str, streams: usize, port: u16) -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let one_port = ["port", "trunk", "relay-port"].contains(&role);
        let trunk = role == "trunk";
        let thread = std::thread::spawn(move || {
            if trunk {
                send_joined(&shared, streams, port);
            } else {
                send(&shared, streams, port, one_port);
            }
        });
        Self { state, thread }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.load(SeqCst)
    }

    /// How many packets it has sent in all.
    pub(crate) fn stop(self) -> u64 {
        self.state.stop.store(true, SeqCst);
        self.thread.join().expect("it does not panic");
        self.state.sent.load(SeqCst)
    }
}

/// Every stream has a packet each 20 ms, in one of 20 slots.
const SLOTS: usize = 20;
const SLOT: Span = Span::from_millis(1);

fn send(state: &State, streams: usize, port: u16, one_port: bool) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut at = SystemClock::now();
    for slot in 0.. {
        if state.stop.load(SeqCst) {
            return;
        }
        for stream in (slot % SLOTS..streams).step_by(SLOTS) {
            let offset = if one_port { 0 } else { u16::try_from(stream).expect("a port") };
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port + offset));
            if socket.send_to(&packet(stream, slot / SLOTS), to).is_ok() {
                state.sent.fetch_add(1, SeqCst);
            }
        }
        at += SLOT;
        SystemClock::sleep_until(at);
    }
}

/// The same through a context of ours that joins them.
fn send_joined(state: &Arc<State>, streams: usize, port: u16) {
    let mut config = UdpConfig::default();
    (config.threads, config.wait) = (1, SLOT);
    config.bind_v4 = Ipv4Addr::LOCALHOST;
    let mut context = UdpContext::start(&config).expect("a context");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let next = SystemClock::now();
    let trunk = Trunk { state: Arc::clone(state), streams, to, slot: 0, next };
    context.add(None, trunk).expect("a stream");
    while !state.stop.load(SeqCst) {
        SystemClock::sleep_until(SystemClock::now() + Span::from_millis(20));
    }
    context.stop();
}

struct Trunk {
    state: Arc<State>,
    streams: usize,
    to: SocketAddr,
    slot: usize,
    next: Instant,
}

impl Machine for Trunk {
    type Command = ();
    type Report = ();

    fn handle_packets(&mut self, _: Instant, _: &mut Packets<'_>, _: &mut Outbox<'_>) {}

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        while self.next <= now && !self.state.stop.load(SeqCst) {
            for stream in (self.slot % SLOTS..self.streams).step_by(SLOTS) {
                if out.send(Route::to(self.to), &packet(stream, self.slot / SLOTS)) {
                    self.state.sent.fetch_add(1, SeqCst);
                }
            }
            self.slot += 1;
            self.next += SLOT;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn handle_command(&mut self, _: Instant, (): (), _: &mut Outbox<'_>) {}

    fn report(&self) {}
}

/// 12 bytes of header and 160 of sound, of which the first eight are the time.
pub(crate) fn packet(stream: usize, number: usize) -> [u8; 172] {
    let mut bytes = [0xD5; 172];
    bytes[12..].copy_from_slice(&VOICE[number % VOICE.len()]);
    bytes[..2].copy_from_slice(&[0x80, 0]);
    bytes[2..4].copy_from_slice(&((number & 0xFFFF) as u16).to_be_bytes());
    bytes[4..8].copy_from_slice(&((number * 160) as u32).to_be_bytes());
    bytes[8..12].copy_from_slice(&(stream as u32).to_be_bytes());
    bytes[12..20].copy_from_slice(&SystemClock::now().as_nanos().to_be_bytes());
    bytes
}

/// A second of a voice that says nothing: a low tone with its harmonics, four syllables of it.
static VOICE: LazyLock<[[u8; 160]; 50]> = LazyLock::new(|| {
    std::array::from_fn(|packet| {
        let samples: [f32; 160] = std::array::from_fn(|frame| {
            let seconds = (packet * 160 + frame) as f64 / 8_000.0;
            let turns = std::f64::consts::TAU * 140.0 * seconds;
            let tones: f64 = (1..12_i32).map(|k| (turns * f64::from(k)).sin() / f64::from(k)).sum();
            let loud = (std::f64::consts::TAU * 2.0 * seconds).sin().abs();
            (tones * loud / 4.0) as f32
        });
        let mut codes = [0; 160];
        encode(G711Law::Mu, &samples, &mut codes);
        codes
    })
});
