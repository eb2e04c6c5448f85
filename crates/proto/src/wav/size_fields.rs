//! The header of a WAVE file that grows, and its size fields, which are patched repeatedly.
//!
//! The file begins as RIFF with a placeholder chunk, so that every reader can read it, and becomes
//! RF64 in place when 32 bits cannot hold its length (EBU Tech 3306, section 3.5).

use core::fmt;

use aulos_core::{SampleFormat, SampleSpec};

use super::stream_header::{UnsupportedWavFormat, format_tag};
use super::{BroadcastExtension, SUB_FORMAT_TAIL, TAG_EXTENSIBLE, WaveInfo};
use crate::Patch;

/// Contents of a file's header.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "every field is needed")]
pub struct WavFileHeader<'a> {
    /// Rate, channels and sample format.
    pub spec: SampleSpec,
    /// Loudspeaker of each channel, one bit each in the order of WAVE. Not written if the number of
    /// bits differs from the number of channels.
    pub channel_mask: Option<u32>,
    /// Whether space for 64-bit sizes is reserved. Without it a file ends at 4 GiB.
    pub reserve_ds64: bool,
    /// Origin of the recording.
    pub broadcast: Option<BroadcastExtension<'a>>,
}

impl WavFileHeader<'_> {
    /// Offset of the `bext` chunk from the start of the file, in bytes.
    #[must_use]
    pub fn broadcast_offset(&self) -> Option<u64> {
        let reserved = if self.reserve_ds64 { u64::from(8 + DS64_BYTES) } else { 0 };
        self.broadcast.as_ref().map(|_| RIFF_HEADER_BYTES + reserved)
    }
}

/// The size fields in the header of a file, and the patches that enlarge them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeFields {
    data_offset: u64,
    frame_bytes: u64,
    has_ds64_space: bool,
    max_riff_size: u64,
}

impl SizeFields {
    /// Appends the header of a new file to `out`. Both sizes mean "read until the end".
    ///
    /// More than two channels or 16 bits need the extensible form (Microsoft, "Multiple channel
    /// audio data and WAVE files"). No patch of a size field crosses the boundary of a sector.
    ///
    /// # Errors
    /// [`UnsupportedWavFormat`] for [`SampleFormat::S8`] and [`SampleFormat::S24In32Le`].
    pub fn emit_header(
        header: &WavFileHeader<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedWavFormat> {
        let SampleSpec { rate, layout, format } = header.spec;
        let tag = format_tag(format)?;
        let channels = u16::try_from(layout.channels()).unwrap_or(u16::MAX);
        let frame_bytes = u16::try_from(header.spec.frame_bytes()).unwrap_or(u16::MAX);
        let extensible = channels > 2 || !matches!(format, SampleFormat::S16Le | SampleFormat::U8);
        let file_start = out.len();
        out.extend_from_slice(b"RIFF\xff\xff\xff\xffWAVE");
        if header.reserve_ds64 {
            out.extend_from_slice(b"JUNK");
            out.extend_from_slice(&DS64_BYTES.to_le_bytes());
            out.extend_from_slice(&[0; DS64_BYTES as usize]);
        }
        if let Some(broadcast) = &header.broadcast {
            broadcast.emit(out);
        }
        out.extend_from_slice(b"fmt ");
        out.extend_from_slice(&if extensible { 40_u32 } else { 16 }.to_le_bytes());
        out.extend_from_slice(&if extensible { TAG_EXTENSIBLE } else { tag }.to_le_bytes());
        out.extend_from_slice(&channels.to_le_bytes());
        out.extend_from_slice(&rate.hz().to_le_bytes());
        out.extend_from_slice(&rate.hz().saturating_mul(u32::from(frame_bytes)).to_le_bytes());
        out.extend_from_slice(&frame_bytes.to_le_bytes());
        out.extend_from_slice(&format.bits().to_le_bytes());
        if extensible {
            let mask = header.channel_mask.filter(|mask| mask.count_ones() == u32::from(channels));
            out.extend_from_slice(&22_u16.to_le_bytes());
            out.extend_from_slice(&format.bits().to_le_bytes());
            out.extend_from_slice(&mask.unwrap_or(0).to_le_bytes());
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&SUB_FORMAT_TAIL);
        }
        out.extend_from_slice(b"data\xff\xff\xff\xff");
        let data_offset = (out.len() - file_start) as u64;
        Ok(Self {
            data_offset,
            frame_bytes: u64::from(frame_bytes),
            has_ds64_space: header.reserve_ds64,
            max_riff_size: MAX_RIFF_SIZE,
        })
    }

    /// The size fields of a file that begins with `header`, which was parsed as `wave`.
    #[must_use]
    pub fn from_header(header: &[u8], wave: &WaveInfo) -> Self {
        let has_ds64_space = header.get(12..20).is_some_and(|chunk| {
            let (name, size) = chunk.split_at_checked(4).unwrap_or_default();
            [&b"JUNK"[..], b"ds64"].contains(&name) && size == DS64_BYTES.to_le_bytes()
        });
        let (data_offset, frame_bytes) = (wave.data_offset as u64, wave.frame_bytes() as u64);
        Self { data_offset, frame_bytes, has_ds64_space, max_riff_size: MAX_RIFF_SIZE }
    }

    /// Offset of the samples from the start of the file, in bytes.
    #[must_use]
    pub const fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Offset of the end of `data` bytes of samples from the start of the file, with the byte that
    /// pads an odd length.
    #[must_use]
    pub const fn data_end(&self, data: u64) -> u64 {
        self.data_offset.saturating_add(data).saturating_add(data % 2)
    }

    /// Bytes of a frame.
    #[must_use]
    pub const fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// Whether space for 64-bit sizes is reserved.
    #[must_use]
    pub const fn has_ds64_space(&self) -> bool {
        self.has_ds64_space
    }

    /// The same, but 64-bit sizes are used from `max_riff_size` bytes on: a test need not write
    /// 4 GiB to reach them.
    #[must_use]
    #[doc(hidden)]
    pub const fn with_max_riff_size(self, max_riff_size: u64) -> Self {
        Self { max_riff_size, ..self }
    }

    /// Patches of the size fields for `data` bytes of samples followed by `trailing` bytes: chunks
    /// with their headers, and the byte that pads an odd length. Written in this order, a reader
    /// between the two finds at least what it found before, and
    /// [`SizeFields::declared_data_bytes`] finds no trailing chunks that do not exist.
    ///
    /// # Errors
    /// [`FileTooLong`] when 32 bits cannot hold the length and no space for 64 bits is reserved.
    pub fn patches(&self, data: u64, trailing: u64) -> Result<[Patch; 2], FileTooLong> {
        let riff = self.data_offset - 8 + data + trailing;
        let data_size_offset = self.data_offset - 4;
        if riff < self.max_riff_size {
            let [riff, data] = [riff, data].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
            // If the RIFF size exceeds the size of the samples, the samples are complete.
            return Ok([
                Patch::new(data_size_offset, &data.to_le_bytes()),
                Patch::new(4, &riff.to_le_bytes()),
            ]);
        }
        if !self.has_ds64_space {
            return Err(FileTooLong);
        }
        let mut front = [0; 48];
        let sizes = [riff, data, data / self.frame_bytes].map(u64::to_le_bytes);
        let fields: [&[u8]; 4] = [
            b"RF64\xff\xff\xff\xffWAVEds64",
            &DS64_BYTES.to_le_bytes(),
            sizes.as_flattened(),
            // The table is empty.
            &[0; 4],
        ];
        for (to, from) in front.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        Ok([Patch::new(0, &front), Patch::new(data_size_offset, &[0xff; 4])])
    }

    /// Bytes of samples that the header of a file declares, if its RIFF size counts more behind
    /// them than the padding byte. The file begins with `header`, which was parsed as `wave`.
    #[must_use]
    pub fn declared_data_bytes(&self, header: &[u8], wave: &WaveInfo) -> Option<u64> {
        // While a header becomes RF64, its 64-bit sizes are written before the short one is
        // invalidated.
        let ds64_bytes = || Some(u64::from_le_bytes(*header.get(28..)?.first_chunk()?));
        let is_rf64 = header.starts_with(b"RF64") && header.get(12..16) == Some(b"ds64");
        let data = if is_rf64 { ds64_bytes() } else { wave.data_bytes }?;
        Self::declared_file_bytes(header).filter(|length| *length > self.data_end(data))?;
        Some(data)
    }

    /// Length of a file that begins with `header` as the header declares it, in bytes.
    #[must_use]
    pub fn declared_file_bytes(header: &[u8]) -> Option<u64> {
        let riff_size = u32::from_le_bytes(*header.get(4..)?.first_chunk()?);
        let has_ds64 = header.get(12..16) == Some(b"ds64");
        let riff = match (riff_size, has_ds64) {
            (u32::MAX, true) => u64::from_le_bytes(*header.get(20..)?.first_chunk()?),
            (u32::MAX, false) => return None,
            (size, _) => u64::from(size),
        };
        riff.checked_add(8)
    }
}

/// A file beyond 4 GiB whose header has no space for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it has no detail")]
pub struct FileTooLong;

impl fmt::Display for FileTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WAVE file beyond 4 GiB, but its header has no space for 64-bit sizes")
    }
}

impl core::error::Error for FileTooLong {}

/// `RIFF`, the size and `WAVE`.
const RIFF_HEADER_BYTES: u64 = 12;
/// Bytes of a `ds64` chunk with three 64-bit sizes and an empty table, and of its placeholder.
const DS64_BYTES: u32 = 28;
/// Limit of 32-bit sizes; the greatest value means "see `ds64`".
const MAX_RIFF_SIZE: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use aulos_core::Utc;

    use super::super::{ParseOutcome, parse};
    use super::*;

    fn new_header(spec: &str, reserve_ds64: bool) -> (Vec<u8>, SizeFields) {
        let broadcast = BroadcastExtension {
            description: "Hall",
            originator: "aulos",
            originator_reference: "",
            origination: Utc::from_unix(0),
            time_reference: 0,
            coding_history: "A=PCM",
        };
        let mut bytes = Vec::new();
        let spec: SampleSpec = spec.parse().unwrap();
        let channel_mask = Some((1 << spec.layout.channels()) - 1);
        let header = WavFileHeader {
            spec,
            channel_mask,
            reserve_ds64,
            broadcast: reserve_ds64.then_some(broadcast),
        };
        let sizes = SizeFields::emit_header(&header, &mut bytes).unwrap();
        (bytes, sizes)
    }

    fn read(bytes: &[u8]) -> WaveInfo {
        let Ok(ParseOutcome::Complete(wave)) = parse(bytes) else { panic!("{:?}", parse(bytes)) };
        wave
    }

    fn put(bytes: &mut [u8], patch: &Patch) {
        let at = usize::try_from(patch.at()).unwrap();
        bytes[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
        // A patch must not cross the boundary of a sector.
        assert_eq!(at / 512, (at + patch.bytes().len() - 1) / 512);
    }

    #[test]
    fn a_header_without_sizes_is_read_to_the_end_of_the_file() {
        for spec in ["48000:16:2", "44100:s24:1", "96000:f32:6", "8000:16:3"] {
            for reserve_ds64 in [false, true] {
                let (bytes, sizes) = new_header(spec, reserve_ds64);
                let wave = read(&bytes);
                let wanted: SampleSpec = spec.parse().unwrap();
                assert_eq!(
                    (wave.data_bytes, wave.rate, wave.layout),
                    (None, wanted.rate, wanted.layout)
                );
                assert_eq!(wave.frame_bytes(), wanted.frame_bytes());
                assert_eq!((wave.data_offset, bytes.len() % 4), (bytes.len(), 0));
                assert_eq!(
                    (sizes, SizeFields::declared_file_bytes(&bytes)),
                    (SizeFields::from_header(&bytes, &wave), None)
                );
                let is_extensible = wanted.layout.channels() > 2 || !spec.contains(":16:");
                assert_eq!(wave.channel_mask.is_some(), is_extensible, "{spec}");
            }
        }
    }

    #[test]
    fn sizes_have_32_bits_while_they_fit_and_64_bits_after() {
        let (mut bytes, sizes) = new_header("48000:16:2", true);
        let start = sizes.data_offset();
        let last_short = u64::from(u32::MAX) - start + 8 - 4;
        for (data, long) in
            [(0, false), (4_000, false), (last_short, false), (last_short + 4, true)]
        {
            let patches = sizes.patches(data, 0).unwrap();
            let before = read(&bytes);
            for patch in &patches {
                put(&mut bytes, patch);
                // A reader between the two patches finds no less than before.
                let wave = read(&bytes);
                let length = wave.data_bytes;
                assert!(
                    length.is_none_or(|length| Some(length) >= before.data_bytes),
                    "{length:?}"
                );
                assert_eq!(sizes.declared_data_bytes(&bytes, &wave), None);
            }
            assert!(patches.iter().all(|patch| patch.is_applied_to(&bytes)));
            // An empty data chunk has no length of its own.
            let length = read(&bytes).data_bytes.unwrap_or(0);
            assert_eq!((bytes.starts_with(b"RF64"), length), (long, data));
            assert_eq!(SizeFields::declared_file_bytes(&bytes), Some(start + data));
            let mut marked = bytes.clone();
            for patch in sizes.patches(data, 40).unwrap() {
                put(&mut marked, &patch);
            }
            let declared_data_bytes = sizes.declared_data_bytes(&marked, &read(&marked));
            assert_eq!(declared_data_bytes, Some(data));
        }
        let (_, sizes) = new_header("48000:16:2", false);
        assert_eq!(sizes.patches(u64::from(u32::MAX), 0), Err(FileTooLong));
        let (mut bytes, sizes) = new_header("8000:s24:1", true);
        for patch in sizes.with_max_riff_size(1_000).patches(999, 1).unwrap() {
            put(&mut bytes, &patch);
        }
        assert_eq!(&bytes[..20], b"RF64\xff\xff\xff\xffWAVEds64\x1c\0\0\0");
        let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([field(20), field(28), field(36)], [sizes.data_offset() - 8 + 1_000, 999, 333]);
    }
}
