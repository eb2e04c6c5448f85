//! Incremental decoder of response bodies: chunked encoding (RFC 9112, 7.1) and ICY metadata.

use core::fmt;

use crate::titles::{TitleCharset, TrackMetadata};

/// How the length of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "RFC 9112, 6.3 has no other")]
pub enum BodyFraming {
    /// A known number of bytes.
    Length(u64),
    /// Chunked encoding.
    Chunked,
    /// Up to the end of the connection.
    UntilClosed,
}

/// Decodes a body that arrives in pieces of any size.
#[derive(Debug)]
pub struct BodyDecoder {
    framing: FramingState,
    icy: Option<IcyDemuxer>,
    finished: bool,
}

#[derive(Debug)]
enum FramingState {
    Length(u64),
    Chunked(ChunkState),
    UntilClosed,
}

/// Position in a chunked body.
#[derive(Debug)]
enum ChunkState {
    /// In a chunk-size line; value, digits and bytes so far.
    Size { size: u64, digits: u32, bytes: u32, extension: bool },
    /// In chunk data; bytes that are left.
    Data(u64),
    /// At the line break after the chunk data.
    DataEnd,
    /// In the trailer section; bytes in this line, and in total.
    Trailer { line: u32, bytes: u32 },
}

/// Shoutcast metadata: after every `interval` bytes of audio, a length and a text.
#[derive(Debug)]
struct IcyDemuxer {
    interval: usize,
    /// Bytes of audio until the next metadata block.
    left: usize,
    /// Bytes of text that are still missing.
    text_left: usize,
    text: Vec<u8>,
    last_text: Vec<u8>,
    charset: TitleCharset,
}

/// Reason why a body cannot be decoded any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// Invalid chunked encoding.
    Chunk,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server sent invalid chunked encoding")
    }
}

impl core::error::Error for BodyError {}

impl BodyDecoder {
    /// Creates a decoder; `icy` is the metadata interval in bytes, if the server announced one.
    #[must_use]
    pub fn new(framing: BodyFraming, icy: Option<usize>) -> Self {
        let icy = icy.filter(|interval| (1..=MAX_INTERVAL).contains(interval));
        Self {
            framing: match framing {
                BodyFraming::Length(length) => FramingState::Length(length),
                BodyFraming::Chunked => FramingState::Chunked(ChunkState::NEW),
                BodyFraming::UntilClosed => FramingState::UntilClosed,
            },
            icy: icy.map(IcyDemuxer::new),
            finished: framing == BodyFraming::Length(0),
        }
    }

    /// Decodes the next bytes. `sound` receives audio data, in total never longer than `bytes`;
    /// `title` receives the metadata whenever it changes.
    ///
    /// # Errors
    /// [`BodyError`]; the body cannot be decoded any further.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut sound: impl FnMut(&[u8]),
        mut title: impl FnMut(TrackMetadata),
    ) -> Result<(), BodyError> {
        while !bytes.is_empty() && !self.finished {
            let payload;
            (payload, bytes) = match &mut self.framing {
                FramingState::UntilClosed => (bytes, &[][..]),
                FramingState::Length(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= here as u64;
                    self.finished = *left == 0;
                    bytes.split_at_checked(here).unwrap_or((bytes, &[]))
                }
                FramingState::Chunked(ChunkState::Data(left)) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= here as u64;
                    if *left == 0 {
                        self.framing = FramingState::Chunked(ChunkState::DataEnd);
                    }
                    bytes.split_at_checked(here).unwrap_or((bytes, &[]))
                }
                FramingState::Chunked(chunk) => {
                    let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
                    self.finished = chunk.step(*first)?;
                    (&[][..], rest)
                }
            };
            match &mut self.icy {
                None if payload.is_empty() => {}
                None => sound(payload),
                Some(icy) => icy.push(payload, &mut sound, &mut title),
            }
        }
        Ok(())
    }

    /// Sets the charset of titles that are not UTF-8.
    pub fn set_title_charset(&mut self, charset: TitleCharset) {
        if let Some(icy) = &mut self.icy {
            icy.charset = charset;
        }
    }

    /// Whether the body has ended; further bytes are ignored.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finished
    }
}

impl ChunkState {
    const NEW: Self = Self::Size { size: 0, digits: 0, bytes: 0, extension: false };

    /// Consumes one byte of framing; returns true at the end of the body.
    fn step(&mut self, byte: u8) -> Result<bool, BodyError> {
        match self {
            Self::Size { size, digits, bytes, extension } => {
                *bytes += 1;
                if *bytes > MAX_LINE {
                    return Err(BodyError::Chunk);
                }
                match char::from(byte).to_digit(16) {
                    _ if byte == b'\n' => {
                        if *digits == 0 {
                            return Err(BodyError::Chunk);
                        }
                        *self = match *size {
                            0 => Self::Trailer { line: 0, bytes: 0 },
                            size => Self::Data(size),
                        };
                    }
                    Some(digit) if !*extension => {
                        *digits += 1;
                        if *digits > MAX_DIGITS {
                            return Err(BodyError::Chunk);
                        }
                        *size = *size << 4 | u64::from(digit);
                    }
                    _ if *extension => {}
                    _ if matches!(byte, b';' | b'\r' | b' ' | b'\t') && *digits > 0 => {
                        *extension = true;
                    }
                    _ => return Err(BodyError::Chunk),
                }
            }
            Self::DataEnd => match byte {
                b'\r' => {}
                b'\n' => *self = Self::NEW,
                _ => return Err(BodyError::Chunk),
            },
            Self::Trailer { line, bytes } => {
                *bytes += 1;
                match byte {
                    b'\n' if *line == 0 => return Ok(true),
                    b'\n' => *line = 0,
                    b'\r' => {}
                    _ => *line += 1,
                }
                if *bytes > MAX_TRAILER {
                    return Err(BodyError::Chunk);
                }
            }
            Self::Data(_) => {}
        }
        Ok(false)
    }
}

impl IcyDemuxer {
    fn new(interval: usize) -> Self {
        let (text, last_text, charset) = (Vec::new(), Vec::new(), TitleCharset::default());
        Self { interval, left: interval, text_left: 0, text, last_text, charset }
    }

    fn push(
        &mut self,
        mut bytes: &[u8],
        sound: &mut impl FnMut(&[u8]),
        title: &mut impl FnMut(TrackMetadata),
    ) {
        while !bytes.is_empty() {
            if self.text_left > 0 {
                let here = self.text_left.min(bytes.len());
                let (part, rest) = bytes.split_at_checked(here).unwrap_or((bytes, &[]));
                self.text.extend_from_slice(part);
                self.text_left -= here;
                bytes = rest;
                if self.text_left == 0 {
                    self.left = self.interval;
                    self.report_title(title);
                }
            } else if self.left > 0 {
                let here = self.left.min(bytes.len());
                let (part, rest) = bytes.split_at_checked(here).unwrap_or((bytes, &[]));
                sound(part);
                self.left -= here;
                bytes = rest;
            } else if let Some((first, rest)) = bytes.split_first() {
                self.text_left = usize::from(*first) * 16;
                bytes = rest;
                if self.text_left == 0 {
                    self.left = self.interval;
                }
            }
        }
    }

    /// Reports a complete text unless it repeats the last one.
    fn report_title(&mut self, title: &mut impl FnMut(TrackMetadata)) {
        if self.text != self.last_text {
            // An empty title is reported too: the last one no longer applies.
            if let Some(found) = stream_title(&self.text, self.charset) {
                title(found);
            }
            core::mem::swap(&mut self.text, &mut self.last_text);
        }
        self.text.clear();
    }
}

/// Parses `StreamTitle='Artist - Title';StreamUrl='...';`, padded with zeros. A title may contain
/// quotes.
fn stream_title(bytes: &[u8], charset: TitleCharset) -> Option<TrackMetadata> {
    const KEY: &[u8] = b"StreamTitle='";
    let at = bytes.windows(KEY.len()).position(|here| here == KEY)?;
    let rest = bytes.get(at + KEY.len()..)?;
    let end = rest.windows(2).position(|here| here == b"';");
    let end = end.or_else(|| rest.iter().rposition(|byte| *byte == b'\''))?;
    Some(TrackMetadata::from_stream_title(&decode_text_in(rest.get(..end)?, charset)))
}

/// Decodes text without a named charset: by its byte-order mark (UTF-8 or UTF-16), as UTF-8, or
/// else as windows-1252, which old servers send and which contains Latin-1.
#[must_use]
pub fn decode_text(bytes: &[u8]) -> String {
    decode_text_in(bytes, TitleCharset::default())
}

/// The same with another charset for what is not UTF-8.
#[must_use]
pub(crate) fn decode_text_in(bytes: &[u8], charset: TitleCharset) -> String {
    match core::str::from_utf8(bytes) {
        Ok(text) => text.trim_start_matches('\u{feff}').to_owned(),
        Err(_) => charset.decode(bytes),
    }
}

/// Maximum ICY interval in bytes; usual values are 8,192 to 65,536.
const MAX_INTERVAL: usize = 1 << 20;

/// Maximum length of a chunk-size line in bytes, and of its number in digits.
const MAX_LINE: u32 = 256;
const MAX_DIGITS: u32 = 15;

/// Maximum length of the trailer section in bytes.
const MAX_TRAILER: u32 = 8_192;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Decoded = (Vec<u8>, Vec<TrackMetadata>, Option<BodyError>, bool);

    fn decode(mut body: BodyDecoder, bytes: &[u8], grain: usize) -> Decoded {
        let (mut sound, mut titles) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(grain.max(1)) {
            let mut count = 0;
            let done = body.push(
                piece,
                |part| {
                    count += part.len();
                    sound.extend_from_slice(part);
                },
                |title| titles.push(title),
            );
            assert!(count <= piece.len());
            if let Err(error) = done {
                return (sound, titles, Some(error), body.is_finished());
            }
        }
        (sound, titles, None, body.is_finished())
    }

    #[test]
    fn titles_have_the_charset_that_is_set_unless_they_are_utf_8() {
        let russian = b"\xcf\xf0\xe8\xe2\xe5\xf2".as_slice();
        for (charset, said, title) in [
            (None, russian, "\u{cf}\u{f0}\u{e8}\u{e2}\u{e5}\u{f2}"),
            (Some("Windows-1251"), russian, "\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}"),
            (Some("windows-1251"), "\u{416} \u{2014} x".as_bytes(), "\u{416} \u{2014} x"),
        ] {
            let mut bytes = vec![b'x', 0];
            bytes.extend([b"StreamTitle='", said, b"';"].concat());
            let blocks = (bytes.len() - 2).div_ceil(16);
            bytes[1] = u8::try_from(blocks).unwrap();
            bytes.resize(2 + 16 * blocks, 0);
            let mut body = BodyDecoder::new(BodyFraming::UntilClosed, Some(1));
            charset.into_iter().for_each(|label| {
                body.set_title_charset(TitleCharset::of_label(label).unwrap());
            });
            let (_, titles, error, _) = decode(body, &bytes, 5);
            assert_eq!((titles.len(), error), (1, None));
            assert_eq!(titles[0].title.as_deref(), Some(title), "{charset:?}");
        }
        // Not decoded, for security, and unknown.
        assert_eq!([TitleCharset::of_label("iso-2022-kr"), TitleCharset::of_label("x")], [None; 2]);
    }

    #[test]
    fn chunks_and_titles_are_decoded_for_any_segmentation() {
        // Ten bytes of audio, a title in Latin-1, ten more, an empty block, and the rest.
        let mut inner = b"0123456789\x02StreamTitle='B\xf6rk - It's';\0\0\0".to_vec();
        inner.resize(11 + 32, 0);
        inner.extend_from_slice(b"abcdefghij\0ABC");
        let mut bytes = Vec::new();
        for piece in inner.chunks(7) {
            bytes.extend_from_slice(format!("{:x};ext=1\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\nTrailer: x\r\n\r\nbehind");
        for grain in [1, 2, 5, 1_000] {
            let body = BodyDecoder::new(BodyFraming::Chunked, Some(10));
            let (sound, titles, error, finished) = decode(body, &bytes, grain);
            assert_eq!(sound, b"0123456789abcdefghijABC");
            assert_eq!((error, finished), (None, true));
            let [title] = &titles[..] else { panic!("{titles:?}") };
            assert_eq!(title.artist.as_deref(), Some("B\u{f6}rk"));
            assert_eq!(title.title.as_deref(), Some("It's"));
        }
    }

    #[test]
    fn a_body_with_a_length_ends_there() {
        let body = BodyDecoder::new(BodyFraming::Length(5), None);
        assert_eq!(decode(body, b"12345678", 3), (b"12345".to_vec(), Vec::new(), None, true));
        assert!(BodyDecoder::new(BodyFraming::Length(0), None).is_finished());
    }

    #[test]
    fn nonsense_for_chunks_is_an_error_and_bounded() {
        let lies: [&[u8]; 5] =
            [b"\r\n", b"zz\r\n", b"fffffffffffffffff\r\n", b"3\r\nabcX", &[b'1', b';'].repeat(500)];
        for lie in lies {
            let (.., error, _) = decode(BodyDecoder::new(BodyFraming::Chunked, None), lie, 1);
            assert_eq!(error, Some(BodyError::Chunk), "{lie:?}");
        }
        let endless = [&b"0\r\n"[..], &b"a: b\r\n".repeat(5_000)].concat();
        let (.., error, _) = decode(BodyDecoder::new(BodyFraming::Chunked, None), &endless, 999);
        assert_eq!(error, Some(BodyError::Chunk));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, icy in prop::option::of(0..40_usize), grain in 1..50_usize) {
            for framing in [BodyFraming::Chunked, BodyFraming::UntilClosed, BodyFraming::Length(20)] {
                let whole = decode(BodyDecoder::new(framing, icy), &bytes, bytes.len());
                prop_assert_eq!(whole, decode(BodyDecoder::new(framing, icy), &bytes, grain));
            }
        }
    }
}
