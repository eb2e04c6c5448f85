//! Which stream of a shared port a datagram belongs to.

use core::net::SocketAddr;

/// Identifies a stream on a shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamKey {
    /// The RTP synchronization source.
    Ssrc(u32),
    /// The address of the sender.
    Sender(SocketAddr),
    /// A number computed by a function of the application.
    Custom(u64),
}

impl StreamKey {
    /// The SSRC of an RTP packet, or of an RTCP packet that shares its port (RFC 5761). `None` for
    /// short packets and versions other than 2.
    #[must_use]
    pub fn ssrc(bytes: &[u8]) -> Option<Self> {
        let [first, kind, ..] = *bytes else { return None };
        let at = if matches!(kind, RTCP_FIRST..=RTCP_LAST) { 4 } else { 8 };
        let ssrc = bytes.get(at..)?.first_chunk()?;
        (first >> 6 == RTP_VERSION).then_some(Self::Ssrc(u32::from_be_bytes(*ssrc)))
    }

    /// The SSRC that an RTCP packet is about: that of its first report block if it has one, else
    /// its sender's. `None` for everything else.
    #[must_use]
    pub fn reported_ssrc(bytes: &[u8]) -> Option<Self> {
        let [first, kind, ..] = *bytes else { return None };
        if first >> 6 != RTP_VERSION || !matches!(kind, RTCP_FIRST..=RTCP_LAST) {
            return None;
        }
        // RFC 3550 section 6.4: report blocks follow the header, or the sender information.
        let at = match (kind, first & RTCP_COUNT) {
            (RTCP_SENDER, 1..) => 28,
            (RTCP_RECEIVER, 1..) => 8,
            _ => 4,
        };
        Some(Self::Ssrc(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?)))
    }
}

const RTP_VERSION: u8 = 2;

/// Sender and receiver reports, and the mask of their report count.
const RTCP_SENDER: u8 = 200;

const RTCP_RECEIVER: u8 = 201;

const RTCP_COUNT: u8 = 0x1F;

/// The RTCP packet types where RTCP shares a port with RTP (RFC 5761 section 4).
const RTCP_FIRST: u8 = 192;

const RTCP_LAST: u8 = 223;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ssrc_is_found_in_rtp_and_in_rtcp_and_in_nothing_else() {
        let rtp = [0x80, 0, 0, 1, 0, 0, 0, 2, 0xDE, 0xAD, 0xBE, 0xEF];
        assert_eq!(StreamKey::ssrc(&rtp), Some(StreamKey::Ssrc(0xDEAD_BEEF)));
        // With the marker bit the second byte is 128 more than the payload type (0 to 34 and 96 to
        // 127).
        assert_eq!(
            StreamKey::ssrc(&[&[0x80, 0x80 | 34], &rtp[2..]].concat()),
            Some(StreamKey::Ssrc(0xDEAD_BEEF))
        );
        let report = [0x80, 200, 0, 1, 0xDE, 0xAD, 0xBE, 0xEF];
        assert_eq!(StreamKey::ssrc(&report), Some(StreamKey::Ssrc(0xDEAD_BEEF)));
        for wrong in [&rtp[..11], &report[..7], &[][..], &[0x80][..], &[0x40; 12][..]] {
            assert_eq!(StreamKey::ssrc(wrong), None, "{wrong:?}");
        }
    }
}
