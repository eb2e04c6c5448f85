//! The server with real sockets: once all clients are connected, no audio thread allocates, neither
//! for a chunk nor for the answer to a Time request.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::counting::{ALLOCATED, COUNTING, FREED};
use crate::exclusive_counts;
use aulos_core::{Codec, HEADROOM, SampleSpec, Span};
use aulos_engine::encode::make_encoder;
use aulos_engine::fanout::Demand;
use aulos_engine::generate::Demo;
use aulos_engine::input::Input;
use aulos_engine::input::InputConfig;
use aulos_engine::rendition::Rendition;
use aulos_engine::source::{Pacing, RingSource, Source};
use aulos_engine::station::{Station, StationConfig, StationHandle};
use aulos_engine::switch::SwitchConfig;
use aulos_io::feed::{ByteFeed, FeedState, FifoAccess, FifoFeeder, FifoMode};
use aulos_io::reactor::{EventSink, ReactorEvent, ReactorPool, StationDescriptor};
use aulos_io::{SystemClock, Workers};
use aulos_proto::snap::client::{self, ClientOutput, SnapcastClient};
use aulos_proto::snap::sync::OffsetFilter;
use aulos_proto::snap::wire::{self, Hello, ServerSettings};
use aulos_rt::Pool;
use aulos_rt::ring::ring;

/// Answers every Hello like the control plane.
struct ControlStub(Mutex<Option<ReactorPool>>);

impl EventSink for ControlStub {
    fn push(&self, event: ReactorEvent) -> Result<(), ReactorEvent> {
        if let ReactorEvent::Hello { session, .. } = event {
            let context = self.0.lock().unwrap();
            let context = context.as_ref().unwrap();
            assert!(context.set_settings(session, ServerSettings::default()));
            assert!(context.set_station(session, 0));
        }
        Ok(())
    }
}

/// A station with a FIFO, two reactors, one worker.
struct TestServer {
    control: Arc<ControlStub>,
    workers: Workers,
    address: SocketAddr,
    handle: StationHandle,
}

impl TestServer {
    fn start(fifo: &std::path::Path) -> Self {
        let control = Arc::new(ControlStub(Mutex::new(None)));
        let sink: Arc<dyn EventSink> = control.clone();
        let mut context = ReactorPool::start(2, &sink).unwrap();
        let (spec, chunk) = (SampleSpec::DEFAULT, Span::from_millis(20));
        let quantum = spec.rate.frames(chunk);

        let (publisher, _) = aulos_rt::latest(FeedState::Waiting);
        let (feed, items) = ByteFeed::new(spec, publisher, 0);
        context.add_feeder(Box::new(FifoFeeder::new(
            fifo,
            FifoMode::Create(FifoAccess::default()),
            feed,
        )));
        let live: Box<dyn Source> = Box::new(RingSource::new(items, Pacing::Live));
        let inputs = [live, Box::new(Demo::new(spec.rate, quantum))]
            .map(|source| Input::new(source, spec.rate, spec.layout, InputConfig::default()));

        let encoder = make_encoder(Codec::Flac, spec, quantum).unwrap();
        let channel = StationDescriptor {
            name: "default".into(),
            codec: Codec::Flac,
            bitrate: None,
            spec,
            stream_header: encoder.header().to_vec(),
            codec_header: wire::codec_header(Codec::Flac, spec, encoder.header()).unwrap().into(),
            buffer: Span::from_secs(1),
            chunk,
            demand: Demand::none(),
            icy: Arc::default(),
            mount: None,
        };
        let (outputs, taps) = (0..context.reactors()).map(|_| ring(64)).unzip();
        context.add_station(&channel, taps);
        let now = SystemClock::now();
        let config = StationConfig {
            quantum,
            switch: SwitchConfig::default(),
            crossfade: Span::from_millis(20),
        };
        let pool = Pool::new(256, || Vec::with_capacity(HEADROOM + 8 * quantum.as_usize() + 256));
        let main = Rendition::new(encoder, pool, outputs, wire::write_chunk_header);
        let (station, handle) = Station::new(config, now, inputs.into(), main);
        let mut workers = Workers::start(1).unwrap();
        workers.add(station);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        context.listen(listener).unwrap();
        *control.0.lock().unwrap() = Some(context);
        Self { control, workers, address, handle }
    }

    fn stop(mut self) {
        let mut context = self.control.0.lock().unwrap().take().unwrap();
        context.stop();
        self.workers.stop();
    }
}

/// What the clients received while counting.
static CHUNKS: AtomicU64 = AtomicU64::new(0);
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// A client on a thread of its own.
fn client(address: SocketAddr, number: u64, done: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let hello = Hello::new(&format!("client-{number}"));
        let config = client::ClientConfig { hello, filter: OffsetFilter::default() };
        let mut machine = SnapcastClient::new(config, SystemClock::now());
        let (mut scratch, mut out) = (vec![0; 65_536], Vec::new());
        while !done.load(SeqCst) {
            let (counting, answers) = (COUNTING.load(SeqCst), machine.sync().exchanges());
            machine.handle_timeout(SystemClock::now());
            if let Ok(count) = socket.read(&mut scratch) {
                assert!(count > 0, "the house hung up");
                let input = client::ClientInput::Received(&scratch[..count]);
                machine.handle_input(SystemClock::now(), input);
            }
            let mut chunks = 0;
            while let Some(output) = machine.poll_output() {
                match output {
                    ClientOutput::Send(message) => message.write(SystemClock::now(), &mut out),
                    ClientOutput::Chunk { .. } => chunks += 1,
                    _ => {}
                }
            }
            if counting {
                CHUNKS.fetch_add(chunks, SeqCst);
                ANSWERS.fetch_add((machine.sync().exchanges() - answers) as u64, SeqCst);
            }
            socket.write_all(&out).unwrap();
            out.clear();
        }
    })
}

/// Writes into the FIFO in real time: noise before counting starts, so that the encoder's buffers
/// have their maximum size.
fn writer(fifo: std::path::PathBuf, done: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut pipe = OpenOptions::new().write(true).open(fifo).unwrap();
        let mut at = SystemClock::now();
        let mut noise = 1u32;
        let mut bytes = [0; 4 * 480];
        loop {
            let quiet = COUNTING.load(SeqCst);
            for sample in bytes.as_chunks_mut::<2>().0 {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let loud = (noise >> 16).to_le_bytes();
                *sample = if quiet { [loud[0], 0] } else { [loud[0], loud[1]] };
            }
            if done.load(SeqCst) {
                return;
            }
            pipe.write_all(&bytes).unwrap();
            at += Span::from_millis(10);
            SystemClock::sleep_until(at);
        }
    })
}

#[test]
fn fifty_clients_are_served_without_a_call() {
    let _turn = exclusive_counts();
    let scratch = aulos_blackbox::scratch::ScratchDir::new("reactor").unwrap();
    let fifo = scratch.join("fifo");
    let mut server = TestServer::start(&fifo);
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| client(server.address, number, done.clone())).collect();
    while !fifo.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let writer = writer(fifo, done.clone());
    // By now all clients are connected, and the FIFO is on air.
    std::thread::sleep(Duration::from_secs(3));
    wait_for(|| server.handle.status().active == Some(0));
    std::thread::sleep(Duration::from_millis(500));

    let before = server.handle.status().chunks;
    COUNTING.store(true, SeqCst);
    wait_for(|| {
        server.handle.status().chunks >= before + 250
            && CHUNKS.load(SeqCst) >= 200 * CLIENTS
            && ANSWERS.load(SeqCst) >= 3 * CLIENTS
    });
    COUNTING.store(false, SeqCst);
    let calls = (ALLOCATED.load(SeqCst), FREED.load(SeqCst));
    done.store(true, SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    writer.join().unwrap();
    server.stop();

    let (chunks, answers) = (CHUNKS.load(SeqCst), ANSWERS.load(SeqCst));
    println!("{chunks} chunks heard, {answers} questions of the time answered");
    println!("{} allocations, {} frees on the threads of the house", calls.0, calls.1);
    assert_eq!(calls, (0, 0));
}

/// Waits at most a minute.
fn wait_for(mut happened: impl FnMut() -> bool) {
    for _ in 0..600 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it did not happen");
}

const CLIENTS: u64 = 50;
