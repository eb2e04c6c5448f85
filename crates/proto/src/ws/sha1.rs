//! SHA-1 (FIPS 180-4), which the WebSocket handshake is made of. It protects nothing there: it only
//! shows that the server has understood the request.

/// The digest of a text of less than 2^29 bytes.
pub(super) fn sha1(text: &[u8]) -> [u8; 20] {
    let mut bytes = text.to_vec();
    bytes.push(0x80);
    bytes.resize((bytes.len() + 8).next_multiple_of(BLOCK) - 8, 0);
    bytes.extend((text.len() as u64 * 8).to_be_bytes());
    let mut state = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0_u32];
    for block in bytes.chunks_exact(BLOCK) {
        let rounds = rounds(schedule(block), state);
        for (word, add) in state.iter_mut().zip(rounds) {
            *word = word.wrapping_add(add);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn schedule(block: &[u8]) -> [u32; 80] {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..words.len() {
        let word = |back: usize| words.get(at - back).copied().unwrap_or(0);
        let mixed = (word(3) ^ word(8) ^ word(14) ^ word(16)).rotate_left(1);
        if let Some(word) = words.get_mut(at) {
            *word = mixed;
        }
    }
    words
}

fn rounds(words: [u32; 80], [mut a, mut b, mut c, mut d, mut e]: [u32; 5]) -> [u32; 5] {
    for (round, word) in words.into_iter().enumerate() {
        let (mixed, constant) = match round / 20 {
            0 => (b & c | !b & d, 0x5A82_7999),
            1 => (b ^ c ^ d, 0x6ED9_EBA1),
            2 => (b & c | b & d | c & d, 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6_u32),
        };
        let sum = [mixed, e, constant, word].into_iter().fold(a.rotate_left(5), u32::wrapping_add);
        (a, b, c, d, e) = (sum, a, b.rotate_left(30), c, d);
    }
    [a, b, c, d, e]
}

const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_the_standards_examples() {
        let hex = |text: &[u8]| -> String {
            sha1(text).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
