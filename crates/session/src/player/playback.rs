//! From chunks to the frames that a device asks for, each at its time.

use aulos_core::{ClockLine, Frames, Instant, Ppm, SampleRate, Span};
use aulos_dsp::Resampler;

use super::decoder::ChunkDecoder;
use super::device::{DeviceClock, DevicePosition};
use super::queue::ChunkQueue;
use super::servo::RateServo;
use super::volume::{Fade, VolumeRamp, fade_out};

/// The play-out of one stream on one device.
#[derive(Debug)]
pub(super) struct Playback {
    decoder: ChunkDecoder,
    resampler: Resampler,
    device_rate: SampleRate,
    pub(super) device: DeviceClock,
    /// Frames that were given to the device since it was opened.
    written: Frames,
    /// Decoded frames; those before `taken` have gone to the resampler.
    decoded: Vec<f32>,
    taken: usize,
    /// Server's time of the frame after the last decoded one.
    decoded_end: Instant,
    servo: RateServo,
    is_playing: bool,
    pub(super) volume: VolumeRamp,
    fade: Fade,
    /// The last frame of sound, from which a sudden end fades.
    last_frame: Vec<f32>,
    error: Option<Span>,
    pub(super) stats: PlaybackStats,
}

/// Counters of a play-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaybackStats {
    /// How often the content was placed: at its start, and after each interruption.
    pub starts: u64,
    /// Cross-faded jumps because the content was more than [`MAX_ERROR`] off its time.
    pub cuts: u64,
    /// Interruptions because no chunk was there.
    pub underruns: u64,
    /// Interruptions because the timestamps of the chunks jumped.
    pub jumps: u64,
    /// Chunks that were past their time and may have had sound.
    pub late: u64,
    /// Chunks that could not be decoded.
    pub damaged: u64,
    /// Panics of the codec's library. Each time a new decoder went on.
    pub codec_panics: u64,
}

/// When content has to sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlayoutTime {
    /// The server's clock.
    pub(super) server: ClockLine,
    /// From a timestamp to its playout.
    pub(super) delay: Span,
    /// Whether the server's clock is known well enough to begin.
    pub(super) may_start: bool,
}

impl Playback {
    pub(super) fn new(decoder: ChunkDecoder, device_rate: SampleRate, volume: VolumeRamp) -> Self {
        let channels = decoder.channels();
        Self {
            resampler: if decoder.rate() == device_rate {
                Resampler::for_drift(channels)
            } else {
                Resampler::new(channels, decoder.rate(), device_rate)
            },
            device_rate,
            device: DeviceClock::new(device_rate),
            written: Frames::ZERO,
            decoded: Vec::new(),
            taken: 0,
            decoded_end: Instant::ZERO,
            servo: RateServo::default(),
            is_playing: false,
            volume,
            fade: Fade::new(device_rate),
            last_frame: vec![0.0; channels],
            error: None,
            stats: PlaybackStats::default(),
            decoder,
        }
    }

    pub(super) fn channels(&self) -> usize {
        self.decoder.channels()
    }

    /// Renders the next frames of the device: all of `out`, with silence where there is nothing.
    pub(super) fn render(
        &mut self,
        position: DevicePosition,
        time: Option<PlayoutTime>,
        queue: &mut ChunkQueue,
        out: &mut [f32],
    ) {
        self.device.push(position);
        let first = self.written;
        let frames = out.len() / self.channels();
        self.written += Frames::from(frames);
        let sounds_at = self.device.sounds_at(first).unwrap_or(position.at);
        let Some(time) = time else { return self.interrupt(out) };
        let target = time.server.peer_time(sounds_at) - time.delay;
        if self.is_playing {
            self.play(target, time, queue, out);
        } else {
            self.start(target, time.may_start, queue, out);
        }
        self.volume.apply(self.decoder.channels(), out);
    }

    /// How far the content was ahead of its time at the last rendering.
    pub(super) const fn error(&self) -> Option<Span> {
        self.error
    }

    /// How much faster than nominal the content is consumed.
    pub(super) fn rate(&self) -> Ppm {
        self.servo.rate()
    }

    pub(super) const fn is_playing(&self) -> bool {
        self.is_playing
    }

    /// Frames that were given to the device.
    pub(super) const fn written(&self) -> Frames {
        self.written
    }

    fn play(
        &mut self,
        target: Instant,
        time: PlayoutTime,
        queue: &mut ChunkQueue,
        out: &mut [f32],
    ) {
        let error = self.next_content() - target;
        self.error = Some(error);
        if error.abs() > MAX_ERROR {
            self.stats.cuts += 1;
            let (head, tail) =
                out.split_at_mut(out.len().min(self.fade.length() * self.channels()));
            self.fill(queue, head);
            fade_out(self.channels(), head);
            self.is_playing = false;
            let later = self.device_rate.span(Frames::from(head.len() / self.channels()));
            return self.start(target + later, true, queue, tail);
        }
        let span = self.device_rate.span(Frames::from(out.len() / self.channels()));
        let drift = f64::from(time.server.drift.as_ppb() - self.device.drift().as_ppb()) / 1e3;
        self.resampler.set_drift(self.servo.step(span, error, drift));
        self.fill(queue, out);
    }

    /// Begins with the content of server time `target`, or later in `out` if that is the first.
    fn start(&mut self, target: Instant, may_start: bool, queue: &mut ChunkQueue, out: &mut [f32]) {
        out.fill(0.0);
        self.error = None;
        if !may_start {
            return;
        }
        // What the resampler gives first is its latency before its first input.
        let input_at = target + self.decoder.rate().span(self.resampler.latency());
        let Some(wait) = self.find(input_at, queue) else { return };
        let silent = self.device_rate.frames(wait).as_usize() * self.channels();
        if silent >= out.len() {
            return;
        }
        if self.decoded.is_empty() && !self.decode_next(queue) {
            return;
        }
        self.stats.starts += 1;
        self.is_playing = true;
        self.resampler.reset();
        self.servo.reset();
        self.fade.begin();
        self.fill(queue, &mut out[silent..]);
    }

    /// Finds the content of server time `at`: decodes the chunk that has it, or returns how long
    /// the first chunk is still to wait for. `None` if there is no chunk.
    fn find(&mut self, at: Instant, queue: &mut ChunkQueue) -> Option<Span> {
        self.decoded.clear();
        self.taken = 0;
        loop {
            let wait = queue.front()?.timestamp - at;
            if wait > Span::ZERO {
                return Some(wait);
            }
            let is_over = queue.second_timestamp().is_some_and(|next| next <= at);
            let is_preroll = self.decoder.needs_preroll()
                && queue.second_timestamp().is_some_and(|next| next - at > -PREROLL);
            if is_over && !is_preroll {
                if let Some(chunk) = queue.pop() {
                    self.stats.late += u64::from(chunk.has_sound);
                    queue.recycle(chunk);
                }
                continue;
            }
            self.decode_next(queue);
            let begin = self.decoded_end - self.decoder.rate().span(self.decoded_frames());
            let skipped = self.decoder.rate().frames(at - begin);
            if skipped < self.decoded_frames() {
                self.taken = skipped.as_usize();
                return Some(Span::ZERO);
            }
            self.stats.late += u64::from(!is_over);
            self.decoded.clear();
        }
    }

    /// Fills `out` with content. Where it ends early, the rest is a short fade and silence.
    fn fill(&mut self, queue: &mut ChunkQueue, out: &mut [f32]) {
        let channels = self.channels();
        let mut filled = 0;
        while filled < out.len() {
            let progress =
                self.resampler.process(&self.decoded[self.taken * channels..], &mut out[filled..]);
            self.taken += progress.consumed.as_usize();
            filled += progress.produced.as_usize() * channels;
            if filled < out.len() && self.taken >= self.decoded_frames().as_usize() {
                let Some(next) = queue.front() else {
                    self.stats.underruns += 1;
                    break;
                };
                if (next.timestamp - self.decoded_end).abs() > MAX_JUMP {
                    self.stats.jumps += 1;
                    break;
                }
                self.decode_next(queue);
            }
        }
        let (sound, rest) = out.split_at_mut(filled);
        self.fade.apply(channels, sound);
        if let Some(frame) = sound.rchunks_exact(channels).next() {
            self.last_frame.copy_from_slice(frame);
        }
        if !rest.is_empty() {
            self.interrupt(rest);
        }
    }

    /// Ends the sound: from its last frame to silence.
    fn interrupt(&mut self, out: &mut [f32]) {
        let channels = self.channels();
        out.fill(0.0);
        if self.is_playing {
            for frame in out.chunks_exact_mut(channels).take(self.fade.length()) {
                frame.copy_from_slice(&self.last_frame);
            }
            let length = out.len().min(self.fade.length() * channels);
            fade_out(channels, &mut out[..length]);
        }
        self.is_playing = false;
        self.error = None;
    }

    /// Decodes the first chunk in place of what was decoded before; false if there is none.
    fn decode_next(&mut self, queue: &mut ChunkQueue) -> bool {
        let Some(chunk) = queue.pop() else { return false };
        let frames = self.decoder.decode(&chunk.payload, &mut self.decoded);
        self.stats.damaged += u64::from(frames == Frames::ZERO);
        self.stats.codec_panics = self.decoder.panics();
        self.taken = 0;
        self.decoded_end = chunk.timestamp + self.decoder.rate().span(frames);
        queue.recycle(chunk);
        true
    }

    fn decoded_frames(&self) -> Frames {
        Frames::from(self.decoded.len() / self.channels())
    }

    /// Server's time of the next frame that goes to the device.
    fn next_content(&self) -> Instant {
        let waiting = self.decoded_frames().as_usize() - self.taken;
        #[allow(clippy::cast_precision_loss, reason = "less than a second")]
        let frames = waiting as f64 + self.resampler.pending();
        #[allow(clippy::cast_possible_truncation, reason = "less than a second")]
        let nanos = (frames * 1e9 / f64::from(self.decoder.rate().hz())).round() as i64;
        self.decoded_end - Span::from_nanos(nanos)
    }
}

/// Content that is further from its time is moved there at once; below that, by the rate.
pub const MAX_ERROR: Span = Span::from_millis(5);

/// A larger difference between a timestamp and the end of the chunk before is an interruption.
const MAX_JUMP: Span = Span::from_millis(2);

/// What an Opus decoder needs before its output is exact (RFC 7845, section 4.6).
const PREROLL: Span = Span::from_millis(80);
