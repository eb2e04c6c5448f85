//! A file as the container library reads it: with sizes that agree with its bytes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use symphonia::core::io::MediaSource;

use super::Corrections;

/// A file with a position of its own, in which some bytes are replaced.
#[derive(Debug)]
pub(in crate::decode) struct CorrectedFile {
    file: File,
    position: u64,
    corrections: Corrections,
}

impl CorrectedFile {
    /// Reads `file` from its beginning.
    pub(in crate::decode) const fn new(file: File, corrections: Corrections) -> Self {
        Self { file, position: 0, corrections }
    }
}

impl Read for CorrectedFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.corrections.end.saturating_sub(self.position);
        let most = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let count = self.file.read_at(&mut into[..most], self.position)?;
        for (at, bytes) in &self.corrections.patches {
            for (at, byte) in (*at..).zip(bytes) {
                let offset = at.checked_sub(self.position).and_then(|it| usize::try_from(it).ok());
                if let Some(place) = offset.and_then(|offset| into[..count].get_mut(offset)) {
                    *place = *byte;
                }
            }
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for CorrectedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.corrections.end.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl MediaSource for CorrectedFile {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.corrections.end)
    }
}
