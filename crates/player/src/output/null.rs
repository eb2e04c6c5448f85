//! A device without sound.

use aulos_core::{Frames, Instant, SampleSpec};
use aulos_session::player::DevicePosition;

use super::card::{CardConfig, VirtualCard};
use super::device::{Output, OutputError};

/// A card without sound.
#[derive(Debug)]
pub(super) struct NullOutput {
    config: CardConfig,
    card: Option<VirtualCard>,
    channels: usize,
}

impl NullOutput {
    pub(super) const fn new(config: CardConfig) -> Self {
        Self { config, card: None, channels: 1 }
    }
}

impl Output for NullOutput {
    fn open(&mut self, spec: SampleSpec, now: Instant) -> Result<(), OutputError> {
        self.channels = spec.layout.channels();
        self.card = Some(VirtualCard::new(self.config, spec.rate, now));
        Ok(())
    }

    fn writable_frames(&mut self, now: Instant) -> Frames {
        self.card.as_mut().map_or(Frames::ZERO, |card| card.writable_frames(now))
    }

    fn period(&self) -> Frames {
        self.card.as_ref().map_or(Frames::ZERO, VirtualCard::period)
    }

    fn write(&mut self, samples: &[f32]) -> Result<(), OutputError> {
        if let Some(card) = &mut self.card {
            card.wrote(Frames::from(samples.len() / self.channels));
        }
        Ok(())
    }

    fn position(&self, now: Instant) -> DevicePosition {
        let closed = DevicePosition { played: Frames::ZERO, at: now };
        self.card.as_ref().map_or(closed, |card| card.position(now))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.card.as_ref().map(VirtualCard::next_room)
    }

    fn close(&mut self) -> Result<(), OutputError> {
        self.card = None;
        Ok(())
    }
}
