//! Reads samples without a header.

use std::fs::File;
use std::io::Read;

use aulos_core::SampleSpec;
use aulos_dsp::convert;

use super::error::FileDecodeError;
use super::media::PacketOutcome;

/// A file of interleaved samples.
#[derive(Debug)]
pub(super) struct RawReader {
    file: File,
    spec: SampleSpec,
    bytes: Vec<u8>,
}

impl RawReader {
    /// Reads from the current position of the file.
    pub(super) fn new(file: File, spec: SampleSpec) -> Self {
        Self { file, spec, bytes: vec![0; FRAMES_PER_READ * spec.frame_bytes()] }
    }

    pub(super) const fn spec(&self) -> SampleSpec {
        self.spec
    }

    /// The next samples. An incomplete frame at the end counts as damage.
    pub(super) fn decode(&mut self, out: &mut Vec<f32>) -> Result<PacketOutcome, FileDecodeError> {
        let mut got = 0;
        while got < self.bytes.len() {
            match self.file.read(&mut self.bytes[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        out.clear();
        let frames = got / self.spec.frame_bytes();
        if frames == 0 {
            return Ok(if got == 0 { PacketOutcome::End } else { PacketOutcome::TruncatedEnd });
        }
        out.resize(frames * self.spec.layout.channels(), 0.0);
        convert::decode(self.spec.format, &self.bytes[..frames * self.spec.frame_bytes()], out);
        Ok(if got % self.spec.frame_bytes() == 0 {
            PacketOutcome::Frames
        } else {
            PacketOutcome::Damaged
        })
    }
}

/// The size of a read: large enough that the system call does not matter.
const FRAMES_PER_READ: usize = 4_096;
