//! The padding at the end of a Matroska or `WebM` file.
//!
//! The last block of a track says how many nanoseconds of it are padding of the encoder
//! (RFC 9559, 5.1.3.5.7, `DiscardPadding`). The container library skips that element, so the few
//! elements on the path to it are walked here, without reading any block.

use std::fs::File;
use std::io;

use super::sizes::{EbmlSize, bytes_at, ebml_size};

/// The padding in nanoseconds; `None` without one, and where sizes on the path are not known.
pub(super) fn find_discard_padding(file: &File) -> io::Result<Option<u64>> {
    if bytes_at(file, 0)? != Some(EBML) {
        return Ok(None);
    }
    let end = file.metadata()?.len();
    let Some(segment) = last_child(file, 0, end, SEGMENT)? else { return Ok(None) };
    let Some(cluster) = last_child(file, segment.0, segment.1, CLUSTER)? else { return Ok(None) };
    let Some(group) = last_child(file, cluster.0, cluster.1, &[0xa0])? else { return Ok(None) };
    // A simple block behind the group has no padding.
    if group.1 != cluster.1 {
        return Ok(None);
    }
    let Some((at, to)) = last_child(file, group.0, group.1, &[0x75, 0xa2])? else {
        return Ok(None);
    };
    let mut value = 0u64;
    if to - at > 8 {
        return Ok(None);
    }
    for offset in at..to {
        let Some([byte]) = bytes_at(file, offset)? else { return Ok(None) };
        if offset == at && byte >= 0x80 {
            // Negative: padding at the beginning of the block.
            return Ok(None);
        }
        value = value << 8 | u64::from(byte);
    }
    Ok(Some(value))
}

/// The first and last offset of the data of the last child element with this identifier.
fn last_child(file: &File, mut at: u64, end: u64, id: &[u8]) -> io::Result<Option<(u64, u64)>> {
    let mut found = None;
    for _ in 0..MAX_ELEMENTS {
        if at >= end {
            return Ok(found);
        }
        let Some([first]) = bytes_at(file, at)? else { return Ok(found) };
        let width = first.leading_zeros() as usize + 1;
        if width > 4 {
            return Ok(None);
        }
        let Some(EbmlSize { body, size, width: size_width }) = ebml_size(file, at + width as u64)?
        else {
            return Ok(None);
        };
        let is_unknown = size == (1 << (7 * size_width)) - 1;
        let next = if is_unknown { end } else { body.saturating_add(size).min(end) };
        let is_wanted = match bytes_at::<4>(file, at)? {
            Some(bytes) => bytes.starts_with(id),
            None => false,
        };
        if is_wanted && width == id.len() {
            found = Some((body, next));
        }
        at = next;
    }
    Ok(None)
}

const EBML: [u8; 4] = [0x1a, 0x45, 0xdf, 0xa3];
const SEGMENT: &[u8] = &[0x18, 0x53, 0x80, 0x67];
const CLUSTER: &[u8] = &[0x1f, 0x43, 0xb6, 0x75];

/// The most elements to visit in one parent: a day has some ten thousand clusters, and each costs
/// two system calls.
const MAX_ELEMENTS: u32 = 65_536;
