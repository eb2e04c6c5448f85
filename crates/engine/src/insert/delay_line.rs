//! Samples by their position in the programme.

use aulos_core::{Frames, MediaTime};

/// The last frames of a programme, found by their position.
#[derive(Debug)]
pub(super) struct DelayLine {
    /// Interleaved; position `p` is at frame `p` modulo the capacity.
    samples: Box<[f32]>,
    channels: usize,
}

impl DelayLine {
    /// A line of silence, not empty.
    pub(super) fn new(capacity: Frames, channels: usize) -> Self {
        let samples = capacity.as_usize().max(1) * channels;
        Self { samples: vec![0.0; samples].into(), channels }
    }

    /// The number of frames that it keeps.
    pub(super) fn capacity(&self) -> Frames {
        Frames::from(self.samples.len() / self.channels)
    }

    /// Writes frames from a position on. Of more frames than it keeps, only the last ones matter.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(super) fn write(&mut self, position: MediaTime, mut samples: &[f32]) {
        let mut at = self.index(position);
        while !samples.is_empty() {
            let (piece, rest) = samples.split_at(samples.len().min(self.samples.len() - at));
            self.samples[at..at + piece.len()].copy_from_slice(piece);
            (samples, at) = (rest, 0);
        }
    }

    /// Reads frames from a position on.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(super) fn read(&self, position: MediaTime, mut out: &mut [f32]) {
        let mut at = self.index(position);
        while !out.is_empty() {
            let length = out.len().min(self.samples.len() - at);
            let (piece, rest) = out.split_at_mut(length);
            piece.copy_from_slice(&self.samples[at..at + length]);
            (out, at) = (rest, 0);
        }
    }

    fn index(&self, position: MediaTime) -> usize {
        Frames(position.0 % self.capacity().0).as_usize() * self.channels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_at_its_position() {
        let mut line = DelayLine::new(Frames(5), 2);
        for position in 0..40 {
            let value = f32::from(u8::try_from(position).unwrap());
            line.write(MediaTime(position), &[value, -value]);
            let mut out = [0.0; 6];
            line.read(MediaTime(position.saturating_sub(2)), &mut out);
            let expected: Vec<f32> = (position.saturating_sub(2)..)
                .take(3)
                .map(|at| f32::from(u8::try_from(at).unwrap()))
                .flat_map(|value| [value, -value])
                .collect();
            if position >= 2 {
                assert_eq!(out[..], expected[..]);
            }
        }
        line.write(MediaTime(3), &[1.0; 24]);
        let mut out = [0.0; 10];
        line.read(MediaTime(0), &mut out);
        assert_eq!(out[..], [1.0; 10][..]);
    }
}
