//! What a certificate says of itself (X.509, RFC 5280, section 4.1): names and dates.
//!
//! `rustls` reads certificates only to verify the other end, and tells no date. A library for all
//! of X.509 would be larger than the five fields that are needed here.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Fields of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFields {
    /// The issuer's name, encoded.
    pub(crate) issuer: Vec<u8>,
    /// The name of the certificate's owner, encoded.
    pub(crate) subject: Vec<u8>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl CertificateFields {
    /// Reads them from a certificate in DER; `None` if it is not one.
    pub(crate) fn parse(der: &[u8]) -> Option<Self> {
        let (certificate, _) = Element::read(der)?.expect(SEQUENCE)?;
        let (mut rest, _) = Element::read(certificate)?.expect(SEQUENCE)?;
        // An absent version is the first one.
        if rest.first() == Some(&VERSION) {
            rest = Element::read(rest)?.rest;
        }
        let (_, rest) = Element::read(rest)?.expect(INTEGER)?;
        let (_, rest) = Element::read(rest)?.expect(SEQUENCE)?;
        let issuer = Element::read(rest)?;
        let (validity, rest) = Element::read(issuer.rest)?.expect(SEQUENCE)?;
        let subject = Element::read(rest)?;
        let not_before = Element::read(validity)?;
        let not_after = Element::read(not_before.rest)?;
        Some(Self {
            issuer: issuer.content.to_vec(),
            subject: subject.content.to_vec(),
            not_before: time(&not_before)?,
            not_after: time(&not_after)?,
        })
    }

    /// Whether its owner has issued it.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// The issuer's common name, for messages; its organization if it has none.
    pub(crate) fn issuer_name(&self) -> Option<String> {
        attribute(&self.issuer, COMMON_NAME).or_else(|| attribute(&self.issuer, ORGANIZATION))
    }
}

/// Whether a key or certificate in DER is of the curve P-521 (RFC 5480, section 2.1.1.1).
pub(crate) fn is_p521(der: &[u8]) -> bool {
    der.windows(SECP521R1.len()).any(|part| part == SECP521R1)
}

/// An element of DER (X.690, section 8.1).
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// What follows it.
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&[tag, first], rest) = bytes.split_first_chunk()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if bytes.len() > MAX_LENGTH_BYTES {
                return None;
            }
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        Some(Self { tag, content, rest })
    }

    /// Content and rest of an element of this kind.
    fn expect(self, tag: u8) -> Option<(&'a [u8], &'a [u8])> {
        (self.tag == tag).then_some((self.content, self.rest))
    }
}

/// `UTCTime` has two digits of the year, from 1950 to 2049 (RFC 5280, section 4.1.2.5.1).
fn time(element: &Element<'_>) -> Option<Timestamp> {
    let text = str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
    let text = match element.tag {
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let civil = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    TimeZone::UTC.to_timestamp(civil).ok()
}

/// A text of a name: a sequence of sets of pairs.
fn attribute(name: &[u8], kind: [u8; 3]) -> Option<String> {
    let mut rest = name;
    while !rest.is_empty() {
        let set = Element::read(rest)?;
        rest = set.rest;
        let (pair, _) = Element::read(set.content)?.expect(SEQUENCE)?;
        let (found, value) = Element::read(pair)?.expect(OBJECT_IDENTIFIER)?;
        if found == kind {
            let text = String::from_utf8_lossy(Element::read(value)?.content).into_owned();
            return Some(text.replace(char::is_control, " "));
        }
    }
    None
}

/// A certificate has a few kilobytes.
const MAX_LENGTH_BYTES: usize = 3;

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const ORGANIZATION: [u8; 3] = [0x55, 4, 10];
const SECP521R1: [u8; 7] = [OBJECT_IDENTIFIER, 5, 0x2b, 0x81, 4, 0, 0x23];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_of_both_kinds_are_read() {
        let of = |tag, text: &str| time(&Element { tag, content: text.as_bytes(), rest: &[] });
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        assert_eq!(of(UTC_TIME, "260301123000Z"), at("2026-03-01T12:30:00Z"));
        assert_eq!(of(UTC_TIME, "991231235959Z"), at("1999-12-31T23:59:59Z"));
        assert_eq!(of(GENERALIZED_TIME, "20500101000000Z"), at("2050-01-01T00:00:00Z"));
        for wrong in ["", "2603011230Z", "260301123000", "261301123000Z"] {
            assert_eq!(of(UTC_TIME, wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(prop_oneof![Just(0x30), Just(2), any::<u8>()], 0..80),
        ) {
            CertificateFields::parse(&bytes);
            attribute(&bytes, COMMON_NAME);
        }
    }
}
