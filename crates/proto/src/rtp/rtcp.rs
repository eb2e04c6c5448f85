//! RTCP packets (RFC 3550, 6; RFC 3611): a checked view of received datagrams, and an encoder.
//!
//! A datagram is checked completely before its packets are returned. Unused packet types (APP,
//! feedback, the other report blocks of XR) are skipped.

mod write;

use core::fmt;

use aulos_core::Span;

pub use write::RtcpWriter;

/// Length of a report block in bytes.
pub const BLOCK_LEN: usize = 24;
/// Maximum number of report blocks, chunks or sources in a packet: the count has five bits.
pub const MAX_COUNT: usize = 31;
/// Maximum length of a CNAME, or of a reason for leaving, in bytes.
pub const MAX_TEXT: usize = 255;

/// Packet types.
mod packet_type {
    pub(super) const SENDER_REPORT: u8 = 200;
    pub(super) const RECEIVER_REPORT: u8 = 201;
    pub(super) const SOURCE_DESCRIPTION: u8 = 202;
    pub(super) const BYE: u8 = 203;
    pub(super) const EXTENDED: u8 = 207;
    /// SDES items and XR block types.
    pub(super) const CNAME: u8 = 1;
    pub(super) const REFERENCE_TIME: u8 = 4;
    pub(super) const DLRR: u8 = 5;
}

/// NTP timestamp: seconds since 1900 with 32 fractional bits; wraps in 2036.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NtpTime(u64);

impl NtpTime {
    /// From the wire format.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// From the time since 1 January 1970.
    #[must_use]
    pub fn from_unix(since: Span) -> Self {
        Self(2_208_988_800 << 32).after(since)
    }

    /// In the wire format.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The middle 32 bits, in 1/65,536 s, as reports use them.
    #[must_use]
    pub const fn middle_bits(self) -> u32 {
        super::sequence::low_32(self.0 >> 16)
    }

    /// This time plus `span`, which may be negative.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        let units = (i128::from(span.as_nanos()) << 32).div_euclid(1_000_000_000);
        let units = u64::try_from(units.rem_euclid(1 << 64)).unwrap_or(0);
        Self(self.0.wrapping_add(units))
    }
}

/// Converts a span to 1/65,536 s for reports; negative spans become 0, and 18 hours are the
/// maximum.
#[must_use]
pub(super) fn to_ntp_short(span: Span) -> u32 {
    let units = (i128::from(span.as_nanos().max(0)) << 16) / 1_000_000_000;
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Converts 1/65,536 s to a span.
pub(super) fn from_ntp_short(units: u32) -> Span {
    Span::from_nanos((i64::from(units) * 1_000_000_000) >> 16)
}

/// Reason why a datagram is not RTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RtcpError {
    /// Shorter than a header, or a truncated header at the end.
    Short,
    /// RTCP version other than 2.
    Version,
    /// A packet exceeds the datagram.
    Length,
    /// Padding before the last packet, empty, or longer than the packet.
    Padding,
    /// Report blocks, sources or items exceed their packet.
    Count,
}

impl fmt::Display for RtcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "shorter than an RTCP header",
            Self::Version => "the RTCP version is not 2",
            Self::Length => "an RTCP packet exceeds the datagram",
            Self::Padding => "the RTCP padding exceeds the last packet",
            Self::Count => "the item count exceeds the RTCP packet",
        })
    }
}

impl core::error::Error for RtcpError {}

/// Reception report about a source (RFC 3550, 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these seven and no others")]
pub struct ReportBlock {
    /// SSRC of the source.
    pub ssrc: u32,
    /// Fraction of packets lost since the last report, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost since the beginning; a signed 24-bit number.
    pub cumulative_lost: i32,
    /// Extended highest sequence number: the cycles, and the highest value in the lower 16 bits.
    pub highest: u32,
    /// Interarrival jitter in units of the source's clock.
    pub jitter: u32,
    /// Middle 32 bits of the NTP time of the source's last report; 0 without one.
    pub last_report: u32,
    /// Time since that report was received, in 1/65,536 s.
    pub delay: u32,
}

/// Sender information (RFC 3550, 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these four and no others")]
pub struct SenderInfo {
    /// Time of the report.
    pub ntp: NtpTime,
    /// The same instant on the clock of the RTP timestamps.
    pub timestamp: u32,
    /// Packets sent since the beginning; wraps.
    pub packets: u32,
    /// Payload bytes sent since the beginning; wraps.
    pub octets: u32,
}

/// DLRR sub-block, the answer to a receiver's reference time (RFC 3611, 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these three and no others")]
pub struct DlrrBlock {
    /// SSRC of the receiver.
    pub ssrc: u32,
    /// Middle 32 bits of its reference time.
    pub last_report: u32,
    /// Time since the reference time was received, in 1/65,536 s.
    pub delay: u32,
}

/// A packet of a compound datagram.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RtcpPacket<'a> {
    /// SR, or RR without `sender`.
    Report {
        /// SSRC of the reporting member.
        ssrc: u32,
        /// Sender information.
        sender: Option<SenderInfo>,
        /// Report blocks.
        blocks: ReportBlocks<'a>,
    },
    /// SDES: descriptions of sources.
    SourceDescription(SdesChunks<'a>),
    /// BYE: leaving sources.
    Bye(ByeSources<'a>),
    /// XR: extended report.
    Extended {
        /// SSRC of the reporting member.
        ssrc: u32,
        /// Reference times and their answers; other blocks are skipped.
        blocks: ExtendedBlocks<'a>,
    },
    /// Any other packet type.
    Other(u8),
}

/// A checked RTCP datagram. It need not begin with a report (RFC 5506).
///
/// # Examples
/// ```
/// use aulos_proto::rtp::rtcp::{CompoundPacket, RtcpPacket, RtcpWriter};
///
/// let mut out = [0; 100];
/// let mut writer = RtcpWriter::new(&mut out);
/// writer.report(7, None, 0, core::iter::empty());
/// writer.cname(7, "aulos@192.0.2.1");
/// let compound = CompoundPacket::parse(writer.finish())?;
/// let report = compound.packets().next();
/// assert!(matches!(report, Some(RtcpPacket::Report { ssrc: 7, sender: None, .. })));
/// # Ok::<(), aulos_proto::rtp::rtcp::RtcpError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CompoundPacket<'a>(&'a [u8]);

impl<'a> CompoundPacket<'a> {
    /// Parses a datagram and checks every length in it.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    ///
    /// # Errors
    /// The first violation; the whole datagram is then rejected.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, RtcpError> {
        let mut rest = datagram;
        loop {
            rest = part(rest)?.1;
            if rest.is_empty() {
                return Ok(Self(datagram));
            }
        }
    }

    /// The packets in their order.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn packets(&self) -> impl Iterator<Item = RtcpPacket<'a>> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (found, behind) = part(rest).ok()?;
            rest = behind;
            Some(found)
        })
    }

    /// Length of the datagram in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.0.len()
    }
}

/// Splits off the first packet.
fn part(bytes: &[u8]) -> Result<(RtcpPacket<'_>, &[u8]), RtcpError> {
    let ([flags, number, high, low], _) = bytes.split_first_chunk::<4>().ok_or(RtcpError::Short)?;
    if flags >> 6 != VERSION {
        return Err(RtcpError::Version);
    }
    let length = 4 + usize::from(u16::from_be_bytes([*high, *low])) * 4;
    let (packet, rest) = bytes.split_at_checked(length).ok_or(RtcpError::Length)?;
    let mut body = packet.get(4..).unwrap_or_default();
    if flags & PADDING != 0 {
        let padding = usize::from(body.last().copied().unwrap_or(0));
        let end = body.len().checked_sub(padding).filter(|_| padding > 0 && rest.is_empty());
        body = end.and_then(|end| body.get(..end)).ok_or(RtcpError::Padding)?;
    }
    let count = usize::from(flags & COUNT);
    Ok((parse_body(*number, count, body).ok_or(RtcpError::Count)?, rest))
}

/// Parses the body of a packet; `None` when its count exceeds its length.
fn parse_body(number: u8, count: usize, body: &[u8]) -> Option<RtcpPacket<'_>> {
    Some(match number {
        packet_type::SENDER_REPORT => {
            let (head, rest) = body.split_first_chunk::<24>()?;
            let mut words = head.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
            let mut word = || words.next().unwrap_or(0);
            let ssrc = word();
            let ntp = NtpTime(u64::from(word()) << 32 | u64::from(word()));
            let sender = SenderInfo { ntp, timestamp: word(), packets: word(), octets: word() };
            RtcpPacket::Report {
                ssrc,
                sender: Some(sender),
                blocks: ReportBlocks::take(count, rest)?,
            }
        }
        packet_type::RECEIVER_REPORT => {
            let (ssrc, rest) = word(body)?;
            RtcpPacket::Report { ssrc, sender: None, blocks: ReportBlocks::take(count, rest)? }
        }
        packet_type::SOURCE_DESCRIPTION => {
            let chunks = SdesChunks { count, rest: body };
            let mut check = chunks;
            (0..count).try_for_each(|_| check.step().map(drop))?;
            RtcpPacket::SourceDescription(chunks)
        }
        packet_type::BYE => {
            let (sources, rest) = body.split_at_checked(4 * count)?;
            let reason = match rest.split_first() {
                Some((length, text)) => text.get(..usize::from(*length))?,
                None => &[],
            };
            RtcpPacket::Bye(ByeSources { sources: sources.as_chunks().0, reason })
        }
        packet_type::EXTENDED => {
            let (ssrc, rest) = word(body)?;
            let mut check = rest;
            while !check.is_empty() {
                check = extended(check)?.2;
            }
            RtcpPacket::Extended { ssrc, blocks: ExtendedBlocks(rest) }
        }
        other => RtcpPacket::Other(other),
    })
}

/// Report blocks of a packet.
#[derive(Clone, Copy, Debug)]
pub struct ReportBlocks<'a>(&'a [[u8; BLOCK_LEN]]);

impl<'a> ReportBlocks<'a> {
    fn take(count: usize, body: &'a [u8]) -> Option<Self> {
        body.as_chunks().0.get(..count).map(Self)
    }

    /// The blocks in their order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = ReportBlock> + use<'a> {
        self.0.iter().map(|bytes| {
            let mut words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
            let mut word = || words.next().unwrap_or(0);
            let (ssrc, loss) = (word(), word());
            ReportBlock {
                ssrc,
                fraction_lost: loss.to_be_bytes()[0],
                cumulative_lost: (loss << 8).cast_signed() >> 8,
                highest: word(),
                jitter: word(),
                last_report: word(),
                delay: word(),
            }
        })
    }
}

/// SDES chunks of a packet.
#[derive(Clone, Copy, Debug)]
pub struct SdesChunks<'a> {
    count: usize,
    rest: &'a [u8],
}

impl<'a> SdesChunks<'a> {
    /// SSRC and CNAME of every source that has one.
    pub fn cnames(mut self) -> impl Iterator<Item = (u32, &'a [u8])> {
        let step = move |_| self.step();
        (0..self.count).map_while(step).filter_map(|(ssrc, name)| Some((ssrc, name?)))
    }

    /// The next source and its CNAME; `None` when the items exceed the packet.
    fn step(&mut self) -> Option<(u32, Option<&'a [u8]>)> {
        let (ssrc, items) = word(self.rest)?;
        let (mut rest, mut name) = (items, None);
        loop {
            let (number, behind) = rest.split_first()?;
            if *number == 0 {
                break;
            }
            let (length, behind) = behind.split_first()?;
            let (text, behind) = behind.split_at_checked(usize::from(*length))?;
            if *number == packet_type::CNAME {
                name = name.or(Some(text));
            }
            rest = behind;
        }
        // The items end with at least one zero and are padded to whole words.
        let used = (items.len() - rest.len() + 1).next_multiple_of(4);
        self.rest = items.get(used..)?;
        Some((ssrc, name))
    }
}

/// Sources of a BYE packet.
#[derive(Clone, Copy, Debug)]
pub struct ByeSources<'a> {
    sources: &'a [[u8; 4]],
    reason: &'a [u8],
}

impl<'a> ByeSources<'a> {
    /// SSRCs of the leaving sources.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.sources.iter().map(|source| u32::from_be_bytes(*source))
    }

    /// Reason for leaving; empty when absent.
    #[must_use]
    pub const fn reason(self) -> &'a [u8] {
        self.reason
    }
}

/// Blocks of an extended report.
#[derive(Clone, Copy, Debug)]
pub struct ExtendedBlocks<'a>(&'a [u8]);

/// A block of an extended report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendedBlock {
    /// Receiver reference time: the receiver measures its round-trip time.
    ReferenceTime(NtpTime),
    /// Answer to a reference time.
    Dlrr(DlrrBlock),
}

impl<'a> ExtendedBlocks<'a> {
    /// The blocks of known types.
    pub fn iter(self) -> impl Iterator<Item = ExtendedBlock> + use<'a> {
        let (mut rest, mut delays) = (self.0, [].iter());
        core::iter::from_fn(move || {
            loop {
                if let Some(delay) = delays.next() {
                    return Some(ExtendedBlock::Dlrr(parse_dlrr(delay)));
                }
                let (number, body, behind) = extended(rest)?;
                rest = behind;
                match (number, body.first_chunk()) {
                    (packet_type::REFERENCE_TIME, Some(ntp)) => {
                        return Some(ExtendedBlock::ReferenceTime(NtpTime(u64::from_be_bytes(
                            *ntp,
                        ))));
                    }
                    (packet_type::DLRR, _) => delays = body.as_chunks::<12>().0.iter(),
                    _ => {}
                }
            }
        })
    }
}

fn parse_dlrr(bytes: &[u8; 12]) -> DlrrBlock {
    let mut words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
    let mut word = || words.next().unwrap_or(0);
    DlrrBlock { ssrc: word(), last_report: word(), delay: word() }
}

/// Type and body of the first block of an extended report, and the rest.
fn extended(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let ([number, _, high, low], rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_be_bytes([*high, *low])) * 4;
    let (body, rest) = rest.split_at_checked(length)?;
    Some((*number, body, rest))
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*word), rest))
}

const VERSION: u8 = 2;
const PADDING: u8 = 0x20;
const COUNT: u8 = 0x1f;

#[cfg(test)]
mod tests;
