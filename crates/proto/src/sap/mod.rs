//! SAP (RFC 2974): descriptions that are sent to a group again and again, so that whoever listens knows
//! what is on in the network.
//!
//! ```text
//!  flags | authentication length | hash 16 | origin 4 or 16 bytes | authentication | type\0 | SDP
//! ```
//!
//! Nothing of it is signed in practice, so anybody can announce anything. What is kept has limits, for
//! each sender, too; and only who announced a session can take it back.

mod announcer;
mod listener;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

pub use announcer::{Announcer, AnnouncerConfig, INTERVAL};
pub use listener::{
    AnnouncementEvent, EXPIRY_PERIODS, Listener, ListenerConfig, ListenerStats, MAX_PER_SENDER,
    MIN_LIFETIME, RejectReason,
};

/// The port of SAP.
pub const PORT: u16 = 9_875;
/// The group for sessions of the whole world, 224.2.127.254.
pub const GLOBAL: Ipv4Addr = Ipv4Addr::new(224, 2, 127, 254);
/// The group for sessions of a site (239/8), where AES67 devices are, 239.255.255.255.
pub const SITE: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 255);

/// Why a datagram is no announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SapError {
    /// It ends before its header does.
    Short,
    /// A version other than 1.
    Version,
    /// It is encrypted or compressed, which nobody does.
    EncryptedOrCompressed,
    /// Its payload is not SDP.
    NotSdp,
}

impl fmt::Display for SapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "shorter than an SAP header",
            Self::Version => "its SAP version is not 1",
            Self::EncryptedOrCompressed => "it is encrypted or compressed",
            Self::NotSdp => "it does not announce SDP",
        })
    }
}

impl core::error::Error for SapError {}

/// An announcement, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these four and no others")]
pub struct SapPacket<'a> {
    /// The session is over.
    pub deletion: bool,
    /// Names this version of the session, together with `origin`.
    pub hash: u16,
    /// Who announces.
    pub origin: IpAddr,
    /// SDP; of a deletion perhaps no more than its `o=` line.
    pub payload: &'a [u8],
}

impl<'a> SapPacket<'a> {
    /// Checks every length in `datagram`.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
        // The type may be left out; then the payload begins at once (RFC 2974, 6).
        let payload = if rest.starts_with(b"v=0") || rest.starts_with(b"o=") {
            rest
        } else {
            rest.strip_prefix(TYPE).ok_or(SapError::NotSdp)?
        };
        let hash = u16::from_be_bytes([*h0, *h1]);
        Ok(Self { deletion: flags & DELETION != 0, hash, origin, payload })
    }

    /// Writes the announcement to the front of `out` and says how many bytes it has; none when `out`
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

/// A hash of a description: FNV-1a (Fowler, Noll, Vo), folded to 16 bits, and never 0, which once meant
/// that there is none.
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
