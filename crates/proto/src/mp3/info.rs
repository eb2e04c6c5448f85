//! The Info frame of a file of constant bit rate.

use super::crc16;
use crate::Patch;
use crate::packets::mpeg::Header;

/// An Info frame and its offset in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mp3Info {
    at: u64,
    frame: Vec<u8>,
    /// Offset of the tag in the frame.
    tag: usize,
    header: Header,
    delay: u16,
}

/// What an Info frame states of the frames behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the tag")]
pub struct Mp3Totals {
    /// Number of MP3 frames.
    pub frames: u32,
    /// Their length in bytes.
    pub bytes: u64,
    /// Frames of sound behind the end, the decoder's delay included; 12 bits.
    pub padding: u16,
    /// [`crc16`] of the frames.
    pub crc: u16,
}

impl Mp3Info {
    /// The Info frame of a file with this sample rate in Hz, 1 or 2 channels and bit rate in
    /// kbit/s, whose encoder has this delay in frames, at an offset in the file. `None` for what
    /// MP3 does not have.
    #[must_use]
    pub fn new(hz: u32, channels: usize, kbps: u32, delay: u16, at: u64) -> Option<Self> {
        // A frame of fewer bits has no room for the tag.
        let word = Header::layer_3(hz, channels == 1, kbps.max(MIN_KBPS))?;
        let header = Header::parse(word)?;
        let tag = header.tag_at();
        let mut frame = vec![0; header.bytes()];
        frame.get_mut(..4)?.copy_from_slice(&word);
        let fields = frame.get_mut(tag..tag + TAG)?;
        fields.get_mut(..8)?.copy_from_slice(b"Info\0\0\0\x0f");
        for (index, position) in fields.get_mut(TOC..TOC + 100)?.iter_mut().enumerate() {
            // At a constant bit rate, a hundredth of the time is a hundredth of the bytes.
            *position = (index * 256 / 100).to_le_bytes()[0];
        }
        let lame = fields.get_mut(LAME..)?;
        // Readers look for the name of a program that they know.
        lame.get_mut(..10)?.copy_from_slice(b"LAMEaulos\x01");
        *lame.get_mut(LAME_KBPS)? = kbps.min(255).to_le_bytes()[0];
        let mut info = Self { at, frame, tag, header, delay: delay.min(MAX_12_BITS) };
        info.set_totals(Mp3Totals::default());
        Some(info)
    }

    /// Reads the Info frame at the front of `bytes`, at this offset in the file. `None` if there is
    /// none of ours.
    pub(super) fn parse(bytes: &[u8], at: u64) -> Option<Self> {
        let header = Header::parse(*bytes.first_chunk()?)?;
        let frame = bytes.get(..header.bytes())?.to_vec();
        let tag = header.tag_at();
        let fields = frame.get(tag..tag + TAG)?;
        let known = fields.starts_with(b"Info\0\0\0\x0f") && header.is_layer_3();
        let lame = fields.get(LAME..)?;
        let (Some(&[a, b, _]), true) = (lame.get(DELAYS..).and_then(<[u8]>::first_chunk), known)
        else {
            return None;
        };
        let delay = u16::from(a) << 4 | u16::from(b >> 4);
        Some(Self { at, tag, header, delay, frame })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.frame
    }

    /// Delay of the encoder in frames.
    #[must_use]
    pub const fn delay(&self) -> u16 {
        self.delay
    }

    /// Frames of sound in an MP3 frame.
    #[must_use]
    pub const fn frame_length(&self) -> u32 {
        self.header.frames()
    }

    pub(super) const fn header(&self) -> &Header {
        &self.header
    }

    /// Sets what the frame states.
    pub fn set_totals(&mut self, totals: Mp3Totals) {
        let Mp3Totals { frames, bytes, padding, crc } = totals;
        let own = self.frame.len() as u64;
        let bytes = u32::try_from(bytes.saturating_add(own)).unwrap_or(u32::MAX);
        let delays = u32::from(self.delay) << 12 | u32::from(padding.min(MAX_12_BITS));
        let [_, delays @ ..] = delays.to_be_bytes();
        for (at, field) in [
            (FRAMES, &frames.to_be_bytes()[..]),
            (BYTES, &bytes.to_be_bytes()),
            (LAME + DELAYS, &delays),
            (LAME + LENGTH, &bytes.to_be_bytes()),
            (LAME + MUSIC_CRC, &crc.to_be_bytes()),
        ] {
            self.put(self.tag + at, field);
        }
        let end = self.tag + LAME + TAG_CRC;
        let crc = crc16(0, self.frame.get(..end).unwrap_or_default());
        self.put(end, &crc.to_be_bytes());
    }

    /// The patches that write the totals to the file.
    #[must_use]
    pub fn patches(&self) -> [Patch; 2] {
        let patch = |from: usize, length: usize| {
            let from = self.tag + from;
            let bytes = self.frame.get(from..from + length).unwrap_or_default();
            Patch::new(self.at + from as u64, bytes)
        };
        [patch(FRAMES, 8), patch(LAME, TAG - LAME)]
    }

    /// Whether a frame with this header can follow: it has the same bit rate, too.
    pub(super) fn is_of_frame(&self, header: &Header) -> bool {
        let own = self.header.bits_per_second() / 1_000;
        let kbps = match self.frame.get(self.tag + LAME + LAME_KBPS) {
            Some(kbps) if own == MIN_KBPS => u32::from(*kbps),
            _ => own,
        };
        self.header.is_like(header) && header.bits_per_second() == kbps * 1_000
    }

    /// Whether the checksum of the tag is right.
    pub(super) fn is_intact(&self) -> bool {
        let (tag, stated) = self.frame.split_at(self.tag + LAME + TAG_CRC);
        stated.starts_with(&crc16(0, tag).to_be_bytes())
    }

    /// What the frame states.
    pub(super) fn totals(&self) -> Option<Mp3Totals> {
        let field = |at: usize| self.frame.get(self.tag + at..);
        let word = |at: usize| field(at).and_then(<[u8]>::first_chunk).copied();
        let [_, middle, low] = field(LAME + DELAYS).and_then(<[u8]>::first_chunk).copied()?;
        let own = self.frame.len() as u64;
        Some(Mp3Totals {
            frames: word(FRAMES).map(u32::from_be_bytes)?,
            bytes: u64::from(word(BYTES).map(u32::from_be_bytes)?).saturating_sub(own),
            padding: u16::from(middle & 15) << 8 | u16::from(low),
            crc: field(LAME + MUSIC_CRC)
                .and_then(<[u8]>::first_chunk)
                .copied()
                .map(u16::from_be_bytes)?,
        })
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.frame.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

/// The least bit rate, in kbit/s, whose frames hold the tag at every sample rate.
const MIN_KBPS: u32 = 64;

/// Offsets in the tag, behind `Info` and the flags of its fields.
const FRAMES: usize = 8;
const BYTES: usize = 12;
const TOC: usize = 16;

/// The extension of LAME, and offsets in it.
const LAME: usize = 120;
const LAME_KBPS: usize = 20;
const DELAYS: usize = 21;
const LENGTH: usize = 28;
const MUSIC_CRC: usize = 32;
const TAG_CRC: usize = 34;

/// Length of the tag.
const TAG: usize = LAME + TAG_CRC + 2;

const MAX_12_BITS: u16 = 0xfff;
