//! The demo programme that a new installation plays.
//!
//! The score is played note by note on a grid of pages ([`PAGE`] frames). Blocks are cut from the
//! pages, so the output does not depend on the block length. The first page follows the last while
//! notes and reverb decay, so the repeat has no audible seam.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "rates and page counts are far below 2^24"
)]

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate};

use super::reverb::EchoReverb;
use super::score::{
    ARPEGGIO, BASS, BASS_GUITAR, BELL, BRUSH, BRUSHES, Chord, HARP, KEYS, KICK, KICK_DRUM, PAD,
    Passage, SCORE, SHAKER, SHAKERS, STEPS, STRINGS, TEMPO,
};
use super::voice::{Instrument, PAGE, Page, Voice};
use crate::source::{Pacing, PullResult, Source};

/// A generated piece of music of about three minutes that repeats.
///
/// Stereo and deterministic: two of them at the same rate give the same samples. The true peak
/// stays below -1 dBFS; quiet and loud passages are more than 10 LU apart.
#[derive(Clone, Debug)]
pub struct Demo {
    rate: SampleRate,
    block: Frames,
    position: MediaTime,
    /// The next page of the programme, and the next step of the score.
    page: u64,
    step: usize,
    voices: [Option<Voice>; VOICES],
    reverb: EchoReverb,
    sound: [Page; 2],
    /// Frames of `sound` that have been output.
    frames_out: usize,
}

impl Demo {
    /// The programme from its beginning, in blocks of `block` frames (fewer if a block cannot hold
    /// them).
    ///
    /// Rates outside 32 to 192 kHz are not supported; the programme is then generated at 48 kHz,
    /// and the input behind it resamples as for every source.
    #[must_use]
    pub fn new(rate: SampleRate, block: Frames) -> Self {
        let rate = if RATES.contains(&rate.hz()) { rate } else { SampleRate::HZ_48000 };
        Self {
            rate,
            block,
            position: MediaTime::ZERO,
            page: 0,
            step: 0,
            voices: [None; VOICES],
            reverb: EchoReverb::new(rate.hz() as f32, 3.0 * 15.0 / TEMPO as f32),
            sound: [[0.0; PAGE]; 2],
            frames_out: PAGE,
        }
    }

    /// Length of the programme before it repeats.
    #[must_use]
    pub fn length(&self) -> Frames {
        Frames(self.page_of(total_steps()) * PAGE as u64)
    }

    /// The page on which a step of the score begins: integers, so that no rounding adds up.
    fn page_of(&self, step: usize) -> u64 {
        step as u64 * u64::from(self.rate.hz()) * 15 / (TEMPO * PAGE as u64)
    }

    fn pages_per_second(&self) -> f32 {
        self.rate.hz() as f32 / PAGE as f32
    }

    fn next_page(&mut self) {
        if self.page == self.page_of(total_steps()) {
            (self.page, self.step) = (0, 0);
        }
        if self.page == self.page_of(self.step) {
            self.play_step();
            self.step += 1;
        }
        self.page += 1;
        self.render();
        self.frames_out = 0;
    }

    fn render(&mut self) {
        let [left, right] = &mut self.sound;
        left.fill(0.0);
        right.fill(0.0);
        let (mut echo, mut reverb) = ([0.0; PAGE], [[0.0; PAGE]; 2]);
        let mut note = [0.0; PAGE];
        for slot in &mut self.voices {
            let Some(voice) = slot else { continue };
            let alive = voice.render(&mut note);
            let (l, r, instrument) = (voice.left, voice.right, voice.instrument);
            let (wet, repeated) = (instrument.reverb, instrument.echo * (l + r));
            for i in 0..PAGE {
                let (to_left, to_right) = (l * note[i], r * note[i]);
                left[i] += to_left;
                right[i] += to_right;
                reverb[0][i] += wet * to_left;
                reverb[1][i] += wet * to_right;
            }
            if repeated > 0.0 {
                for i in 0..PAGE {
                    echo[i] += repeated * note[i];
                }
            }
            if !alive {
                *slot = None;
            }
        }
        self.reverb.process(&echo, &reverb, left, right);
        for sample in left.iter_mut().chain(right) {
            *sample *= LEVEL;
        }
    }

    /// Starts the notes of this step.
    fn play_step(&mut self) {
        let (passage, bar) = passage_at(self.step / STEPS);
        let sixteenth = self.step % STEPS;
        let along = bar as f32 + sixteenth as f32 / STEPS as f32;
        let (first, last) = passage.strength;
        let strength = first + (last - first) * along / passage.bars as f32;
        let chord = &passage.chords[bar];
        if sixteenth == 0 {
            self.play_chord(chord, strength * passage.parts.pad);
        }
        if sixteenth.is_multiple_of(2) {
            self.play_eighth(passage, bar, sixteenth / 2, strength);
        }
        let bass = BASS[sixteenth] * strength * passage.parts.bass;
        self.play(BASS_GUITAR, chord.bass, bass, 0.0, 3);
        let drums = strength * passage.parts.drums;
        self.play(KICK_DRUM, 33, KICK[sixteenth] * drums, 0.0, 4);
        self.play(BRUSHES, 60, BRUSH[sixteenth] * drums, -0.15, 3);
        let side = if sixteenth.is_multiple_of(4) { 0.35 } else { 0.5 };
        self.play(SHAKERS, 72, SHAKER[sixteenth] * drums, side, 2);
    }

    fn play_chord(&mut self, chord: &Chord, strength: f32) {
        for (note, pan) in chord.notes.iter().zip([-0.75, 0.6, -0.35, 0.8]) {
            self.play(PAD, *note, strength, pan, STEPS);
        }
        self.play(PAD, chord.bass + 12, strength * 0.8, 0.0, STEPS);
    }

    fn play_eighth(&mut self, passage: &Passage, bar: usize, eighth: usize, strength: f32) {
        let parts = &passage.parts;
        let accent = if eighth.is_multiple_of(4) { 1.0 } else { 0.82 };
        let note = passage.melody[bar][eighth];
        if note > 0 {
            let held =
                1 + passage.melody[bar][eighth + 1..].iter().take_while(|n| **n == 0).count();
            self.play(KEYS, note, strength * accent * parts.melody, 0.1, 2 * held);
            self.play(STRINGS, note - 12, strength * parts.strings, 0.25, 2 * held);
            self.play(BELL, note, strength * accent * parts.bell, 0.3, 4 * held);
        }
        let chord = &passage.chords[bar];
        let pan = if eighth.is_multiple_of(2) { -0.7 } else { 0.7 };
        let arpeggio = strength * accent * parts.arpeggio;
        self.play(HARP, chord.notes[ARPEGGIO[eighth]] + 12, arpeggio, pan, 2);
    }

    /// Starts a note that is held for some sixteenths. If every voice is in use the note is
    /// dropped; the score never lets that happen.
    fn play(&mut self, instrument: Instrument, note: u8, strength: f32, pan: f32, held: usize) {
        if strength <= 0.0 {
            return;
        }
        let hz = 440.0 * ((f32::from(note) - 69.0) / 12.0).exp2();
        let gate = self.page_of(held) as u32;
        let pages = self.pages_per_second();
        if let Some(free) = self.voices.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(Voice::new(instrument, hz, strength, pan, gate, pages));
        }
    }
}

impl Source for Demo {
    /// Always returns a block.
    ///
    /// # Real-time
    /// Does not allocate, wait or call the system.
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        into.reset(self.rate, ChannelLayout::STEREO);
        into.pts = self.position;
        into.received = Instant::ZERO;
        self.position += into.resize(self.block);
        let mut rest = into.samples_mut();
        while !rest.is_empty() {
            if self.frames_out == PAGE {
                self.next_page();
            }
            let frames = (rest.len() / 2).min(PAGE - self.frames_out);
            let (head, tail) = rest.split_at_mut(2 * frames);
            let [left, right] = &self.sound;
            for (i, frame) in head.chunks_exact_mut(2).enumerate() {
                frame[0] = left[self.frames_out + i];
                frame[1] = right[self.frames_out + i];
            }
            self.frames_out += frames;
            rest = tail;
        }
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

/// The passage that contains a bar of the programme, and the bar inside it.
fn passage_at(bar: usize) -> (&'static Passage, usize) {
    let mut bar = bar;
    for passage in &SCORE {
        if bar < passage.bars {
            return (passage, bar);
        }
        bar -= passage.bars;
    }
    (&SCORE[0], 0)
}

fn total_steps() -> usize {
    STEPS * SCORE.iter().map(|passage| passage.bars).sum::<usize>()
}

/// Rates at which the highest partials fit and a delay line holds more than a page.
const RATES: core::ops::RangeInclusive<u32> = 32_000..=192_000;

/// Maximum polyphony; the loud passages use two thirds.
const VOICES: usize = 56;

/// The whole mix, set so that the loudest passage peaks at -2 dBFS.
const LEVEL: f32 = 0.7;

#[cfg(test)]
mod tests;
