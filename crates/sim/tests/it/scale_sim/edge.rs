//! An edge: a station whose source is an origin, and the log that its listeners are sent from.

use std::sync::Arc;

use aulos_core::{HEADROOM, Instant, Rng, Span};
use aulos_engine::encode::PcmEncoder;
use aulos_engine::fanout::{ChunkLog, TimedChunk};
use aulos_engine::input::Input;
use aulos_engine::input::InputConfig;
use aulos_engine::ready_chunk::{MAX_WAITING, ready_chunks};
use aulos_engine::rendition::Rendition;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::station::{Station, StationConfig, StationHandle};
use aulos_engine::switch::SwitchConfig;
use aulos_proto::snap::wire::write_chunk_header;
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, ring};
use aulos_session::snapcast::SnapcastInputSink;
use aulos_sim::LocalClock;

use super::feed::{NatsFeed, SitePath, SnapcastFeed, pass_config};
use super::{CHUNK, OriginNode, spec, stream_header};

/// How an edge plays the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    /// `snapcast://ORIGIN?pass=true`: the chunks of the origin, at its play-out time.
    Passing,
    /// `nats:///STATION?pass=true`: the same through NATS.
    PassingNats,
    /// `nats:///STATION`: decoded, and encoded anew.
    Decoding,
}

impl EdgeKind {
    /// `buffer_ms` of its station.
    pub(crate) const fn buffer(self) -> Span {
        match self {
            // What pass-through leaves of the origin's second.
            Self::Passing | Self::PassingNats => Span::from_millis(700),
            Self::Decoding => Span::from_secs(1),
        }
    }

    /// The buffer of the input and the time after which its silence counts as a failure, as
    /// `aulos-server` sets them.
    const fn input(self) -> [Span; 2] {
        match self {
            Self::Passing | Self::PassingNats => [Span::from_millis(150), Span::from_millis(100)],
            Self::Decoding => [Span::from_millis(400), Span::from_millis(300)],
        }
    }
}

/// What makes one edge differ from another.
#[derive(Clone, Debug)]
pub(crate) struct EdgePlan {
    pub(crate) kind: EdgeKind,
    pub(crate) clock: LocalClock,
    pub(crate) path: SitePath,
    /// `latency` of a source `snapcast:`.
    pub(crate) latency: Span,
    pub(crate) seed: u64,
}

/// An edge that runs.
pub(crate) struct Edge {
    pub(crate) clock: LocalClock,
    pub(crate) buffer: Span,
    pub(crate) header: Arc<[u8]>,
    pub(crate) log: ChunkLog,
    feed: Feed,
    station: Station,
    handle: StationHandle,
    chunks: Consumer<TimedChunk>,
    random: Rng,
}

#[derive(Debug)]
enum Feed {
    Nats(Box<NatsFeed>),
    Snapcast(Box<SnapcastFeed>),
}

impl Edge {
    /// The server starts at `now`.
    pub(crate) fn start(plan: &EdgePlan, origins: &[OriginNode], now: Instant) -> Self {
        let EdgePlan { kind, clock, ref path, latency, seed } = *plan;
        let local = clock.read(now);
        let (sink, items, _status) = SnapcastInputSink::new();
        let [input_buffer, timeout] = kind.input();
        let config = InputConfig { buffer: input_buffer, timeout, ..InputConfig::default() };
        let source = Box::new(RingSource::new(items, Pacing::Live));
        let input = Input::new(source, spec().rate, spec().layout, config);
        let (sink, pass, input) = if kind == EdgeKind::Decoding {
            (sink, None, input)
        } else {
            let (chunks, queue) = ready_chunks(BUFFERS + MAX_WAITING, PAYLOAD);
            let pass = pass_config(kind.buffer(), input_buffer, CHUNK);
            (sink.with_ready_chunks(chunks), Some(pass), input.with_ready_chunks(queue))
        };
        let feed = if kind == EdgeKind::Passing {
            Feed::Snapcast(Box::new(SnapcastFeed::new(
                sink,
                (pass, latency),
                (path, origins[0]),
                local,
                seed,
            )))
        } else {
            let origins = (path.clone(), origins);
            Feed::Nats(Box::new(NatsFeed::new((sink, pass), origins, (now, local), seed)))
        };
        let quantum = spec().rate.frames(CHUNK);
        let pool = Pool::new(BUFFERS, || Vec::with_capacity(HEADROOM + PAYLOAD));
        let (output, chunks) = ring(LOG);
        let encoder = Box::new(PcmEncoder::new(spec()));
        let main = Rendition::new(encoder, pool, vec![output], write_chunk_header);
        let switch = SwitchConfig::default();
        let config = StationConfig { quantum, switch, crossfade: CHUNK };
        let (station, handle) = Station::new(config, local, vec![input], main);
        Self {
            clock,
            buffer: kind.buffer(),
            header: stream_header(),
            log: ChunkLog::new(LOG),
            feed,
            station,
            handle,
            chunks,
            random: Rng::new(seed),
        }
    }

    /// Runs one tick, which ends at `now`.
    pub(crate) fn tick(&mut self, now: Instant) {
        loop {
            let due = self.clock.world_at(self.station.poll_timeout());
            let late = self.random.exponential(WAKE_UP_NS) as i64;
            let awake = due + Span::from_nanos(late);
            if awake > now {
                break;
            }
            self.station.handle_timeout(self.clock.read(awake));
        }
        while let Some(chunk) = self.chunks.pop() {
            self.log.push(chunk);
        }
        match &mut self.feed {
            Feed::Nats(feed) => feed.tick(now, self.clock),
            Feed::Snapcast(feed) => feed.tick(now, self.clock),
        }
    }

    /// Chunks that the station has sent, and those of them that it has passed.
    pub(crate) fn sent(&mut self) -> [u64; 2] {
        let status = self.handle.status();
        [status.chunks, status.chunks_passed]
    }
}

/// Chunks that an edge keeps for its clients: two seconds.
const LOG: usize = 100;

/// Buffers for chunks: those of the log, and of a ring.
const BUFFERS: usize = 2 * LOG + 20;

/// Bytes of a chunk.
const PAYLOAD: usize = 640;

/// Mean time by which the station's worker wakes up late: 100 us.
const WAKE_UP_NS: f64 = 1e5;
