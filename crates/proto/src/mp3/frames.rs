//! MPEG audio frames that lie one behind the other, as an encoder writes them.

use aulos_core::Frames;

use crate::packets::mpeg::Header;

/// The whole frames at the front of `bytes`, each with the number of frames (samples of every
/// channel) that it decodes to.
pub fn whole_frames(bytes: &[u8]) -> impl Iterator<Item = (&[u8], Frames)> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let header = Header::parse(*rest.first_chunk()?)?;
        let (frame, behind) = rest.split_at_checked(header.bytes())?;
        rest = behind;
        Some((frame, Frames(u64::from(header.frames()))))
    })
}
