//! AAC in LATM (ISO/IEC 14496-3, 1.7.3): multiplex elements with LOAS headers, of one programme
//! with one layer, as broadcasters send it.

use super::super::audio_config::{AudioConfig, BitReader};
use super::super::input_buffer::InputBuffer;
use super::super::{PacketPlacement, SplitterEvent};
use super::unit_times::Unit;

/// Reader of multiplex elements.
#[derive(Debug, Default)]
pub(super) struct LatmReader {
    input: InputBuffer,
    config: Option<MuxConfig>,
    /// The config has changed, which is to be reported.
    changed: bool,
    /// Access units of the last element that were not given out, and its position.
    units: std::collections::VecDeque<Vec<u8>>,
    at: u64,
}

/// What a multiplex element says about those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MuxConfig {
    /// Access units in an element, minus one.
    sub_frames: u8,
    audio: AudioConfig,
}

impl LatmReader {
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        self.input.push(bytes)
    }

    pub(super) fn discontinue(&mut self) {
        self.input.clear();
    }

    pub(super) fn next(&mut self, packet: &mut Vec<u8>) -> Option<Unit> {
        loop {
            if core::mem::take(&mut self.changed)
                && let Some(start) = self.config.and_then(|config| config.audio.start())
            {
                return Some((SplitterEvent::Begin(Box::new(start)), self.at));
            }
            if let Some(unit) = self.units.pop_front() {
                *packet = unit;
                return Some((SplitterEvent::Packet(PacketPlacement::default()), self.at));
            }
            let bytes = self.input.bytes();
            let begins = |pair: &[u8]| matches!(pair, [0x56, high] if high & 0xe0 == 0xe0);
            let at =
                bytes.windows(2).position(begins).unwrap_or_else(|| bytes.len().saturating_sub(1));
            self.input.skip(at as u64);
            let bytes = self.input.bytes();
            let [_, high, low] = *bytes.first_chunk()?;
            let length = 3 + (usize::from(high & 0x1f) << 8 | usize::from(low));
            let element = bytes.get(3..length)?;
            let before = self.config;
            let units = read_element(&mut BitReader::new(element), &mut self.config);
            self.changed |= self.config != before;
            // What is no element was a synchronization word by chance.
            let taken = if units.is_some() { length } else { 2 };
            self.units.extend(units.into_iter().flatten());
            self.at = self.input.position();
            self.input.skip(taken as u64);
        }
    }
}

/// The access units of a multiplex element; `None` when it is damaged, of an unsupported kind, or
/// before the first config.
fn read_element(bits: &mut BitReader<'_>, config: &mut Option<MuxConfig>) -> Option<Vec<Vec<u8>>> {
    let same = bits.flag()?;
    if !same {
        *config = Some(MuxConfig::read(bits)?);
    }
    let sub_frames = config.as_ref()?.sub_frames;
    let mut units = Vec::new();
    for _ in 0..=sub_frames {
        let mut length = 0;
        loop {
            let term = bits.number(8)?;
            length += term as usize;
            if term != 255 {
                break;
            }
        }
        let unit: Option<Vec<u8>> =
            (0..length).map(|_| bits.number(8).and_then(|byte| u8::try_from(byte).ok())).collect();
        units.push(unit?);
    }
    Some(units)
}

impl MuxConfig {
    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        let version = bits.flag()?;
        if version {
            // Version 1A is reserved.
            (!bits.flag()?).then_some(())?;
            value(bits)?;
        }
        // All streams have the same framing.
        bits.flag()?.then_some(())?;
        let sub_frames = u8::try_from(bits.number(6)?).ok()?;
        let (programmes, layers) = (bits.number(4)?, bits.number(3)?);
        (programmes == 0 && layers == 0).then_some(())?;
        let audio = if version {
            let length = value(bits)? as usize;
            let begin = bits.position();
            let audio = AudioConfig::read(bits)?;
            bits.seek(begin.checked_add(length)?);
            audio
        } else {
            AudioConfig::read(bits)?
        };
        // Units of any length.
        (bits.number(3)? == 0).then_some(())?;
        bits.number(8)?;
        if bits.flag()? {
            if version {
                value(bits)?;
            } else {
                while bits.number(9)? & 0x100 != 0 {}
            }
        }
        if bits.flag()? {
            bits.number(8)?;
        }
        Some(Self { sub_frames, audio })
    }
}

/// A number of one to four bytes (`LatmGetValue`).
fn value(bits: &mut BitReader<'_>) -> Option<u32> {
    let bytes = bits.number(2)? as usize;
    bits.number(8 * (bytes + 1))
}
