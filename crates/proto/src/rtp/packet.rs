//! RTP packets: a checked view of a datagram, and the header as a value.
//!
//! All lengths are checked when the view is created, so its methods need no further checks.

use core::fmt;
use core::ops::Range;

/// Length of a header without contributing sources and extension, the only form that is written.
pub const HEADER_LEN: usize = 12;
/// Maximum number of contributing sources in a header.
pub const MAX_SOURCES: usize = 15;

/// Whether a datagram on a port that RTP and RTCP share is RTCP (RFC 5761, 4): its second byte is
/// 192 to 223. In RTP that would be a marker with one of the payload types 64 to 95, which are not
/// used on such a port.
///
/// # Real-time
/// Neither allocates nor waits.
#[must_use]
pub fn is_rtcp(datagram: &[u8]) -> bool {
    matches!(datagram.get(1), Some(192..=223))
}

/// Reason why a datagram is not an RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RtpError {
    /// Shorter than a header.
    Short,
    /// RTP version other than 2.
    Version,
    /// The contributing sources exceed the packet.
    Sources,
    /// The header extension exceeds the packet.
    Extension,
    /// The padding is empty or exceeds the payload.
    Padding,
}

impl fmt::Display for RtpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "shorter than an RTP header",
            Self::Version => "the RTP version is not 2",
            Self::Sources => "the list of contributing sources exceeds the packet",
            Self::Extension => "the header extension exceeds the packet",
            Self::Padding => "the padding exceeds the packet",
        })
    }
}

impl core::error::Error for RtpError {}

/// Number of rejected datagrams, by error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "one count per kind")]
pub struct RtpErrorCounts {
    /// See [`RtpError::Short`].
    pub short: u64,
    /// See [`RtpError::Version`].
    pub version: u64,
    /// See [`RtpError::Sources`].
    pub sources: u64,
    /// See [`RtpError::Extension`].
    pub extension: u64,
    /// See [`RtpError::Padding`].
    pub padding: u64,
}

impl RtpErrorCounts {
    /// Counts an error.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn count(&mut self, why: RtpError) {
        let count = match why {
            RtpError::Short => &mut self.short,
            RtpError::Version => &mut self.version,
            RtpError::Sources => &mut self.sources,
            RtpError::Extension => &mut self.extension,
            RtpError::Padding => &mut self.padding,
        };
        *count = count.saturating_add(1);
    }

    /// Sum of all counters.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.short, self.version, self.sources, self.extension, self.padding]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// A header extension (RFC 3550, 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these two and no others")]
pub struct HeaderExtension<'a> {
    /// Identifies the format of the data: 0xbede for one-byte elements of RFC 8285.
    pub profile: u16,
    /// Data; its length is a multiple of four bytes.
    pub data: &'a [u8],
}

/// A checked RTP packet.
///
/// # Examples
/// ```
/// use aulos_proto::rtp::{HEADER_LEN, RtpHeader, RtpPacket};
///
/// let header = RtpHeader { sequence: 7, timestamp: 160, ssrc: 1, ..RtpHeader::default() };
/// let mut datagram = vec![0; HEADER_LEN + 160];
/// assert_eq!(header.write(&mut datagram), Some(HEADER_LEN));
/// let packet = RtpPacket::parse(&datagram)?;
/// assert_eq!((packet.header(), packet.payload().len()), (header, 160));
/// # Ok::<(), aulos_proto::rtp::RtpError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RtpPacket<'a> {
    header: &'a [u8; HEADER_LEN],
    sources: &'a [u8],
    extension: &'a [u8],
    payload: &'a [u8],
}

impl<'a> RtpPacket<'a> {
    /// Parses a datagram and checks every length in it.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    ///
    /// # Errors
    /// The first violation.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, RtpError> {
        let (header, rest) = datagram.split_first_chunk::<HEADER_LEN>().ok_or(RtpError::Short)?;
        let [flags, ..] = *header;
        if flags >> 6 != VERSION {
            return Err(RtpError::Version);
        }
        let sources = usize::from(flags & SOURCES) * 4;
        let (sources, rest) = rest.split_at_checked(sources).ok_or(RtpError::Sources)?;
        let (extension, rest) = if flags & EXTENSION == 0 {
            rest.split_at(0)
        } else {
            let (head, _) = rest.split_first_chunk().ok_or(RtpError::Extension)?;
            let [_, _, high, low] = *head;
            let length = 4 + usize::from(u16::from_be_bytes([high, low])) * 4;
            rest.split_at_checked(length).ok_or(RtpError::Extension)?
        };
        let payload = if flags & PADDING == 0 {
            rest
        } else {
            let padding = usize::from(*rest.last().ok_or(RtpError::Padding)?);
            let end = rest.len().checked_sub(padding).filter(|_| padding > 0);
            end.and_then(|end| rest.get(..end)).ok_or(RtpError::Padding)?
        };
        Ok(Self { header, sources, extension, payload })
    }

    /// Marker bit: in audio, the first packet of a talk spurt (RFC 3551, 4.1).
    #[must_use]
    pub fn marker(&self) -> bool {
        self.byte(field::TYPE) & MARKER != 0
    }

    /// Payload type, 0 to 127.
    #[must_use]
    pub fn payload_type(&self) -> u8 {
        self.byte(field::TYPE) & !MARKER
    }

    /// Sequence number; increases by one with each packet of a source, and wraps.
    #[must_use]
    pub fn sequence(&self) -> u16 {
        u16::from_be_bytes(self.field(field::SEQUENCE))
    }

    /// Sampling instant of the first frame, in units of the encoding's clock; wraps.
    #[must_use]
    pub fn timestamp(&self) -> u32 {
        u32::from_be_bytes(self.field(field::TIMESTAMP))
    }

    /// SSRC of the source.
    #[must_use]
    pub fn ssrc(&self) -> u32 {
        u32::from_be_bytes(self.field(field::SSRC))
    }

    /// Contributing sources that a mixer combined; usually empty.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        let (sources, _) = self.sources.as_chunks();
        sources.iter().map(|source| u32::from_be_bytes(*source))
    }

    /// Header extension, if present.
    #[must_use]
    pub fn extension(&self) -> Option<HeaderExtension<'a>> {
        let (head, data) = self.extension.split_first_chunk()?;
        let [high, low, ..]: [u8; 4] = *head;
        Some(HeaderExtension { profile: u16::from_be_bytes([high, low]), data })
    }

    /// Payload without padding; may be empty.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The fixed header as a value, for forwarding.
    #[must_use]
    pub fn header(&self) -> RtpHeader {
        RtpHeader {
            marker: self.marker(),
            payload_type: self.payload_type(),
            sequence: self.sequence(),
            timestamp: self.timestamp(),
            ssrc: self.ssrc(),
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.header.get(at).copied().unwrap_or(0)
    }

    fn field<const N: usize>(&self, range: Range<usize>) -> [u8; N] {
        self.header.get(range).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }
}

/// Fixed header, without contributing sources, extension and padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these five and no others")]
pub struct RtpHeader {
    /// First packet of a talk spurt.
    pub marker: bool,
    /// Payload type, 0 to 127; the eighth bit is ignored.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Sampling instant of the first frame, in units of the encoding's clock.
    pub timestamp: u32,
    /// SSRC of the source.
    pub ssrc: u32,
}

impl RtpHeader {
    /// Writes the header to the front of `out` and returns its length, [`HEADER_LEN`]. Writes
    /// nothing and returns `None` when `out` is too short.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    #[must_use = "nothing is written to a buffer that is too short"]
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        *out.first_chunk_mut()? = self.to_bytes();
        Some(HEADER_LEN)
    }

    /// The encoded header.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let [s0, s1] = self.sequence.to_be_bytes();
        let [t0, t1, t2, t3] = self.timestamp.to_be_bytes();
        let [i0, i1, i2, i3] = self.ssrc.to_be_bytes();
        let marker = if self.marker { MARKER } else { 0 };
        let kind = marker | (self.payload_type & !MARKER);
        [VERSION << 6, kind, s0, s1, t0, t1, t2, t3, i0, i1, i2, i3]
    }
}

const VERSION: u8 = 2;
const PADDING: u8 = 0x20;
const EXTENSION: u8 = 0x10;
const SOURCES: u8 = 0x0f;
const MARKER: u8 = 0x80;

/// Offsets in the fixed header.
mod field {
    use core::ops::Range;

    pub(super) const TYPE: usize = 1;
    pub(super) const SEQUENCE: Range<usize> = 2..4;
    pub(super) const TIMESTAMP: Range<usize> = 4..8;
    pub(super) const SSRC: Range<usize> = 8..12;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet with every optional part, laid out by hand after RFC 3550, 5.1 and 5.3.1: padding,
    /// extension, two contributing sources, marker, type 96.
    const FULL: [u8; 38] = [
        0xb2, 0xe0, 0x12, 0x34, 0x00, 0x00, 0x03, 0xe8, 0xde, 0xad, 0xbe, 0xef, // header
        0x00, 0x00, 0x00, 0x01, 0x80, 0x00, 0x00, 0x02, // contributing sources
        0xbe, 0xde, 0x00, 0x01, 0x10, 0xff, 0x00, 0x00, // extension
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, // payload
        0x00, 0x00, 0x00, 0x04, // padding
    ];

    #[test]
    fn everything_a_header_can_have() {
        let packet = RtpPacket::parse(&FULL).unwrap();
        let header = RtpHeader {
            marker: true,
            payload_type: 96,
            sequence: 0x1234,
            timestamp: 1_000,
            ssrc: 0xdead_beef,
        };
        assert_eq!(packet.header(), header);
        assert_eq!(packet.sources().collect::<Vec<_>>(), [1, 0x8000_0002]);
        let extension = HeaderExtension { profile: 0xbede, data: &[0x10, 0xff, 0, 0] };
        assert_eq!(packet.extension(), Some(extension));
        assert_eq!(packet.payload(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn every_lie_has_its_kind() {
        let cut = |length| RtpPacket::parse(&FULL[..length]).unwrap_err();
        assert_eq!((cut(0), cut(11)), (RtpError::Short, RtpError::Short));
        assert_eq!((cut(12), cut(19)), (RtpError::Sources, RtpError::Sources));
        assert_eq!((cut(20), cut(23), cut(27)), {
            (RtpError::Extension, RtpError::Extension, RtpError::Extension)
        });
        assert_eq!(cut(28), RtpError::Padding);
        let with = |at: usize, byte| {
            let mut bytes = FULL;
            bytes[at] = byte;
            RtpPacket::parse(&bytes).map(|packet| packet.payload().len())
        };
        assert_eq!(with(0, 0x72), Err(RtpError::Version));
        assert_eq!(with(37, 0), Err(RtpError::Padding));
        assert_eq!(with(37, 11), Err(RtpError::Padding));
        assert_eq!(with(37, 10), Ok(0));
        let mut refused = RtpErrorCounts::default();
        refused.count(RtpError::Padding);
        refused.count(RtpError::Short);
        assert_eq!((refused.total(), refused.padding), (2, 1));
    }

    #[test]
    fn rtcp_is_distinguished_from_rtp_by_its_second_byte() {
        let with = |byte| is_rtcp(&[0x80, byte]);
        assert!((200..=207).all(with) && with(192) && with(223));
        assert!(!(0..=127).any(with) && !(128..192).any(with) && !(224..=255).any(with));
        assert!(!is_rtcp(&[]) && !is_rtcp(&[0x80]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            marker: bool, payload_type in 0_u8..128, sequence: u16, timestamp: u32, ssrc: u32,
            payload in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let header = RtpHeader { marker, payload_type, sequence, timestamp, ssrc };
            let mut bytes = vec![0; HEADER_LEN];
            prop_assert_eq!(header.write(&mut bytes), Some(HEADER_LEN));
            prop_assert_eq!(header.write(&mut bytes[..11]), None);
            bytes.extend(&payload);
            let packet = RtpPacket::parse(&bytes).unwrap();
            prop_assert_eq!(packet.header(), header);
            prop_assert_eq!(packet.payload(), payload);
            prop_assert_eq!((packet.sources().len(), packet.extension()), (0, None));
        }

        /// The lengths of the parts and of the padding add up to the length of the datagram.
        #[test]
        fn nothing_is_read_twice(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(packet) = RtpPacket::parse(&bytes) {
                let extension = packet.extension().map_or(0, |extension| 4 + extension.data.len());
                let padding = if bytes[0] & 0x20 == 0 { 0 } else { usize::from(bytes[bytes.len() - 1]) };
                let parts = packet.sources().len() * 4 + extension + packet.payload().len();
                prop_assert_eq!(HEADER_LEN + parts + padding, bytes.len());
            }
        }
    }
}
