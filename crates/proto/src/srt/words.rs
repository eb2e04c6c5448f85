//! Words of 32 bits, in the order of the network.

/// The first word, and what is behind it.
pub(super) fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*word), rest))
}

/// Appends words.
pub(super) fn put<const N: usize>(out: &mut Vec<u8>, words: [u32; N]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}
