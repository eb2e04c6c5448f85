//! The header of a WAVE file that is being played into.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use aulos_core::{SampleFormat, SampleSpec};
use aulos_proto::wav::{SizeFields, WavFileHeader};

/// The sizes in the header of a file. Until they are written, they mean "until the end".
#[derive(Debug)]
pub(super) struct WavSizes(SizeFields);

impl WavSizes {
    /// Appends the header of a file.
    pub(super) fn begin(spec: SampleSpec, out: &mut Vec<u8>) -> io::Result<Self> {
        let header =
            WavFileHeader { spec, channel_mask: None, reserve_ds64: true, broadcast: None };
        SizeFields::emit_header(&header, out).map(Self).map_err(io::Error::other)
    }

    /// Writes the sizes of a file with so many bytes of samples.
    pub(super) fn write(&self, file: &File, samples: u64) -> io::Result<()> {
        let padding = samples % 2;
        if padding == 1 {
            file.write_all_at(&[0], self.0.data_offset() + samples)?;
        }
        for patch in self.0.patches(samples, padding).map_err(io::Error::other)? {
            file.write_all_at(patch.bytes(), patch.at())?;
        }
        Ok(())
    }
}

/// The format of the same bits that WAVE can store.
pub(super) const fn wave_format(format: SampleFormat) -> SampleFormat {
    match format {
        SampleFormat::S8 => SampleFormat::U8,
        SampleFormat::S24In32Le => SampleFormat::S24Le,
        other => other,
    }
}
