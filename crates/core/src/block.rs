//! A block of PCM frames in the working format.

use crate::{ChannelLayout, Frames, Instant, MediaTime, SampleRate};

/// A run of frames in the working format (interleaved `f32`) with a media time.
///
/// A block has one owner and is mutable, so processing stages work on it in place. Its memory is
/// allocated once, by [`Block::with_capacity`]; no other method allocates, so blocks can be pooled
/// and passed through real-time threads.
#[derive(Clone, Debug)]
pub struct Block {
    /// Media time of the first frame, on the clock of the block's producer.
    pub pts: MediaTime,
    /// Local time at which the last byte of the block arrived; [`Instant::ZERO`] for generated
    /// audio.
    pub received: Instant,
    rate: SampleRate,
    layout: ChannelLayout,
    samples: Vec<f32>,
    capacity: usize,
}

impl Block {
    /// Creates an empty block with room for `samples` samples (frames times channels).
    #[must_use]
    pub fn with_capacity(rate: SampleRate, layout: ChannelLayout, samples: usize) -> Self {
        Self {
            pts: MediaTime::ZERO,
            received: Instant::ZERO,
            rate,
            layout,
            samples: Vec::with_capacity(samples),
            capacity: samples,
        }
    }

    /// Empties the block and sets its rate and layout. The capacity in samples stays.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn reset(&mut self, rate: SampleRate, layout: ChannelLayout) {
        self.rate = rate;
        self.layout = layout;
        self.samples.clear();
    }

    /// Resizes the block to `frames` frames: truncates it or appends silence.
    ///
    /// Returns the resulting number of frames, which is less than `frames` if the capacity does not
    /// suffice.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn resize(&mut self, frames: Frames) -> Frames {
        let fitting = frames.min(self.capacity());
        self.samples.resize(fitting.as_usize() * self.layout.channels(), 0.0);
        fitting
    }

    /// The interleaved samples, mutable.
    pub fn samples_mut(&mut self) -> &mut [f32] {
        &mut self.samples
    }

    /// The interleaved samples, frame by frame; full scale is +-1.0.
    #[must_use]
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    /// Number of frames in the block.
    #[must_use]
    pub fn frames(&self) -> Frames {
        Frames::from(self.samples.len() / self.layout.channels())
    }

    /// Number of frames that fit without allocation.
    #[must_use]
    pub fn capacity(&self) -> Frames {
        Frames::from(self.capacity / self.layout.channels())
    }

    /// Sample rate in frames per second.
    #[must_use]
    pub const fn rate(&self) -> SampleRate {
        self.rate
    }

    /// Channel layout of a frame.
    #[must_use]
    pub const fn layout(&self) -> ChannelLayout {
        self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_never_grows_beyond_its_capacity() {
        let mut block = Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, 100);
        assert_eq!(block.resize(Frames(80)), Frames(50));
        assert_eq!(block.samples().len(), 100);
        block.reset(SampleRate::HZ_44100, ChannelLayout::MONO);
        assert_eq!(block.frames(), Frames::ZERO);
        assert_eq!(block.resize(Frames(80)), Frames(80));
    }
}
