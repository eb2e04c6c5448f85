//! MD5 (RFC 1321), which STREAMINFO contains for the decoded samples. It detects accidental
//! corruption; security is not required.

/// Incremental MD5 sum.
#[derive(Clone, Debug)]
pub struct Md5 {
    state: [u32; 4],
    /// Incomplete block.
    block: [u8; BLOCK],
    filled: usize,
    /// Total number of bytes.
    length: u64,
}

impl Default for Md5 {
    fn default() -> Self {
        Self { state: INITIAL, block: [0; BLOCK], filled: 0, length: 0 }
    }
}

impl Md5 {
    /// Hashes the next bytes.
    ///
    /// # Real-time
    /// Does not allocate; some 2 ns a byte.
    pub fn add(&mut self, mut bytes: &[u8]) {
        self.length = self.length.wrapping_add(bytes.len() as u64);
        if self.filled > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.fill(now);
            bytes = later;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            self.state = compress(self.state, block);
        }
        self.fill(rest);
    }

    /// The MD5 sum.
    #[must_use]
    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.length.wrapping_mul(8);
        // Padding: a one bit, and zeros up to the length.
        self.add(&[0x80]);
        while self.filled != BLOCK - 8 {
            self.add(&[0]);
        }
        self.add(&bits.to_le_bytes());
        let mut sum = [0; 16];
        for (to, from) in sum.iter_mut().zip(self.state.map(u32::to_le_bytes).as_flattened()) {
            *to = *from;
        }
        sum
    }

    /// Appends bytes to the block, no more than fit.
    fn fill(&mut self, bytes: &[u8]) {
        for (to, from) in self.block.iter_mut().skip(self.filled).zip(bytes) {
            *to = *from;
        }
        self.filled += bytes.len();
        if self.filled >= BLOCK {
            self.filled = 0;
            self.state = compress(self.state, &self.block);
        }
    }
}

/// RFC 1321, section 3.4.
fn compress(state: [u32; 4], block: &[u8; BLOCK]) -> [u32; 4] {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let [mut a, mut b, mut c, mut d] = state;
    let rounds = SINES.as_chunks::<16>().0.iter().zip(&SHIFTS).enumerate();
    for (round, (constants, shifts)) in rounds {
        for (step, (constant, shift)) in constants.iter().zip(shifts.iter().cycle()).enumerate() {
            let (mix, word) = match round {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            let word = words.get(word % 16).copied().unwrap_or(0);
            let sum = a.wrapping_add(mix).wrapping_add(*constant).wrapping_add(word);
            (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(*shift)));
        }
    }
    let [e, f, g, h] = state;
    [a.wrapping_add(e), b.wrapping_add(f), c.wrapping_add(g), d.wrapping_add(h)]
}

/// Block size of MD5 in bytes.
const BLOCK: usize = 64;
const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
/// The integer part of 2 to the 32 times the absolute value of the sine of 1 to 64.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(text: &[u8], piece: usize) -> String {
        let mut md5 = Md5::default();
        text.chunks(piece).for_each(|piece| md5.add(piece));
        md5.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_sums_of_the_standard() {
        for (text, wanted) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            for piece in [1, 3, 64, 100] {
                assert_eq!(sum(text.as_bytes(), piece), wanted, "{text}");
            }
        }
    }

    #[test]
    fn every_length_around_a_block_in_pieces_of_every_size() {
        let bytes: Vec<u8> = (0..200).collect();
        for length in 0..bytes.len() {
            let whole = sum(&bytes[..length], 1_000);
            for piece in [1, 7, 63, 64, 65] {
                assert_eq!(sum(&bytes[..length], piece), whole, "{length} in pieces of {piece}");
            }
        }
        // md5sum of the bytes 0 to 199.
        assert_eq!(sum(&bytes, 200), "fb7001d34b8e82c9b579be5005d5b0a5");
    }
}
