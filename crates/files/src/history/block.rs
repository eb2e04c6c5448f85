//! Day files as bytes: a head and blocks of one size.
//!
//! A station is a number in its file, which a block with its name introduces. So a station that is
//! added later needs no other head, and nothing that was written is ever changed.

use super::record::HistoryRecord;
use super::tier::HistoryTier;

/// Bytes of the head of a file.
pub(super) const HEAD: usize = 16;
const MAGIC: &[u8; 8] = b"aulos.ah";
const VERSION: u8 = 1;

/// Offsets in a block.
mod field {
    use core::ops::Range;

    pub(super) const CRC: Range<usize> = 0..4;
    pub(super) const STATION: Range<usize> = 4..6;
    /// Records with a measurement, or bytes of a name.
    pub(super) const COUNT: usize = 6;
    pub(super) const KIND: usize = 7;
    pub(super) const START: Range<usize> = 8..12;
    pub(super) const BODY: usize = 12;
}

/// The kind of a block that names a station; other kinds are numbers of tiers.
const NAME: u8 = 255;

/// Longest name of a station, so that its length fits a byte and a block of any tier.
pub(super) const MAX_NAME: usize = 255;

/// The head of a file of a tier.
pub(super) fn head(tier: HistoryTier) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8] = VERSION;
    head[9] = tier.number();
    head
}

/// Bytes of a block of a tier.
pub(super) const fn block_bytes(tier: HistoryTier) -> usize {
    field::BODY + HistoryRecord::BYTES * tier.block_records()
}

/// Consecutive records of one station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Unix time of the first record, a multiple of the tier's block; that of the block's end is
    /// within the type.
    pub(super) start: u32,
    /// As many as a block of the tier has.
    pub(super) records: Vec<HistoryRecord>,
}

impl Block {
    /// A block without measurements that contains a time.
    pub(super) fn empty(tier: HistoryTier, time: u32) -> Self {
        let records = vec![HistoryRecord::ABSENT; tier.block_records()];
        Self { start: tier.block_start(time), records }
    }

    /// Whether nothing was measured.
    pub(super) fn is_empty(&self) -> bool {
        !self.records.iter().any(HistoryRecord::is_present)
    }

    /// The records with a measurement, with their times.
    pub(super) fn present(
        &self,
        tier: HistoryTier,
    ) -> impl Iterator<Item = (u32, HistoryRecord)> + '_ {
        let times = (0..tier.block_s()).step_by(tier.step_s() as usize);
        let all = times.zip(&self.records).filter(|(_, one)| one.is_present());
        all.map(|(at, one)| (self.start + at, *one))
    }
}

/// What a block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Introduces a station.
    Name(String),
    /// Records of a station.
    Records(Block),
}

/// Appends a block of records.
pub(super) fn push_records(bytes: &mut Vec<u8>, tier: HistoryTier, station: u16, block: &Block) {
    let count = block.records.iter().filter(|record| record.is_present()).count();
    let body = block.records.iter().flat_map(|record| record.to_bytes());
    push(bytes, tier, (station, tier.number(), count, block.start), body);
}

/// Appends the block that introduces a station, whose name is at most [`MAX_NAME`] bytes.
pub(super) fn push_name(bytes: &mut Vec<u8>, tier: HistoryTier, station: u16, name: &str) {
    push(bytes, tier, (station, NAME, name.len(), 0), name.bytes());
}

fn push(
    bytes: &mut Vec<u8>,
    tier: HistoryTier,
    (station, kind, count, start): (u16, u8, usize, u32),
    body: impl Iterator<Item = u8>,
) {
    let at = bytes.len();
    bytes.extend([0; 4]);
    bytes.extend(station.to_le_bytes());
    bytes.extend([u8::try_from(count).unwrap_or(u8::MAX), kind]);
    bytes.extend(start.to_le_bytes());
    bytes.extend(body);
    bytes.resize(at + block_bytes(tier), 0);
    let crc = crc32(&bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The station and the content of a block; `None` if its checksum or anything else is wrong.
pub(super) fn parse(bytes: &[u8], tier: HistoryTier) -> Option<(u16, Content)> {
    if bytes.len() != block_bytes(tier) {
        return None;
    }
    let crc = u32::from_le_bytes(bytes.get(field::CRC)?.try_into().ok()?);
    if crc32(bytes.get(4..)?) != crc {
        return None;
    }
    let station = u16::from_le_bytes(bytes.get(field::STATION)?.try_into().ok()?);
    let start = u32::from_le_bytes(bytes.get(field::START)?.try_into().ok()?);
    let body = bytes.get(field::BODY..)?;
    let kind = *bytes.get(field::KIND)?;
    if kind == NAME {
        let name = body.get(..usize::from(*bytes.get(field::COUNT)?))?;
        return Some((station, Content::Name(str::from_utf8(name).ok()?.to_owned())));
    }
    // A block at the end of time would overflow the times of its records.
    if kind != tier.number()
        || start != tier.block_start(start)
        || start.checked_add(tier.block_s()).is_none()
    {
        return None;
    }
    let (records, _) = body.as_chunks::<{ HistoryRecord::BYTES }>();
    let records = records.iter().map(HistoryRecord::from_bytes).collect();
    Some((station, Content::Records(Block { start, records })))
}

/// The CRC-32 of ISO 3309, which zip and PNG use.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let low = crc.to_le_bytes()[0] ^ byte;
        (crc >> 8) ^ CRC_TABLE[usize::from(low)]
    })
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};
