//! Someone who writes sound into a FIFO: steadily, as fast as it plays, or with hiccups.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::signal::NoiseRng;

/// Writes PCM in pieces of 20 ms at the pace at which it plays.
#[derive(Debug)]
pub struct PacedWriter<W> {
    out: W,
    bytes_per_second: usize,
    stalls: Option<StallConfig>,
    /// When the first piece was due, and how many have been written since.
    begun: Option<Instant>,
    pieces: u32,
}

/// Now and then it does nothing for a while, and then writes all that is due.
#[derive(Debug)]
struct StallConfig {
    longest: Duration,
    noise: NoiseRng,
}

impl<W: Write> PacedWriter<W> {
    /// Always in time.
    pub const fn steady(out: W, bytes_per_second: usize) -> Self {
        Self { out, bytes_per_second, stalls: None, begun: None, pieces: 0 }
    }

    /// Delayed about twice a second by anything up to `longest`.
    pub const fn with_stalls(
        out: W,
        bytes_per_second: usize,
        longest: Duration,
        seed: u64,
    ) -> Self {
        let stalls = Some(StallConfig { longest, noise: NoiseRng(seed | 1) });
        Self { out, bytes_per_second, stalls, begun: None, pieces: 0 }
    }

    /// Writes it all, after what was written before; returns when the last piece is written.
    ///
    /// # Errors
    /// When the reader has gone.
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
