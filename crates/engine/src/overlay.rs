//! A copy of a station's output with announcements and plays of its own, for some of the station's clients.
//!
//! The overlay starts from the station's finished block, so its latency is that of the station's
//! own rendition, and its chunks carry the same timestamps: a client can change from one to the
//! other between two chunks. A limiter after the mix would delay the programme; therefore each
//! announcement is limited before the mix, to the share of the ceiling that the ducked programme
//! leaves. Without an announcement the samples are those of the station, bit by bit.

use aulos_core::{Block, Frames, Instant, MediaTime};

use crate::announce::{Announcement, LayerMixer, MixerReport};
use crate::rendition::Rendition;
use crate::status::StationStatus;

/// Maximum number of overlays on one station.
pub const MAX_OVERLAYS: usize = 8;

/// A station's output with announcements of its own, and its encodings.
#[derive(Debug)]
pub struct Overlay {
    mixer: LayerMixer,
    block: Block,
    renditions: Vec<Rendition>,
}

impl Overlay {
    /// An overlay of blocks of `quantum` frames that `rendition` encodes.
    #[must_use]
    pub fn new(rendition: Rendition, quantum: Frames) -> Self {
        let spec = rendition.spec();
        let samples = quantum.as_usize() * spec.layout.channels();
        Self {
            mixer: LayerMixer::new(spec.rate),
            block: Block::with_capacity(spec.rate, spec.layout, samples),
            renditions: vec![rendition],
        }
    }

    /// The same with a further encoding, of the same rate and layout: another channel map.
    #[must_use]
    pub fn with_rendition(mut self, rendition: Rendition) -> Self {
        self.renditions.push(rendition);
        self
    }

    pub(crate) fn play(
        &mut self,
        announcement: Box<Announcement>,
        report: &mut impl FnMut(MixerReport),
    ) {
        self.mixer.play(announcement, report);
    }

    pub(crate) fn cancel(&mut self, id: u64, report: &mut impl FnMut(MixerReport)) {
        self.mixer.cancel(id, report);
    }

    /// Ends every announcement at once, because the overlay is removed.
    pub(crate) fn end_all(&mut self, report: &mut impl FnMut(MixerReport)) {
        self.mixer.end_all(report);
    }

    /// Mixes the announcements over `block`, the station's output, and sends the sum.
    ///
    /// # Real-time
    /// As [`Rendition::send`].
    pub(crate) fn send(
        &mut self,
        block: &Block,
        now: Instant,
        times: (MediaTime, Instant),
        status: &mut StationStatus,
        report: &mut impl FnMut(MixerReport),
    ) {
        let block = if self.mixer.is_transparent() {
            block
        } else {
            self.block.reset(block.rate(), block.layout());
            self.block.resize(block.frames());
            self.block.pts = block.pts;
            let samples = self.block.samples_mut();
            samples.copy_from_slice(block.samples());
            self.mixer.mix(now, samples, block.layout().channels(), report);
            &self.block
        };
        for rendition in &mut self.renditions {
            rendition.send(block, now, times, status);
        }
    }
}
