//! A writer of audio into a FIFO, in real time, optionally with stalls.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::signal::NoiseRng;

/// Writes PCM in pieces of 20 ms in real time.
#[derive(Debug)]
pub struct PacedWriter<W> {
    out: W,
    bytes_per_second: usize,
    stalls: Option<StallConfig>,
    /// Due time of the first piece, and the number of pieces written since.
    begun: Option<Instant>,
    pieces: u32,
}

/// Stalls now and then, and then writes everything that is due.
#[derive(Debug)]
struct StallConfig {
    longest: Duration,
    noise: NoiseRng,
}

impl<W: Write> PacedWriter<W> {
    /// Without stalls.
    pub const fn steady(out: W, bytes_per_second: usize) -> Self {
        Self { out, bytes_per_second, stalls: None, begun: None, pieces: 0 }
    }

    /// Stalls about twice a second for up to `longest`.
    pub const fn with_stalls(
        out: W,
        bytes_per_second: usize,
        longest: Duration,
        seed: u64,
    ) -> Self {
        let stalls = Some(StallConfig { longest, noise: NoiseRng(seed | 1) });
        Self { out, bytes_per_second, stalls, begun: None, pieces: 0 }
    }

    /// Writes all of `sound`, following the previous data; returns when the last piece is written.
    ///
    /// # Errors
    /// If the reader is gone.
    pub fn write(&mut self, sound: &[u8]) -> io::Result<()> {
        let piece = (self.bytes_per_second / 50).max(1);
        let begun = *self.begun.get_or_insert_with(Instant::now);
        for bytes in sound.chunks(piece) {
            let due = begun + self.pieces * Duration::from_millis(20);
            self.pieces += 1;
            std::thread::sleep(due.saturating_duration_since(Instant::now()) + self.delay());
            self.out.write_all(bytes)?;
        }
        Ok(())
    }

    fn delay(&mut self) -> Duration {
        let Some(hiccup) = &mut self.stalls else { return Duration::ZERO };
        if !hiccup.noise.next_u64().is_multiple_of(25) {
            return Duration::ZERO;
        }
        hiccup.longest.mul_f64(hiccup.noise.sample().abs())
    }
}
