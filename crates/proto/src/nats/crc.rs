//! CRC-32 of IEEE 802.3, as in gzip and PNG.

/// The checksum of several slices behind each other.
pub(super) fn crc32(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(u32::MAX, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        let entry = TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0);
        entry ^ (crc >> 8)
    })
}

const TABLE: [u32; 256] = table();

#[allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "at compile time, below 256"
)]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        let (mut crc, mut bit) = (value as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { POLYNOMIAL ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[value] = crc;
        value += 1;
    }
    table
}

/// The polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[]), 0);
    }
}
