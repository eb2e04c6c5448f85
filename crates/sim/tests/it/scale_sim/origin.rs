//! An origin: a programme on its own clock.

use aulos_core::{Frames, Instant, MediaTime, Ppm, Span};
use aulos_proto::nats::{ChunkHeader, ChunkMessage, StreamRecord, origin_tag};
use aulos_sim::LocalClock;

use super::{CHUNK, CHUNK_FRAMES, ORIGIN_BUFFER, PEAK, RAMP, RATE, spec, stream_header};

/// A node that publishes the programme.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginNode {
    pub(crate) name: &'static str,
    pub(crate) clock: LocalClock,
    pub(crate) epoch: u32,
    /// When it ends.
    pub(crate) killed_at: Option<Instant>,
}

impl OriginNode {
    /// An origin that runs from the beginning.
    pub(crate) fn new(name: &'static str, booted_s: i64, ppm: i32, epoch: u32) -> Self {
        let start = Instant::ZERO + Span::from_secs(booted_s);
        let clock = LocalClock::new(start, Ppm::from_ppm(ppm));
        Self { name, clock, epoch, killed_at: None }
    }

    pub(crate) fn is_alive(&self, now: Instant) -> bool {
        self.killed_at.is_none_or(|at| now < at)
    }

    /// The time of a chunk's first frame on its clock.
    pub(crate) fn stamp(&self, chunk: u64) -> Instant {
        self.clock.read(Instant::ZERO) + CHUNK * i64::try_from(chunk).unwrap()
    }

    /// When a chunk is complete, in simulated time.
    pub(crate) fn complete_at(&self, chunk: u64) -> Instant {
        self.clock.world_at(self.stamp(chunk + 1))
    }

    /// The first chunk that is not complete.
    pub(crate) fn next_chunk(&self, now: Instant) -> u64 {
        let since = self.clock.read(now) - self.clock.read(Instant::ZERO);
        (since.as_nanos() / CHUNK.as_nanos()) as u64
    }

    /// How long after its capture the frame at this level of the ramp sounds, if it sounds at
    /// `now`: seconds, less than one ramp.
    pub(crate) fn delay_of(&self, level: f64, now: Instant) -> f64 {
        let since = self.clock.read(now) - self.clock.read(Instant::ZERO);
        let frame = (level / PEAK + 1.0) / 2.0 * RAMP;
        (since.as_secs_f64() * RATE - frame).rem_euclid(RAMP) / RATE
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        let header = stream_header();
        let record = StreamRecord {
            epoch: self.epoch,
            is_leased: false,
            buffer: ORIGIN_BUFFER,
            chunk: Frames(CHUNK_FRAMES),
            spec: spec(),
            node: self.name,
            codec: "pcm",
            // Behind the lengths and the name.
            codec_header: &header[11..],
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    }

    /// A chunk as NATS carries it.
    pub(crate) fn message(&self, chunk: u64) -> Vec<u8> {
        let header = ChunkHeader {
            origin: origin_tag(self.name),
            epoch: self.epoch,
            sequence: chunk,
            first_frame: MediaTime(chunk * CHUNK_FRAMES),
            recorded: self.stamp(chunk),
            wall_nanos: 0,
            frames: Frames(CHUNK_FRAMES),
        };
        let mut bytes = Vec::new();
        ChunkMessage { header, payload: &payload(chunk) }.write(&mut bytes);
        bytes
    }
}

/// The audio of a chunk.
pub(crate) fn payload(chunk: u64) -> Vec<u8> {
    let first = chunk * CHUNK_FRAMES;
    let sample = |frame: u64| {
        let level = PEAK * (2.0 * (frame as f64 % RAMP) / RAMP - 1.0);
        (level * 8_388_608.0).round() as i32 & 0xff_ffff
    };
    (first..first + CHUNK_FRAMES).flat_map(|frame| sample(frame).to_le_bytes()).collect()
}
