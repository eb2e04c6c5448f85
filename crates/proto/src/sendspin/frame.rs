//! The first byte of a message, the header of sound, and messages in several pieces.

use core::fmt;

use aulos_core::Instant;

use super::dialect::DialectInfo;

/// Longest plaintext of one encrypted message: what Noise allows, without its tag.
pub const MAX_PLAINTEXT: usize = 65_519;

/// Longest header in front of the sound.
pub const AUDIO_HEADER_LEN: usize = 13;

/// Type of a message with JSON.
pub(super) const JSON: u8 = 0;
/// Type of a fragment; in the first dialects 2 and, for the last one, 3.
const FRAGMENT: u8 = 1;
const OLD_FRAGMENT: u8 = 2;
const OLD_LAST_FRAGMENT: u8 = 3;
/// Type of a message with sound for a player.
pub(super) const PLAYER_AUDIO: u8 = 4;

const LAST: u8 = 1;
const FIRST: u8 = 2;

/// Longest message that is put together, where nothing else is said. Texts of clients have a few hundred
/// bytes.
const MAX_MESSAGE: usize = 256 * 1024;

/// The clock of the protocol: microseconds.
#[allow(clippy::cast_possible_wrap, reason = "292,000 years")]
pub(super) const fn micros(at: Instant) -> i64 {
    (at.as_nanos() / 1_000) as i64
}

/// Appends the header of sound that is to begin at `timestamp`, in microseconds of the server's clock,
/// and is sent at `now`.
pub(super) fn write_audio_header(
    dialect: DialectInfo,
    timestamp: i64,
    now: i64,
    out: &mut Vec<u8>,
) {
    out.push(PLAYER_AUDIO);
    out.extend(timestamp.to_be_bytes());
    if dialect.has_send_ahead {
        let ahead = timestamp.saturating_sub(now).max(0);
        out.extend(u32::try_from(ahead).unwrap_or(u32::MAX).to_be_bytes());
    }
}

/// A time of the protocol; `None` if there is no such time.
#[cfg(feature = "noise")]
pub(super) fn instant(micros: i64) -> Option<Instant> {
    // Sums with spans of years stay in range.
    let nanos = u64::try_from(micros).ok()?.checked_mul(1_000)?;
    (nanos <= u64::MAX / 4).then_some(Instant::from_nanos(nanos))
}

/// The time at which sound is to begin, in microseconds of the server's clock, and the sound; `None` if
/// the header is cut.
#[cfg(feature = "noise")]
pub(super) fn read_audio_header(dialect: DialectInfo, message: &[u8]) -> Option<(i64, &[u8])> {
    let (timestamp, rest) = message.get(1..)?.split_first_chunk::<8>()?;
    let ahead = if dialect.has_send_ahead { 4 } else { 0 };
    Some((i64::from_be_bytes(*timestamp), rest.get(ahead..)?))
}

/// Calls `send` with each piece of `message`: itself, or its fragments.
pub(super) fn fragments(
    dialect: DialectInfo,
    message: &[u8],
    scratch: &mut Vec<u8>,
    mut send: impl FnMut(&[u8]),
) {
    if message.len() <= MAX_PLAINTEXT {
        return send(message);
    }
    let Some((&kind, body)) = message.split_first() else { return };
    let mut pieces = body.chunks(MAX_PLAINTEXT - 3).enumerate().peekable();
    while let Some((number, piece)) = pieces.next() {
        let (first, last) = (number == 0, pieces.peek().is_none());
        scratch.clear();
        if dialect.has_fragment_flags {
            let flags = if first { FIRST } else { 0 } | if last { LAST } else { 0 };
            scratch.extend([FRAGMENT, flags]);
        } else {
            scratch.push(if last { OLD_LAST_FRAGMENT } else { OLD_FRAGMENT });
        }
        if first {
            scratch.push(kind);
        }
        scratch.extend_from_slice(piece);
        send(scratch);
    }
}

/// Fragments of a client in a wrong order, or of a message that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentError;

impl fmt::Display for FragmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fragments in a wrong order, or of a message that is too long")
    }
}

impl core::error::Error for FragmentError {}

/// Puts fragments together; holds at most one message.
#[derive(Debug)]
pub(super) struct Reassembly {
    /// The message so far: its type and its bytes.
    message: Vec<u8>,
    limit: usize,
}

impl Default for Reassembly {
    fn default() -> Self {
        Self { message: Vec::new(), limit: MAX_MESSAGE }
    }
}

impl Reassembly {
    /// For messages of at most `limit` bytes.
    #[cfg(feature = "noise")]
    pub(super) const fn with_limit(limit: usize) -> Self {
        Self { message: Vec::new(), limit }
    }

    /// Takes a plaintext; the whole message when it is complete.
    pub(super) fn push<'a>(
        &'a mut self,
        dialect: DialectInfo,
        plaintext: &'a [u8],
    ) -> Result<Option<&'a [u8]>, FragmentError> {
        let (flags, rest) = match *plaintext {
            [FRAGMENT, flags, ref rest @ ..] if dialect.has_fragment_flags => (flags, rest),
            [OLD_FRAGMENT, ref rest @ ..] if !dialect.has_fragment_flags => {
                (if self.message.is_empty() { FIRST } else { 0 }, rest)
            }
            [OLD_LAST_FRAGMENT, ref rest @ ..] if !dialect.has_fragment_flags => (LAST, rest),
            _ if self.message.is_empty() => return Ok(Some(plaintext)),
            _ => return Err(FragmentError),
        };
        let is_first = flags & FIRST != 0;
        let too_long = self.message.len() + rest.len() > self.limit;
        if is_first != self.message.is_empty() || (is_first && rest.is_empty()) || too_long {
            return Err(FragmentError);
        }
        self.message.extend_from_slice(rest);
        Ok((flags & LAST != 0).then_some(self.message.as_slice()))
    }

    /// The message that was returned is not needed any more.
    pub(super) fn clear(&mut self) {
        self.message = Vec::new();
    }

    /// The message that was returned, if it came in fragments.
    #[cfg(feature = "noise")]
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        (!self.message.is_empty()).then(|| core::mem::take(&mut self.message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Dialect;
    use super::*;

    #[test]
    fn the_header_is_that_of_the_specification() {
        let header = |dialect: Dialect, now| {
            let mut out = Vec::new();
            write_audio_header(dialect.info(), 1_000_000, now, &mut out);
            out
        };
        let example = [4, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40, 0, 0x04, 0x9b, 0xb0];
        assert_eq!(header(Dialect::Current, 698_000), example);
        assert_eq!(header(Dialect::FirstNoise, 698_000), example[..9]);
        for dialect in [Dialect::Current, Dialect::FirstNoise] {
            let message = [header(dialect, 698_000), vec![7, 8]].concat();
            let read = read_audio_header(dialect.info(), &message);
            assert_eq!(read, Some((1_000_000, &[7, 8][..])));
            assert_eq!(read_audio_header(dialect.info(), &message[..8]), None);
        }
        assert_eq!(header(Dialect::Current, 1_000_001)[9..], [0; 4]);
        assert_eq!(header(Dialect::Current, -5_000_000_000)[9..], [0xff; 4]);
    }

    proptest! {
        #[test]
        fn fragments_are_put_together_again(
            length in prop_oneof![1..10_usize, 60_000..200_000_usize],
            current: bool,
        ) {
            let dialect = if current { Dialect::Current } else { Dialect::FirstNoise }.info();
            let counted = (0..=255).cycle().take(length - 1);
            let message: Vec<u8> = core::iter::once(9).chain(counted).collect();
            let mut reassembly = Reassembly::default();
            let mut whole = Vec::new();
            fragments(dialect, &message, &mut Vec::new(), |piece| {
                assert!(piece.len() <= MAX_PLAINTEXT);
                if let Some(message) = reassembly.push(dialect, piece).unwrap() {
                    whole.push(message.to_vec());
                }
            });
            prop_assert_eq!(whole, vec![message]);
        }

        #[test]
        fn what_comes_in_a_wrong_order_is_refused_and_bounded(
            pieces in prop::collection::vec(prop::collection::vec(0..6_u8, 0..6), 0..40),
            current: bool,
        ) {
            let dialect = if current { Dialect::Current } else { Dialect::FirstNoise }.info();
            let mut reassembly = Reassembly::default();
            for piece in pieces {
                match reassembly.push(dialect, &piece) {
                    Ok(Some(_)) => reassembly.clear(),
                    Ok(None) => {}
                    Err(FragmentError) => break,
                }
                prop_assert!(reassembly.message.len() <= MAX_MESSAGE);
            }
        }
    }
}
