//! AAC in ADTS (ISO/IEC 13818-7, 6.2): each frame has a header of its own.

use aulos_proto::packets::PacketFormat;

/// The `AudioSpecificConfig` of AAC; zero for anything else.
pub(super) const fn config(format: &PacketFormat) -> [u8; 2] {
    match format {
        PacketFormat::Aac { config, .. } => *config,
        _ => [0; 2],
    }
}

/// Appends a frame behind a header without a checksum. One that is too long for the length field is
/// left out.
pub(super) fn write([a, b]: [u8; 2], frame: &[u8], out: &mut Vec<u8>) {
    let Some(length) = u16::try_from(frame.len() + HEADER).ok().filter(|it| *it <= MAX_LENGTH)
    else {
        return;
    };
    // Object type 5 bits, rate 4, channels 4 (14496-3, 1.6.2.1); a profile is an object type - 1.
    let (profile, rate) = ((a >> 3).saturating_sub(1) & 3, (a & 7) << 1 | b >> 7);
    let channels = b >> 3 & 7;
    let [_, high, middle, low] = (u32::from(length) << 5).to_be_bytes();
    out.extend_from_slice(&[
        0xff,
        0xf1,
        profile << 6 | rate << 2 | channels >> 2,
        (channels & 3) << 6 | high,
        middle,
        low | FULLNESS_HIGH,
        FULLNESS_LOW,
    ]);
    out.extend_from_slice(frame);
}

const HEADER: usize = 7;

/// Thirteen bits.
const MAX_LENGTH: u16 = 0x1fff;

/// A buffer fullness of ones stands for a variable bit rate; behind it is the number of blocks.
const FULLNESS_HIGH: u8 = 0x1f;
const FULLNESS_LOW: u8 = 0xfc;
