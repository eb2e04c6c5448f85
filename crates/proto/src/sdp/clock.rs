//! Clock attributes in SDP (RFC 7273): the reference clock and its relation to the timestamps.

use core::fmt;

/// Reference clock of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReferenceClock {
    /// PTP of a version such as `IEEE1588-2008`.
    Ptp {
        /// Version of PTP.
        version: String,
        /// Identity of the grandmaster; `None` when any traceable one is allowed.
        grandmaster: Option<[u8; 8]>,
        /// PTP domain.
        domain: Option<u8>,
    },
    /// The sender's own clock, identified by its network interface.
    LocalMac([u8; 6]),
    /// Any other clock, as written: `ntp=`, `gps`, `local`, `private`.
    Other(String),
}

impl ReferenceClock {
    /// Parses the value of `ts-refclk:`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let Some((kind, value)) = text.split_once('=') else {
            return (!text.is_empty()).then(|| Self::Other(text.to_owned()));
        };
        match kind {
            "ptp" => {
                let mut parts = value.splitn(3, ':');
                let version = parts.next().filter(|version| !version.is_empty())?.to_owned();
                let identity = parts.next();
                let grandmaster = match identity {
                    None | Some("traceable") => None,
                    Some(identity) => Some(octets(identity)?),
                };
                let domain = match parts.next() {
                    // IEEE 1588-2002 has names for domains.
                    Some(domain) => domain.trim_start_matches("domain-nmbr=").parse().ok(),
                    None => None,
                };
                Some(Self::Ptp { version, grandmaster, domain })
            }
            "localmac" => octets(value).map(Self::LocalMac),
            _ => Some(Self::Other(text.to_owned())),
        }
    }
}

impl fmt::Display for ReferenceClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ptp { version, grandmaster: Some(identity), domain } => {
                write!(f, "ptp={version}:{}", DisplayOctets(identity))?;
                domain.map_or(Ok(()), |domain| write!(f, ":{domain}"))
            }
            Self::Ptp { version, grandmaster: None, .. } => write!(f, "ptp={version}:traceable"),
            Self::LocalMac(mac) => write!(f, "localmac={}", DisplayOctets(mac)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Relation of the timestamps to the reference clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaClock {
    /// The timestamps are the time of the reference clock in units of the encoding's clock, plus an
    /// offset.
    Direct {
        /// Offset of the timestamps.
        offset: u64,
        /// Ratio of the actual rate to the one in `rtpmap`, such as 1000/1001.
        rate: Option<(u32, u32)>,
    },
    /// The timestamps are not related to the reference clock.
    Sender,
}

impl MediaClock {
    /// Parses the value of `mediaclk:`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let first = words.next()?;
        if first == "sender" {
            return Some(Self::Sender);
        }
        let offset = first.strip_prefix("direct")?;
        let offset = match offset.strip_prefix('=') {
            Some(offset) => offset.parse().ok()?,
            None if offset.is_empty() => 0,
            None => return None,
        };
        let rate = match words.next() {
            Some(rate) => {
                let (over, under) = rate.strip_prefix("rate=")?.split_once('/')?;
                Some((over.parse().ok()?, under.parse().ok().filter(|under| *under > 0)?))
            }
            None => None,
        };
        Some(Self::Direct { offset, rate })
    }
}

impl fmt::Display for MediaClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct { offset, rate: None } => write!(f, "direct={offset}"),
            Self::Direct { offset, rate: Some((over, under)) } => {
                write!(f, "direct={offset} rate={over}/{under}")
            }
            Self::Sender => f.write_str("sender"),
        }
    }
}

/// Parses hexadecimal octets separated by dashes.
fn octets<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut octets = [0; N];
    let mut parts = text.split('-');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *octet = u8::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+'))?;
    }
    parts.next().is_none().then_some(octets)
}

/// Formats octets in the same notation.
struct DisplayOctets<'a>(&'a [u8]);

impl fmt::Display for DisplayOctets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for octet in self.0 {
            write!(f, "{between}{octet:02X}")?;
            between = "-";
        }
        Ok(())
    }
}
