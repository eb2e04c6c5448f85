//! Tags at the end of a file, which belong to no container: `ID3v1`, `APEv2`, Lyrics3, `ID3v2.4`.
//!
//! Programs append them to files of any format. A decoder of a format that has no end mark, as
//! FLAC, takes their bytes for audio that is damaged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Where the tags at the end of a file begin; `end` if there are none. Not before `start`.
pub(in crate::decode) fn tags_start(file: &File, start: u64, end: u64) -> io::Result<u64> {
    let mut at = end;
    for _ in 0..MAX_TAGS {
        let Some(size) = tag_size(file, at)? else { break };
        match at.checked_sub(size) {
            Some(before) if before >= start => at = before,
            _ => break,
        }
    }
    Ok(at)
}

/// The size of the tag that ends at `end`.
fn tag_size(file: &File, end: u64) -> io::Result<Option<u64>> {
    let back = |bytes: u64| end.checked_sub(bytes);
    if let Some(at) = back(ID3V1_BYTES)
        && bytes_at(file, at)? == Some(*b"TAG")
    {
        return Ok(Some(ID3V1_BYTES));
    }
    if let Some(at) = back(ENHANCED_BYTES)
        && bytes_at(file, at)? == Some(*b"TAG+")
    {
        return Ok(Some(ENHANCED_BYTES));
    }
    if let Some(at) = back(32)
        && bytes_at(file, at)? == Some(*b"APETAGEX")
        && let Some(size) = bytes_at(file, at + 12)?
        && let Some(flags) = bytes_at(file, at + 20)?
    {
        // The size has the footer, and not the header, which bit 31 announces.
        let header = if u32::from_le_bytes(flags) >> 31 == 1 { 32 } else { 0 };
        return Ok(Some(u64::from(u32::from_le_bytes(size)) + header).filter(|all| *all >= 32));
    }
    if let Some(at) = back(15)
        && let Some(footer) = bytes_at::<15>(file, at)?
        && footer.ends_with(b"LYRICS200")
    {
        let digits = core::str::from_utf8(&footer[..6]).ok().and_then(|six| six.parse().ok());
        return Ok(digits.map(|size: u64| size + 15));
    }
    if let Some(at) = back(10)
        && let Some([b'3', b'D', b'I', _, _, _, a, b, c, d]) = bytes_at::<10>(file, at)?
    {
        let size = [a, b, c, d].iter().fold(0, |all, byte| all << 7 | u64::from(byte & 0x7f));
        return Ok(Some(size + 20));
    }
    Ok(None)
}

/// The bytes at an offset; `None` when the file ends before.
pub(in crate::decode) fn bytes_at<const N: usize>(
    file: &File,
    at: u64,
) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    // The system refuses such an offset.
    if i64::try_from(at).is_err() {
        return Ok(None);
    }
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The length of `ID3v1`, and of the part in front of it that some programs write.
const ID3V1_BYTES: u64 = 128;
const ENHANCED_BYTES: u64 = 227;

/// Tags that may follow each other: one of each kind, and some twice.
const MAX_TAGS: u32 = 8;
