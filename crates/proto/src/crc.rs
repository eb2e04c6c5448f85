//! CRC-32 with the polynomial 0x04c11db7, most significant bit first, not inverted: that of Ogg
//! pages and of MPEG-2 tables.

/// The checksum of `bytes` behind those with the checksum `crc`; `crc` is the initial value first.
pub(crate) fn crc32(crc: u32, bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(crc, |crc, byte| {
        let [index, ..] = crc.to_be_bytes();
        let entry = TABLE.get(usize::from(index ^ byte)).copied().unwrap_or(0);
        crc << 8 ^ entry
    })
}

#[allow(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "256 constants")]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = (index as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            value = value << 1 ^ if value >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};
