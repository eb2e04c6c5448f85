//! MP3 files: the headers of files that are being written, and recovery of files whose writer was
//! killed.
//!
//! ```text
//!  ID3v2.4 tag, filled up to a multiple of 512 bytes | Info frame | frames
//! ```
//!
//! The Info frame is a silent frame with the tag that the encoders Xing and LAME have made usual:
//! number of frames and bytes, positions for seeking, and how much silence decoders remove at both
//! ends. What has no Info frame plays as well, but with a guessed duration and without exact ends.

mod frames;
mod id3;
mod info;
mod reservoir;
mod scan;

pub use frames::whole_frames;
pub use id3::id3_tag;
pub use info::{Mp3Info, Mp3Totals};
pub use reservoir::{MAX_RESERVOIR, MainData};
pub use scan::{Mp3ScanError, Mp3ScanReport, Mp3Scanner};

/// Delay of every decoder in frames, which the delays of the Info frame do not contain.
pub const DECODER_DELAY: u16 = 529;

/// A CRC-16 of ARC, as the Info frame has it, of the bytes behind those of `crc`.
#[must_use]
pub fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte),
            |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 }
            },
        )
    })
}
