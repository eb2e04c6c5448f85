//! A station in the simulation: senders with their own sound cards, and an analyzer that identifies
//! every frame.
//!
//! Every source sends a point on a circle, one channel its x and the other its y. The radius
//! identifies the source and the angle the frame, and both survive a resampler, so the analyzer
//! finds each frame that was omitted, repeated or inserted, whichever source is on air.

#![allow(dead_code, reason = "each scenario uses what it needs")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod analyzer;
mod sender;

use aulos_core::{Block, Frames, HEADROOM, Instant, Rng, SampleFormat, SampleSpec, Span};
use aulos_core::{ChannelLayout, SampleRate};
use aulos_engine::encode::PcmEncoder;
use aulos_engine::fanout::TimedChunk;
use aulos_engine::input::Input;
use aulos_engine::input::InputConfig;
use aulos_engine::rendition::Rendition;
use aulos_engine::source::{Pacing, PullResult, Source};
use aulos_engine::station::{Station, StationConfig, StationHandle};
use aulos_engine::status::StationStatus;
use aulos_engine::switch::SwitchConfig;
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, ring};

pub(crate) use analyzer::ContinuityAnalyzer;
pub(crate) use sender::{Sender, SentContent};

/// A station with its senders and the analyzer of its output.
pub(crate) struct StationSim {
    pub(crate) now: Instant,
    pub(crate) senders: Vec<Sender>,
    pub(crate) analyzer: ContinuityAnalyzer,
    station: Station,
    chunks: Consumer<TimedChunk>,
    handle: StationHandle,
    /// Maximum delays of decisions, per fault.
    pub(crate) decision_times: DecisionTimes,
    silence: Span,
    /// Maximum lateness of the station worker; each wake is late by a random part of it.
    lateness: Span,
    random: Rng,
    due: Instant,
}

impl StationSim {
    /// A station at `rate` with live senders with these drifts, in order of priority, and
    /// optionally an endless recording as fallback.
    pub(crate) fn new(rate: SampleRate, senders: &[i32], loops: bool, seed: u64) -> Self {
        let configs = (SwitchConfig::default(), InputConfig::default(), Pacing::Live);
        Self::with_config(rate, senders, loops, seed, configs)
    }

    /// The same with other configurations and another pacing of the senders.
    pub(crate) fn with_config(
        rate: SampleRate,
        senders: &[i32],
        loops: bool,
        seed: u64,
        (switch, input_config, pacing): (SwitchConfig, InputConfig, Pacing),
    ) -> Self {
        let now = Instant::ZERO + Span::from_secs(5);
        let spec = SampleSpec { rate, format: SampleFormat::F32, layout: ChannelLayout::STEREO };
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let mut live = Vec::new();
        for (number, ppm) in senders.iter().enumerate() {
            let (sender, source) = Sender::new(CircleSignal::new(number), rate, *ppm, now, pacing);
            live.push(sender);
            sources.push(source);
        }
        if loops {
            sources.push(Box::new(CircleSource { circle: CircleSignal::new(senders.len()), rate }));
        }
        let input = |source| Input::new(source, rate, spec.layout, input_config);
        let quantum = rate.frames(QUANTUM);
        let config = StationConfig { quantum, switch, crossfade: QUANTUM };
        let (output, chunks) = ring(64);
        let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 8 * quantum.as_usize()));
        let inputs = sources.into_iter().map(input).collect();
        let encoder = Box::new(PcmEncoder::new(spec));
        let main = Rendition::new(encoder, pool, vec![output], |_, _, _, _| 0);
        let (station, handle) = Station::new(config, now, inputs, main);
        let due = station.poll_timeout();
        let (random, lateness) = (Rng::new(seed), Span::from_millis(3));
        Self {
            now,
            senders: live,
            analyzer: ContinuityAnalyzer::new(rate),
            decision_times: DecisionTimes::default(),
            silence: input_config.silence.duration,
            station,
            chunks,
            handle,
            lateness,
            random,
            due,
        }
    }

    /// Runs the simulation for `span`.
    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.step(end) {}
        self.now = end;
    }

    /// Produces one chunk, unless the next one is due after `end`. Returns whether it did.
    pub(crate) fn step(&mut self, end: Instant) -> bool {
        let next = self.due.min(end);
        for sender in &mut self.senders {
            sender.run_until(next);
        }
        self.now = next;
        if self.due > end {
            return false;
        }
        self.station.handle_timeout(next);
        let status = *self.handle.status();
        self.decision_times.record(next, self.silence, &self.senders, &status);
        let spoils = |sender: &Sender| {
            sender.content != SentContent::Sound || next.since(sender.since) < LINGER
        };
        let active = status.active.and_then(|active| self.senders.get(active));
        let spoilt = active.is_some_and(spoils);
        while let Some(stamped) = self.chunks.pop() {
            self.analyzer.push(&stamped, status.switches + status.underruns, spoilt);
        }
        let late = seconds(self.lateness.as_secs_f64() * self.random.next_f64());
        self.due = self.station.poll_timeout() + late;
        true
    }

    pub(crate) fn status(&mut self) -> StationStatus {
        *self.handle.status()
    }
}

/// By then what a sender has sent is played: a full buffer and ring, which a standby source takes
/// on air with it.
const LINGER: Span = Span::from_secs(4);

/// Records the delays of decisions.
#[derive(Debug, Default)]
pub(crate) struct DecisionTimes {
    late: [u64; 8],
    silent: [u64; 8],
    /// The longest delay after the timeout.
    pub(crate) latest: Span,
    /// The shortest and the longest delay after the silence timeout.
    pub(crate) silence: (Span, Span),
}

impl DecisionTimes {
    fn record(&mut self, now: Instant, set: Span, senders: &[Sender], status: &StationStatus) {
        for (index, (sender, input)) in senders.iter().zip(&status.inputs).enumerate() {
            let (late, silent) = (input.failures.late, input.failures.silent);
            // With a full buffer no sender is late, and a late one has recovered.
            let full = input.buffered > InputConfig::default().timeout;
            if core::mem::replace(&mut self.late[index], late) < late && !full {
                let after = now - sender.sent - InputConfig::default().timeout;
                self.latest = self.latest.max(after);
            }
            let fell = core::mem::replace(&mut self.silent[index], silent) < silent;
            // Audio that has not been read yet cannot be detected.
            let waits = input.buffered > Span::from_millis(700);
            if fell && sender.content == SentContent::Silence && !waits {
                let after = SampleRate::HZ_48000.span(sender.frames) - set;
                self.silence = (self.silence.0.min(after), self.silence.1.max(after));
            }
        }
    }
}

/// A span of this many seconds.
#[allow(clippy::cast_possible_truncation, reason = "some seconds, in nanoseconds")]
pub(crate) fn seconds(seconds: f64) -> Span {
    Span::from_nanos((seconds * 1e9) as i64)
}

/// A point that moves on a circle, one turn in [`FRAMES_PER_TURN`] frames.
#[derive(Clone, Debug)]
pub(crate) struct CircleSignal {
    points: Box<[[f32; 2]]>,
    position: usize,
}

impl CircleSignal {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small")]
    fn new(number: usize) -> Self {
        let point = |at: u16| {
            let (y, x) =
                (core::f64::consts::TAU * f64::from(at) / f64::from(FRAMES_PER_TURN)).sin_cos();
            [x, y].map(|way| (RADIUS * (number + 1) as f64 * way) as f32)
        };
        Self { points: (0..FRAMES_PER_TURN).map(point).collect(), position: 0 }
    }

    /// Fills `block` with the next `frames` frames.
    fn fill(&mut self, block: &mut Block, rate: SampleRate, frames: Frames) {
        block.reset(rate, ChannelLayout::STEREO);
        block.resize(frames);
        for frame in block.samples_mut().as_chunks_mut::<2>().0 {
            *frame = self.points[self.position];
            self.position = (self.position + 1) % self.points.len();
        }
    }
}

struct CircleSource {
    circle: CircleSignal,
    rate: SampleRate,
}

impl Source for CircleSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        self.circle.fill(into, self.rate, self.rate.frames(PERIOD));
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

pub(crate) const QUANTUM: Span = Span::from_millis(20);

/// Duration of a card's period.
pub(crate) const PERIOD: Span = Span::from_millis(10);

/// Longer than any discontinuity that the analyzer has to measure.
const FRAMES_PER_TURN: u16 = 4_800;

/// Radius of the first source's circle; the others are two, three and four times as large.
const RADIUS: f64 = 0.2;
