//! SAP (RFC 2974): session descriptions that are sent periodically to a multicast group, so that
//! receivers learn which sessions exist.
//!
//! ```text
//!  flags | authentication length | hash 16 | origin 4 or 16 bytes | authentication | type\0 | SDP
//! ```
//!
//! In practice no announcement is authenticated, so any host can announce any session. The number
//! of stored sessions is limited, also per sender, and only the announcing host can delete or
//! change a session.

mod announcer;
mod listener;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

pub use announcer::{AnnouncerConfig, INTERVAL, SapAnnouncer};
pub use listener::{
    EXPIRY_PERIODS, Listener, ListenerConfig, ListenerStats, MAX_PER_SENDER, MIN_LIFETIME,
    RejectReason, SapEvent,
};

/// UDP port of SAP.
pub const PORT: u16 = 9_875;
/// Group for sessions with global scope, 224.2.127.254.
pub const GLOBAL: Ipv4Addr = Ipv4Addr::new(224, 2, 127, 254);
/// Group for sessions with administrative scope (239/8), which AES67 devices use, 239.255.255.255.
pub const SITE: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 255);

/// Reason why a datagram is not an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SapError {
    /// Shorter than its header.
    Short,
    /// SAP version other than 1.
    Version,
    /// Encrypted or compressed; not used in practice.
    EncryptedOrCompressed,
    /// The payload type is not SDP.
    NotSdp,
}

impl fmt::Display for SapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "shorter than an SAP header",
            Self::Version => "the SAP version is not 1",
            Self::EncryptedOrCompressed => {
                "encrypted or compressed announcements are not supported"
            }
            Self::NotSdp => "the payload is not SDP",
        })
    }
}

impl core::error::Error for SapError {}

/// Announcement or deletion of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these four and no others")]
pub struct SapPacket<'a> {
    /// Deletion: the session has ended.
    pub deletion: bool,
    /// Together with `origin`, identifies this version of the session.
    pub hash: u16,
    /// Address of the announcing host.
    pub origin: IpAddr,
    /// SDP; in a deletion possibly just the `o=` line.
    pub payload: &'a [u8],
}

impl<'a> SapPacket<'a> {
    /// Parses a datagram and checks every length in it.
    ///
    /// # Errors
    /// The first violation.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, SapError> {
        let ([flags, words, h0, h1], rest) =
            datagram.split_first_chunk::<4>().ok_or(SapError::Short)?;
        if flags >> 5 != VERSION {
            return Err(SapError::Version);
        }
        if flags & (ENCRYPTED | COMPRESSED) != 0 {
            return Err(SapError::EncryptedOrCompressed);
        }
        let (origin, rest) = if flags & IPV6 == 0 {
            let (origin, rest) = rest.split_first_chunk::<4>().ok_or(SapError::Short)?;
            (IpAddr::from(*origin), rest)
        } else {
            let (origin, rest) = rest.split_first_chunk::<16>().ok_or(SapError::Short)?;
            (IpAddr::from(*origin), rest)
        };
        let rest = rest.get(usize::from(*words) * 4..).ok_or(SapError::Short)?;
        // The payload type is optional; without it the payload follows at once (RFC 2974, 6).
        let payload = if rest.starts_with(b"v=0") || rest.starts_with(b"o=") {
            rest
        } else {
            rest.strip_prefix(TYPE).ok_or(SapError::NotSdp)?
        };
        let hash = u16::from_be_bytes([*h0, *h1]);
        Ok(Self { deletion: flags & DELETION != 0, hash, origin, payload })
    }

    /// Writes the packet to the front of `out` and returns its length in bytes; `None` when `out`
    /// is too short.
    #[must_use = "nothing is written to a buffer that is too short"]
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let mut flags = VERSION << 5;
        if self.deletion {
            flags |= DELETION;
        }
        let (v4, v6);
        let origin: &[u8] = match self.origin {
            IpAddr::V4(origin) => {
                v4 = origin.octets();
                &v4
            }
            IpAddr::V6(origin) => {
                flags |= IPV6;
                v6 = origin.octets();
                &v6
            }
        };
        let [h0, h1] = self.hash.to_be_bytes();
        let parts = [&[flags, 0, h0, h1], origin, TYPE, self.payload];
        let total = parts.iter().map(|part| part.len()).sum();
        let mut place = out.get_mut(..total)?;
        for part in parts {
            let (front, behind) = place.split_at_mut_checked(part.len())?;
            front.copy_from_slice(part);
            place = behind;
        }
        Some(total)
    }
}

/// Hash of a description: FNV-1a (Fowler, Noll, Vo), folded to 16 bits. Never 0, which earlier
/// versions of SAP used for "no hash".
#[must_use]
pub fn description_hash(payload: &[u8]) -> u16 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let [a, b, c, d] = payload.iter().fold(0x811c_9dc5, step).to_be_bytes();
    u16::from_be_bytes([a ^ c, b ^ d]).max(1)
}

const VERSION: u8 = 1;
const IPV6: u8 = 0x10;
const DELETION: u8 = 0x04;
const ENCRYPTED: u8 = 0x02;
const COMPRESSED: u8 = 0x01;
const TYPE: &[u8] = b"application/sdp\0";

#[cfg(test)]
mod tests;
