//! Mounts: passes the frames of the source on air to the reactors, as a job of the codec pool.
//!
//! ```text
//!  decoders --frames--> MountJob --chunks--> reactors
//!  station --AirMark, output--'
//! ```
//!
//! The station of a mount has no rendition of its own. It reads the decoded copies of its sources,
//! decides which is on air, and tells here, quantum by quantum, how far it has read which. What
//! cannot be passed is encoded from its output.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use aulos_config::{Intro, IntroChunk, MountSettings, StationSettings};
use aulos_core::{Block, Chunk, Codec, Frames, HEADROOM, Instant, MediaTime, SampleSpec, Span};
use aulos_engine::encode::{CodecConfig, Encoder, NoEncoder};
use aulos_engine::fanout::{Demand, TimedChunk};
use aulos_engine::recorder::{AirMark, AirTap, AirTapReader, air_tap};
use aulos_engine::station::StationHandle;
use aulos_io::feed::{FrameReader, PassedFrame};
use aulos_io::reactor::{MountStreamInfo, StationDescriptor};
use aulos_io::{Job, JobStatus, encoder};
use aulos_proto::titles::TrackMetadata;
use aulos_rt::ring::{Producer, ring};
use aulos_rt::{LatestPublisher, Pool};
use aulos_session::mount::{FrameFormat, MountCodec, MountStream, encoded_frames, encoder_format};

use super::encoding::{EncodingHandles, RING_CHUNKS, buffers};
use super::mount_monitor::{MountMonitor, MountStatus};
use super::state::{AudioState, RunningStation};

/// The parts of a mount besides those of its station.
pub(super) struct MountParts {
    /// For the station.
    pub(super) tap: AirTap,
    /// For the codec pool.
    pub(super) job: MountJob,
    /// For the status.
    pub(super) monitor: MountMonitor,
}

/// Logs what keeps sources of mounts from being passed, when it changes.
pub(super) fn log_obstacles(stations: &mut [Option<RunningStation>]) {
    for RunningStation { config, mount, .. } in stations.iter_mut().flatten() {
        if let Some(mount) = mount {
            mount.log_obstacles(&config.name, &config.sources);
        }
    }
}

/// Counters of all mounts for the status; their names are stable.
pub(super) fn counters(stations: &mut [Option<RunningStation>]) -> [(&'static str, u64); 6] {
    let mut sum = MountStatus::default();
    for mount in stations.iter_mut().flatten().filter_map(|running| running.mount.as_mut()) {
        let one = mount.status();
        sum.passed += one.passed;
        sum.encoded += one.encoded;
        sum.silenced += one.silenced;
        sum.splices += one.splices;
        sum.refused += one.refused;
        sum.lost_chunks += one.lost_chunks;
    }
    [
        ("mount_frames_passed", sum.passed),
        ("mount_frames_encoded", sum.encoded),
        ("mount_frames_silenced", sum.silenced),
        ("mount_splices", sum.splices),
        ("mount_sources_refused", sum.refused),
        ("mount_chunks_lost", sum.lost_chunks),
    ]
}

/// The station of a mount: no encoder, and the channel of its listeners.
pub(super) fn encoding(
    config: &StationSettings,
    mount: &MountSettings,
    reactors: usize,
) -> EncodingHandles {
    let quantum = config.spec.rate.frames(Span::from_millis(i64::from(config.chunk_ms)));
    let codec = mount.format.codec;
    let channel = StationDescriptor {
        name: config.name.clone(),
        codec: Codec::Pcm,
        bitrate: None,
        spec: config.spec,
        stream_header: Vec::new(),
        codec_header: Arc::from([]),
        buffer: BURST_HISTORY,
        chunk: VISIT / 2,
        demand: Demand::always(),
        icy: Arc::new(config.icy.clone()),
        mount: Some(MountStreamInfo {
            media_type: codec.media_type(),
            has_titles: codec.is_ogg(),
            has_reservoir: codec == MountCodec::Mp3,
            intro: mount.intro.as_ref().map(intro_chunks).unwrap_or_default(),
            burst: mount.burst,
            max_duration: mount.max_duration,
        }),
    };
    let (outputs, taps) = (0..reactors).map(|_| ring(RING_CHUNKS)).unzip();
    let pool = Pool::new(1, Vec::new);
    EncodingHandles {
        encoder: Box::new(NoEncoder(config.spec)),
        quantum,
        pool,
        outputs,
        channel,
        taps,
    }
}

/// The chunks of an intro, whose bytes all listeners share.
fn intro_chunks(intro: &Intro) -> Vec<TimedChunk> {
    let pool = Pool::new(intro.chunks().len(), Vec::new);
    let chunk = |part: &IntroChunk| {
        let mut bytes = pool.take()?;
        bytes.resize(HEADROOM, 0);
        bytes.extend_from_slice(&part.bytes);
        let (pts, duration) = (MediaTime::ZERO, part.duration);
        let chunk = Chunk { pts, duration, codec: Codec::Pcm, header: 0, bytes: bytes.freeze() };
        Some(TimedChunk {
            chunk,
            timestamp: Instant::ZERO,
            codec_header: part.header.clone(),
            origin: None,
        })
    };
    // The pool has a buffer for each.
    intro.chunks().iter().filter_map(chunk).collect()
}

/// The parts of a mount with these sources.
pub(super) fn parts(
    config: &StationSettings,
    mount: &MountSettings,
    (channel, quantum): (&StationDescriptor, Frames),
    (outputs, sources): (Vec<Producer<TimedChunk>>, Vec<Option<FrameReader>>),
    inner: &mut AudioState,
) -> MountParts {
    let SampleSpec { rate, layout, .. } = config.spec;
    let [_, _, _, _, serial @ ..] = inner.seeds.next_u64().to_le_bytes();
    let serial = u32::from_le_bytes(serial);
    let (tap, air) = air_tap(rate, layout, quantum);
    let (count, _) = buffers(channel, quantum);
    let samples = quantum.as_usize() * layout.channels();
    let mut initial = MountStatus::default();
    for (has, source) in initial.has_frames.iter_mut().zip(&sources) {
        *has = source.is_some();
    }
    let (publisher, status) = aulos_rt::latest(initial);
    let sources = sources.into_iter().map(|frames| Source { frames, format: None }).collect();
    let job = MountJob {
        air,
        sources,
        stream: MountStream::new(mount.format, serial),
        on_air: OnAir::Nothing,
        encoder: None,
        encoder_config: mount.encoder,
        spec: config.spec,
        quantum,
        samples: Vec::with_capacity(samples),
        block: Block::with_capacity(rate, layout, samples),
        payload: Vec::new(),
        output: ChunkOutput {
            pool: Pool::new(count, || Vec::with_capacity(HEADROOM + CHUNK_BYTES)),
            outputs,
            headers: VecDeque::new(),
            lost: 0,
        },
        status: initial,
        publisher,
    };
    let monitor = MountMonitor::new(status);
    MountParts { tap, job, monitor }
}

/// Starts a mount whose station has this handle.
pub(super) fn start(
    parts: MountParts,
    handle: &mut StationHandle,
    inner: &mut AudioState,
) -> io::Result<MountMonitor> {
    let MountParts { tap, job, monitor } = parts;
    handle.add_output(tap).map_err(io::Error::other)?;
    inner.codecs.add(Box::new(job));
    Ok(monitor)
}

/// Moves the listeners of one mount to another one of its format; false if it is of another.
pub(super) fn move_listeners(from: &str, to: &str, inner: &AudioState) -> bool {
    let find = |name: &str| {
        let mut stations = inner.stations.iter().enumerate();
        stations.find_map(|(number, running)| {
            let config = &running.as_ref()?.config;
            let mount = config.mount.as_ref().filter(|_| config.name == name)?;
            Some((number, mount.format))
        })
    };
    match (find(from), find(to)) {
        (Some((from, own)), Some((to, other))) if own == other => {
            inner.context.move_listeners(from, to);
            true
        }
        _ => false,
    }
}

/// Makes the stream of a mount.
pub(super) struct MountJob {
    air: AirTapReader,
    sources: Vec<Source>,
    stream: MountStream,
    on_air: OnAir,
    encoder: Option<Box<dyn Encoder>>,
    encoder_config: Option<CodecConfig>,
    spec: SampleSpec,
    quantum: Frames,
    samples: Vec<f32>,
    block: Block,
    payload: Vec<u8>,
    output: ChunkOutput,
    status: MountStatus,
    publisher: LatestPublisher<MountStatus>,
}

/// The frames of one source.
struct Source {
    /// `None` for a source that has only samples.
    frames: Option<FrameReader>,
    /// The format of the frames that come next, and their title.
    format: Option<Box<(FrameFormat, Option<TrackMetadata>)>>,
}

/// Whose frames the stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnAir {
    Nothing,
    Source(usize),
    Encoder,
}

impl Source {
    /// Drops the frames whose audio begins before `until`.
    fn drop_until(&mut self, until: MediaTime) {
        let Some(frames) = &mut self.frames else { return };
        while frames.next_start().is_some_and(|start| start < until) {
            if let Some(PassedFrame { begins: Some(begins), .. }) = frames.pop() {
                self.format = Some(begins);
            }
        }
    }
}

impl MountJob {
    /// Takes over a quantum of the station, whose output is in `samples`.
    fn advance(&mut self, mark: &AirMark) {
        for (number, source) in self.sources.iter_mut().enumerate() {
            if mark.input != Some(number) {
                let until = mark.positions.get(number).copied().unwrap_or_default();
                source.drop_until(until);
            }
        }
        let is_passed = mark.input.is_some_and(|input| {
            mark.positions.get(input).is_some_and(|end| self.pass(input, *end))
        });
        self.status.is_passing = is_passed;
        if !is_passed {
            self.encode();
        }
    }

    /// Passes the frames of a source up to `end`; false if that is impossible.
    fn pass(&mut self, input: usize, end: MediaTime) -> bool {
        let Self { sources, stream, status, on_air, quantum, .. } = self;
        let Some(source) = sources.get_mut(input) else { return false };
        if *on_air != OnAir::Source(input) {
            // At one rate, as all that can be passed, a quantum is as long as the station's.
            source.drop_until(MediaTime(end.0.saturating_sub(quantum.0)));
        }
        let Source { frames: Some(frames), format } = source else { return false };
        while frames.next_start().is_some_and(|start| start < end) {
            let Some(frame) = frames.pop() else { break };
            let begins = frame.begins.is_some();
            if let Some(begun) = frame.begins {
                *format = Some(begun);
            }
            if begins || *on_air != OnAir::Source(input) {
                let Some((known, title)) = format.as_deref() else { return false };
                let begun = stream.begin(known, title.as_ref());
                let obstacle = begun.err();
                if let Some(known) = status.obstacles.get_mut(input) {
                    status.refused += u64::from(obstacle.is_some() && *known != obstacle);
                    *known = obstacle;
                }
                if obstacle.is_some() {
                    return false;
                }
                *on_air = OnAir::Source(input);
            } else if frame.is_after_gap {
                stream.skip();
            }
            stream.push(frame.bytes, frame.duration);
            status.passed += 1;
        }
        // Between two frames of a source that is passed there is nothing to encode.
        *on_air == OnAir::Source(input)
    }

    /// Encodes the output of the station, if there is an encoder for it.
    fn encode(&mut self) {
        let Some(config) = self.encoder_config else {
            self.on_air = OnAir::Nothing;
            return;
        };
        if self.on_air != OnAir::Encoder {
            let made = encoder::make_encoder(config, self.spec, self.quantum).ok();
            let format = made.as_deref().and_then(encoder_format);
            let begun = format.is_some_and(|format| self.stream.begin(&format, None).is_ok());
            self.encoder = made.filter(|_| begun);
            self.on_air = OnAir::Encoder;
        }
        let Some(encoder) = &mut self.encoder else { return };
        self.block.reset(self.spec.rate, self.spec.layout);
        self.block.resize(Frames::from(self.samples.len() / self.spec.layout.channels()));
        self.block.samples_mut().copy_from_slice(&self.samples);
        self.payload.clear();
        if encoder.encode(&self.block, &mut self.payload).is_err() {
            return;
        }
        for (frame, duration) in encoded_frames(encoder.codec(), &self.payload, self.quantum) {
            self.stream.push(frame, duration);
            self.status.encoded += 1;
        }
    }

    /// Sends what has been collected; `now` is the time of the last quantum.
    fn send(&mut self, now: Instant) {
        self.stream.end_batch();
        while let Some(chunk) = self.stream.poll_output() {
            self.output.send(chunk.bytes, chunk.header, chunk.duration, now);
        }
        let stats = self.stream.stats();
        (self.status.silenced, self.status.splices) = (stats.silenced, stats.splices);
        self.status.lost_chunks = self.output.lost;
    }
}

impl Job for MountJob {
    fn step(&mut self) -> JobStatus {
        let is_over = self.air.is_abandoned();
        let mut last = None;
        loop {
            self.samples.clear();
            let Some((mark, _)) = self.air.read(&mut self.samples) else { break };
            self.advance(&mark);
            last = Some(mark.stamp);
        }
        if let Some(stamp) = last {
            self.send(stamp);
            self.publisher.publish(self.status);
        }
        if is_over { JobStatus::Done } else { JobStatus::Pending }
    }
}

/// Hands chunks to the reactors.
struct ChunkOutput {
    pool: Pool<Vec<u8>>,
    outputs: Vec<Producer<TimedChunk>>,
    /// The last headers, so that no reactor frees one.
    headers: VecDeque<Arc<[u8]>>,
    lost: u64,
}

impl ChunkOutput {
    fn send(
        &mut self,
        payload: &[u8],
        header: Option<&Arc<[u8]>>,
        duration: Frames,
        timestamp: Instant,
    ) {
        let Some(mut bytes) = self.pool.take() else {
            self.lost += 1;
            return;
        };
        bytes.clear();
        bytes.resize(HEADROOM, 0);
        bytes.extend_from_slice(payload);
        if let Some(header) = header
            && !self.headers.back().is_some_and(|last| Arc::ptr_eq(last, header))
        {
            self.headers.push_back(Arc::clone(header));
            if self.headers.len() > KEPT_HEADERS {
                self.headers.pop_front();
            }
        }
        let pts = MediaTime::ZERO;
        let chunk = Chunk { pts, duration, codec: Codec::Pcm, header: 0, bytes: bytes.freeze() };
        let codec_header = header.cloned();
        let chunk = TimedChunk { chunk, timestamp, codec_header, origin: None };
        for output in &mut self.outputs {
            if output.push(chunk.clone()).is_err() {
                self.lost += 1;
            }
        }
    }
}

/// How far the logs of a mount go back: a burst of 64 kB has 16 s at 32 kbit/s.
const BURST_HISTORY: Span = Span::from_secs(16);

/// The interval at which the codec pool visits its jobs.
const VISIT: Span = Span::from_millis(100);

/// The usual size of a chunk: 320 kbit/s for the time between two visits.
const CHUNK_BYTES: usize = 4_096;

/// Headers of the links that a log may have.
const KEPT_HEADERS: usize = 64;
