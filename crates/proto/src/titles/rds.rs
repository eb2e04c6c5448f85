//! RDS: texts in the letters that receivers have, and the frames in which encoders take them.
//!
//! The frames are those of the Universal Encoder Communication Protocol (EN 62106-10): start, site
//! and encoder address, sequence, length, message, CRC, stop. Messages here have one element, since
//! some encoders ignore further ones.

/// Makes UECP frames for one encoder.
///
/// # Examples
/// ```
/// use aulos_proto::titles::UecpWriter;
///
/// let mut writer = UecpWriter::new(0);
/// let mut frames = Vec::new();
/// writer.radio_text("Alma - Rain", &mut frames);
/// assert_eq!((frames[0], frames[frames.len() - 1]), (0xFE, 0xFF));
/// ```
#[derive(Clone, Debug)]
pub struct UecpWriter {
    address: u16,
    sequence: u8,
    /// Receivers clear their display when it changes.
    toggle: bool,
}

impl UecpWriter {
    /// Frames for this address: ten bits of the site, six of the encoder; 0 is every encoder.
    #[must_use]
    pub const fn new(address: u16) -> Self {
        Self { address, sequence: 0, toggle: false }
    }

    /// Appends a frame that sets the radio text, of which at most [`RADIO_TEXT`] letters are sent.
    pub fn radio_text(&mut self, text: &str, out: &mut Vec<u8>) {
        let text = letters(text, RADIO_TEXT);
        self.toggle = !self.toggle;
        // The element's length counts the flags, which repeat the text until another one comes.
        let length = u8::try_from(text.len() + 1).unwrap_or(0);
        let mut message = vec![ELEMENT_RADIO_TEXT, DSN, PSN, length, u8::from(self.toggle)];
        message.extend_from_slice(&text);
        self.frame(&message, out);
    }

    /// Appends a frame that sets the programme service name, which has eight letters.
    pub fn service_name(&mut self, text: &str, out: &mut Vec<u8>) {
        let mut name = letters(text, SERVICE_NAME);
        name.resize(SERVICE_NAME, b' ');
        let mut message = vec![ELEMENT_SERVICE_NAME, DSN, PSN];
        message.extend_from_slice(&name);
        self.frame(&message, out);
    }

    fn frame(&mut self, message: &[u8], out: &mut Vec<u8>) {
        // 0 is an encoder without numbering.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        let mut body = self.address.to_be_bytes().to_vec();
        body.push(self.sequence);
        body.push(u8::try_from(message.len()).unwrap_or(0));
        body.extend_from_slice(message);
        body.extend_from_slice(&crc(&body).to_be_bytes());
        out.push(START);
        for byte in body {
            match byte.checked_sub(STUFFING) {
                Some(offset @ 0..=2) => out.extend_from_slice(&[STUFFING, offset]),
                _ => out.push(byte),
            }
        }
        out.push(STOP);
    }
}

/// The text in letters that ASCII has: without accents, with plain quotes and dashes, and with `?`
/// for what has no counterpart. RDS's own table agrees with ASCII in letters and digits.
#[must_use]
pub fn fold_to_ascii(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for letter in text.chars() {
        let number = u32::from(letter) as usize;
        match letter {
            '\0'..='\u{7F}' => folded.push(letter),
            '\u{300}'..='\u{36F}' => {}
            '\u{A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{3000}' => folded.push(' '),
            '\u{2018}'..='\u{201B}' | '\u{B4}' | '\u{2032}' => folded.push('\''),
            '\u{201C}'..='\u{201F}' | '\u{AB}' | '\u{BB}' | '\u{2033}' => folded.push('"'),
            '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{B7}' | '\u{2022}' => folded.push('-'),
            '\u{2026}' => folded += "...",
            '\u{A1}' => folded.push('!'),
            '€' => folded += "EUR",
            _ => {
                let plain = number.checked_sub(FIRST_FOLDED);
                let plain = plain.and_then(|at| FOLDED.split(' ').nth(at));
                folded += plain.unwrap_or("?");
            }
        }
    }
    folded
}

/// At most `most` letters in RDS's basic table, which has other signs at five places of ASCII.
fn letters(text: &str, most: usize) -> Vec<u8> {
    let letter = |byte: u8| match byte {
        b'$' => 0xAB,
        b'^' | b'~' => b'-',
        b'`' => b'\'',
        0..=0x1F | 0x7F => b' ',
        other => other,
    };
    fold_to_ascii(text).bytes().take(most).map(letter).collect()
}

/// CRC-16 of CCITT (polynomial 0x1021) from 0xFFFF, inverted.
fn crc(bytes: &[u8]) -> u16 {
    let mut crc = 0xFFFF_u16;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    !crc
}

/// Letters of a radio text.
pub const RADIO_TEXT: usize = 64;

/// Letters of a programme service name.
pub const SERVICE_NAME: usize = 8;

const START: u8 = 0xFE;
const STOP: u8 = 0xFF;
/// It and the two above are replaced inside of a frame.
const STUFFING: u8 = 0xFD;

const ELEMENT_SERVICE_NAME: u8 = 0x02;
const ELEMENT_RADIO_TEXT: u8 = 0x0A;

/// The present data set, and the main programme service.
const DSN: u8 = 0;
const PSN: u8 = 0;

/// The letters from here on, Latin-1 Supplement and Latin Extended-A, in those of ASCII.
const FIRST_FOLDED: usize = 0xC0;
const FOLDED: &str = "A A A A A A AE C E E E E I I I I D N O O O O O x O U U U U Y Th ss a a a a a a ae c e e e e \
     i i i i d n o o o o o / o u u u u y th y A a A a A a C c C c C c C c D d D d E e E e E e E e \
     E e G g G g G g G g H h H h I i I i I i I i I i IJ ij J j K k k L l L l L l L l L l N n N n \
     N n 'n N n O o O o O o OE oe R r R r R r S s S s S s S s T t T t T t U u U u U u U u U u U u \
     W w Y y Y Z z Z z Z z s";

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame without start, stop and stuffing.
    fn body(frame: &[u8]) -> Vec<u8> {
        let inner = &frame[1..frame.len() - 1];
        assert!(inner.iter().all(|byte| *byte < START), "{inner:x?}");
        let (mut body, mut bytes) = (Vec::new(), inner.iter());
        while let Some(byte) = bytes.next() {
            body.push(if *byte == STUFFING { STUFFING + bytes.next().unwrap() } else { *byte });
        }
        body
    }

    #[test]
    fn the_crc_is_that_of_the_catalogue() {
        // The check value of CRC-16/GENIBUS.
        assert_eq!(crc(b"123456789"), 0xD64E);
    }

    #[test]
    fn a_radio_text_is_one_element_with_a_toggle() {
        let (mut writer, mut out) = (UecpWriter::new(0x1234), Vec::new());
        writer.radio_text("Jóga", &mut out);
        let first = body(&out);
        let (message, sum) = first.split_at(first.len() - 2);
        assert_eq!(message, b"\x12\x34\x01\x09\x0A\0\0\x05\x01Joga");
        assert_eq!(sum, crc(message).to_be_bytes());
        out.clear();
        writer.radio_text("x", &mut out);
        assert_eq!(body(&out)[..10], *b"\x12\x34\x02\x06\x0A\0\0\x02\0x");
    }

    #[test]
    fn a_service_name_has_eight_letters() {
        let mut out = Vec::new();
        UecpWriter::new(0).service_name("Radio $1 and more", &mut out);
        assert_eq!(body(&out)[..15], *b"\0\0\x01\x0B\x02\0\0Radio \xAB1");
        out.clear();
        UecpWriter::new(0).service_name("AB", &mut out);
        assert!(body(&out).windows(8).any(|part| part == b"AB      "));
    }

    #[test]
    fn bytes_that_delimit_frames_are_stuffed_and_the_sequence_skips_zero() {
        let mut writer = UecpWriter::new(0xFDFF);
        for turn in 0..600 {
            let mut out = Vec::new();
            writer.radio_text(&"é".repeat(turn), &mut out);
            let body = body(&out);
            let (message, sum) = body.split_at(body.len() - 2);
            assert_eq!(sum, crc(message).to_be_bytes());
            assert_eq!(message.len(), 9 + turn.min(RADIO_TEXT));
            assert_eq!(message[..2], [0xFD, 0xFF]);
            assert_eq!(usize::from(message[2]), turn % 255 + 1);
        }
    }

    #[test]
    fn accents_are_folded() {
        let folded = fold_to_ascii("Çağlar Šimůnek – “Žluťoučký kůň” … Ørsted ſ e\u{301} 東");
        assert_eq!(folded, "Caglar Simunek - \"Zlutoucky kun\" ... Orsted s e ?");
        assert_eq!(FOLDED.split(' ').count(), 0x180 - FIRST_FOLDED);
        assert!(FOLDED.is_ascii());
    }
}
