//! AES-128 in CBC mode with PKCS7 padding (RFC 8216, 5.2).

use aes::Aes128Dec;
use aes::cipher::{BlockCipherDecrypt as _, KeyInit as _};

use super::error::HlsError;

/// Decrypts a segment in place.
///
/// # Errors
/// [`HlsError::Decryption`] when the padding is wrong, as it is with another key.
pub(super) fn decrypt(key: [u8; 16], iv: [u8; 16], bytes: &mut Vec<u8>) -> Result<(), HlsError> {
    let cipher = Aes128Dec::new(&key.into());
    let mut before = iv;
    let (blocks, rest) = bytes.as_chunks_mut::<16>();
    for block in &mut *blocks {
        let encrypted = *block;
        let mut plain = encrypted.into();
        cipher.decrypt_block(&mut plain);
        for ((to, from), mask) in block.iter_mut().zip(plain).zip(before) {
            *to = from ^ mask;
        }
        before = encrypted;
    }
    let padding = blocks.last().filter(|_| rest.is_empty()).and_then(|last| {
        let count = usize::from(last[15]);
        let tail = last.get(16_usize.checked_sub(count)?..)?;
        let is_valid = count > 0 && tail.iter().all(|byte| usize::from(*byte) == count);
        is_valid.then_some(count)
    });
    let padding = padding.ok_or(HlsError::Decryption)?;
    bytes.truncate(bytes.len() - padding);
    Ok(())
}
