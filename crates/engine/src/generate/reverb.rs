//! Echo that crosses the panorama, and reverb.
//!
//! The reverb is a feedback delay network of four lines and an orthogonal matrix (Jot and Chaigne,
//! "Digital delay networks for designing artificial reverberators", 1991). Lines are longer than a
//! page, so a whole page can be read, mixed and written back.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "delays are rounded to frames"
)]

use super::voice::{PAGE, Page};

/// Echo and reverb with fixed delays.
#[derive(Clone, Debug)]
pub(super) struct EchoReverb {
    echoes: [DelayLine; 2],
    lines: [DelayLine; 4],
    /// The last output of each line, for its damping.
    last: [f32; 4],
}

impl EchoReverb {
    /// A reverb at `rate` frames per second whose echo comes after `echo` seconds.
    pub(super) fn new(rate: f32, echo: f32) -> Self {
        let line = |seconds: f32| DelayLine::new((seconds * rate).round() as usize);
        Self {
            echoes: [line(echo), line(echo)],
            lines: [line(0.031_7), line(0.038_9), line(0.045_1), line(0.053_9)],
            last: [0.0; 4],
        }
    }

    /// Adds echo and reverb of the pages sent to it to `left` and `right`.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(super) fn process(
        &mut self,
        echo: &Page,
        reverb: &[Page; 2],
        left: &mut Page,
        right: &mut Page,
    ) {
        let [near, far] = [self.echoes[0].read(), self.echoes[1].read()];
        let mut crossing = [0.0; PAGE];
        for i in 0..PAGE {
            crossing[i] = echo[i] + ECHO_FEEDBACK * far[i];
            left[i] += near[i];
            right[i] += far[i];
        }
        self.echoes[0].write(&crossing);
        self.echoes[1].write(&near.map(|sample| sample * ECHO_FEEDBACK));
        self.reverberate(reverb, &near, &far, left, right);
    }

    fn reverberate(
        &mut self,
        input: &[Page; 2],
        near: &Page,
        far: &Page,
        left: &mut Page,
        right: &mut Page,
    ) {
        let mut pages = [[0.0; PAGE]; 4];
        for ((page, line), last) in pages.iter_mut().zip(&self.lines).zip(&mut self.last) {
            let fresh = line.read();
            page[0] = (1.0 - DAMPING) * fresh[0] + DAMPING * *last;
            for i in 1..PAGE {
                page[i] = (1.0 - DAMPING) * fresh[i] + DAMPING * fresh[i - 1];
            }
            *last = fresh[PAGE - 1];
        }
        let [a, b, c, d] = &mut pages;
        for i in 0..PAGE {
            left[i] += a[i] + c[i];
            right[i] += b[i] + d[i];
            let to_left = input[0][i] + ECHO_TO_REVERB * near[i] + SILENCE_THRESHOLD;
            let to_right = input[1][i] + ECHO_TO_REVERB * far[i] + SILENCE_THRESHOLD;
            let (ab, ab_, cd, cd_) = (a[i] + b[i], a[i] - b[i], c[i] + d[i], c[i] - d[i]);
            a[i] = REVERB_FEEDBACK * (ab + cd) + to_left;
            b[i] = REVERB_FEEDBACK * (ab_ + cd_) + to_right;
            c[i] = REVERB_FEEDBACK * (ab - cd) - to_left;
            d[i] = REVERB_FEEDBACK * (ab_ - cd_) - to_right;
        }
        for (page, line) in pages.iter().zip(&mut self.lines) {
            line.write(page);
        }
    }
}

/// A delay line that is read a page before it is overwritten.
#[derive(Clone, Debug)]
struct DelayLine {
    ring: Vec<f32>,
    at: usize,
}

impl DelayLine {
    fn new(frames: usize) -> Self {
        Self { ring: vec![0.0; frames.max(PAGE)], at: 0 }
    }

    fn read(&self) -> Page {
        let mut page = [0.0; PAGE];
        let head = PAGE.min(self.ring.len() - self.at);
        page[..head].copy_from_slice(&self.ring[self.at..self.at + head]);
        page[head..].copy_from_slice(&self.ring[..PAGE - head]);
        page
    }

    fn write(&mut self, page: &Page) {
        let head = PAGE.min(self.ring.len() - self.at);
        self.ring[self.at..self.at + head].copy_from_slice(&page[..head]);
        self.ring[..PAGE - head].copy_from_slice(&page[head..]);
        self.at = (self.at + PAGE) % self.ring.len();
    }
}

const ECHO_FEEDBACK: f32 = 0.42;
const ECHO_TO_REVERB: f32 = 0.3;

/// Half is a lossless matrix; this much below it gives 1.7 s to fall by 60 dB.
const REVERB_FEEDBACK: f32 = 0.5 * 0.845;

/// Share of the neighbouring sample per round: treble decays first.
const DAMPING: f32 = 0.32;

/// Far below the resolution of 24 bits, and far above denormal numbers, which slow a processor
/// down.
const SILENCE_THRESHOLD: f32 = 1e-15;
