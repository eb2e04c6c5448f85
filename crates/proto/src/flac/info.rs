//! STREAMINFO block (RFC 9639, section 8.2).

use aulos_core::SampleRate;

use super::header::FrameHeader;

/// STREAMINFO: rate, channels and bits per sample; in a complete file also its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    bytes: [u8; INFO_LEN],
    pub(super) hz: u32,
    pub(super) channels: u8,
    pub(super) bits: u8,
}

impl StreamInfo {
    /// Parses the block without its four-byte header; `None` when it is too short or has an invalid
    /// rate.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = *bytes.first_chunk::<INFO_LEN>()?;
        let [_, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = bytes;
        let hz = u32::from(a) << 12 | u32::from(b) << 4 | u32::from(c >> 4);
        let info =
            Self { bytes, hz, channels: (c >> 1 & 7) + 1, bits: ((c & 1) << 4 | d >> 4) + 1 };
        SampleRate::new(hz).is_ok().then_some(info)
    }

    /// Generates a block from a frame header, for a stream that was joined after its STREAMINFO.
    pub(crate) fn from_frame_header(header: &FrameHeader) -> Option<Self> {
        let (hz, bits) = (header.hz?, header.bits?);
        SampleRate::new(hz).ok()?;
        let channels = header.channels - 1;
        let packed = u64::from(hz) << 44 | u64::from(channels) << 41 | u64::from(bits - 1) << 36;
        // Arbitrary block sizes.
        let sizes = [0, 16, 0xff, 0xff, 0, 0, 0, 0, 0, 0];
        let mut bytes = [0; INFO_LEN];
        for (to, from) in bytes.iter_mut().zip(sizes.into_iter().chain(packed.to_be_bytes())) {
            *to = from;
        }
        Some(Self { bytes, hz, channels: header.channels, bits })
    }

    /// Whether the header fits the stream: `None` stands for the value in STREAMINFO.
    pub(crate) fn fits(&self, header: &FrameHeader) -> bool {
        self.channels == header.channels
            && header.hz.is_none_or(|hz| hz == self.hz)
            && header.bits.is_none_or(|bits| bits == self.bits)
    }

    /// Sets the number of frames, and the sizes of the smallest and the largest FLAC frame in
    /// bytes; 0 means unknown. Values that exceed their field are set to unknown.
    pub fn set_totals(&mut self, frames: u64, smallest: u32, largest: u32) {
        let [_, s0, s1, s2] = if smallest >> 24 == 0 { smallest } else { 0 }.to_be_bytes();
        let [_, l0, l1, l2] = if largest >> 24 == 0 { largest } else { 0 }.to_be_bytes();
        let [.., f0, f1, f2, f3, f4] = if frames >> 36 == 0 { frames } else { 0 }.to_be_bytes();
        let bits = self.bytes[field::FRAMES] & 0xf0;
        self.bytes[field::SIZES..field::SIZES + 6].copy_from_slice(&[s0, s1, s2, l0, l1, l2]);
        self.bytes[field::FRAMES..field::FRAMES + 5].copy_from_slice(&[bits | f0, f1, f2, f3, f4]);
    }

    /// Sets the MD5 sum of the samples, as little-endian, interleaved integers of whole bytes;
    /// zeros mean unknown.
    pub fn set_md5(&mut self, sum: [u8; 16]) {
        self.bytes[field::MD5..].copy_from_slice(&sum);
    }

    /// MD5 sum of the samples; `None` when unknown.
    #[must_use]
    pub fn md5(&self) -> Option<[u8; 16]> {
        self.bytes.last_chunk().copied().filter(|sum| *sum != [0; 16])
    }

    /// Number of frames; 0 when unknown.
    #[must_use]
    pub fn frames(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, e, ..] = self.bytes;
        u64::from_be_bytes([0, 0, 0, a & 0x0f, b, c, d, e])
    }

    /// Block size of all blocks but the last one, when it is fixed.
    #[must_use]
    pub fn block_size(&self) -> Option<u16> {
        let [a, b, c, d, ..] = self.bytes;
        ([a, b] == [c, d]).then_some(u16::from_be_bytes([a, b]))
    }

    /// Sample rate in Hz.
    #[must_use]
    pub const fn hz(&self) -> u32 {
        self.hz
    }

    /// Number of channels, 1 to 8.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels as usize
    }

    /// Bits per sample.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// The encoded block.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; INFO_LEN] {
        &self.bytes
    }
}

mod field {
    pub(super) const SIZES: usize = 4;
    /// Its first byte also contains the lowest bits of the bits per sample.
    pub(super) const FRAMES: usize = 13;
    /// The last 16 bytes.
    pub(super) const MD5: usize = 18;
}

/// Length of STREAMINFO in bytes.
pub(super) const INFO_LEN: usize = 34;
