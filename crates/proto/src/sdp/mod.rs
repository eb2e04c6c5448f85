//! SDP (RFC 8866) for audio over RTP: addresses, encodings, packet times and clocks.
//!
//! The crate `sdp-types` supports more of SDP, but its attributes do not keep their line numbers,
//! and an error message for a pasted description must name the line and the expected text. The
//! tests use that crate to verify this implementation.
//!
//! Session-level values are copied into the media they apply to, so readers find everything in one
//! place. Unknown lines are ignored; invalid known ones are errors.

mod clock;
mod parse;
mod write;

use core::fmt;
use core::net::IpAddr;

use aulos_core::Span;

pub use clock::{MediaClock, ReferenceClock};

use crate::rtp::Encoding;

/// Maximum size of a description in bytes. AES67 devices send less than 2 kB.
pub const MAX_BYTES: usize = 16 * 1_024;
/// Maximum number of lines of a description.
pub const MAX_LINES: usize = 512;
/// Maximum number of media of a description.
pub const MAX_MEDIA: usize = 32;
/// Maximum number of payload types per media, sources per filter and members per group.
pub const MAX_LIST: usize = 32;

/// Description of a session.
///
/// # Examples
/// ```
/// use aulos_proto::sdp::SessionDescription;
///
/// let text = "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=Hall\nc=IN IP4 239.1.2.3/32\nt=0 0\n\
///             m=audio 5004 RTP/AVP 96\na=rtpmap:96 L24/48000/2\na=ptime:1\n";
/// let session = SessionDescription::parse(text.as_bytes())?;
/// let media = &session.media[0];
/// assert_eq!(media.connection.to_string(), "239.1.2.3/32");
/// assert_eq!(media.formats[0].encoding.to_string(), "L24/48000/2");
/// assert_eq!(SessionDescription::parse(session.to_string().as_bytes())?, session);
/// # Ok::<(), aulos_proto::sdp::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain value that is built and written")]
pub struct SessionDescription {
    /// Creator and version of the description.
    pub origin: Origin,
    /// Name of the session for users.
    pub name: String,
    /// Additional information for users; may be empty.
    pub information: String,
    /// Ids of media that carry the same packets (`group:DUP`, RFC 7104): redundant paths of one
    /// stream.
    pub duplicates: Vec<Vec<String>>,
    /// Audio over RTP.
    pub media: Vec<MediaDescription>,
    /// Number of media of other kinds, or rejected with port 0.
    pub skipped: usize,
}

/// Creator of a description (`o=`). User, id and address together identify the session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the line has these four")]
pub struct Origin {
    /// Login name; `-` when there is none.
    pub user: String,
    /// Numeric id, in digits.
    pub id: String,
    /// Version of the description; increases with every change.
    pub version: u64,
    /// Address or name of the host.
    pub address: String,
}

/// An `m=` section.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain value that is built and written")]
pub struct MediaDescription {
    /// RTP port.
    pub port: u16,
    /// Destination address of the packets.
    pub connection: Connection,
    /// Meaning of the payload types; at least one.
    pub formats: Vec<PayloadFormat>,
    /// Additional information for users; AES67 devices name their channels here. May be empty.
    pub information: String,
    /// Direction of the media.
    pub direction: Direction,
    /// Duration of a packet.
    pub packet_time: Option<Span>,
    /// Maximum duration of a packet that the receiver accepts.
    pub max_packet_time: Option<Span>,
    /// Frames per packet, in the notation of RAVENNA.
    pub frame_count: Option<u32>,
    /// Port and address of RTCP, when they are not the next port and the same address (RFC 3605).
    pub rtcp: Option<(u16, Option<IpAddr>)>,
    /// RTCP shares the RTP port (RFC 5761).
    pub rtcp_mux: bool,
    /// Source filter (RFC 4570): accept packets from these addresses only; empty means all.
    pub sources: Vec<IpAddr>,
    /// Reference clock of the sender (RFC 7273); the first one when several are listed.
    pub reference_clock: Option<ReferenceClock>,
    /// Relation of the timestamps to the reference clock (RFC 7273).
    pub media_clock: Option<MediaClock>,
    /// Id of the media in groups (`mid`); empty when absent.
    pub id: String,
    /// SSRCs that carry the same packets (`ssrc-group:DUP`, RFC 7104).
    pub duplicates: Vec<Vec<u32>>,
}

impl MediaDescription {
    /// A media with one encoding and default attributes.
    #[must_use]
    pub fn new(connection: Connection, port: u16, format: PayloadFormat) -> Self {
        Self {
            port,
            connection,
            formats: vec![format],
            information: String::new(),
            direction: Direction::default(),
            packet_time: None,
            max_packet_time: None,
            frame_count: None,
            rtcp: None,
            rtcp_mux: false,
            sources: Vec::new(),
            reference_clock: None,
            media_clock: None,
            id: String::new(),
            duplicates: Vec::new(),
        }
    }
}

/// Meaning of a payload type in a media.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "rtpmap and fmtp")]
pub struct PayloadFormat {
    /// Payload type, 0 to 127.
    pub payload_type: u8,
    /// Encoding from `rtpmap` or of the static type.
    pub encoding: Encoding,
    /// Parameters from `fmtp`, interpreted by the codec; empty when absent.
    pub parameters: String,
}

/// Destination of the packets (`c=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the line has these two")]
pub struct Connection {
    /// Unicast or multicast address.
    pub address: IpAddr,
    /// TTL of packets to an IPv4 group.
    pub ttl: Option<u8>,
}

/// In the notation of `c=`; the TTL is written for IPv4 groups only.
impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ttl {
            Some(ttl) if self.address.is_ipv4() => write!(f, "{}/{ttl}", self.address),
            _ => write!(f, "{}", self.address),
        }
    }
}

/// Direction of the media, as the creator of the description sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "SDP has these four")]
pub enum Direction {
    /// Both sides send.
    #[default]
    Both,
    /// The creator sends. AES67 and RAVENNA write `recvonly` nevertheless, from the reader's point
    /// of view.
    SendOnly,
    /// The creator receives.
    ReceiveOnly,
    /// Neither side sends.
    Inactive,
}

/// Error in a description, with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a place and a cause")]
pub struct Error {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub kind: ErrorKind,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

impl core::error::Error for Error {}

/// Kind of an error in a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// More than [`MAX_BYTES`], [`MAX_LINES`], [`MAX_MEDIA`] or [`MAX_LIST`].
    TooLarge,
    /// Not UTF-8.
    NotUtf8,
    /// Not of the form letter, `=`, value.
    InvalidLine,
    /// The description does not begin with `v=0`.
    Version,
    /// The origin is missing or invalid.
    Origin,
    /// Invalid connection.
    Connection,
    /// A media without a connection.
    NoConnection,
    /// Invalid `m=` line.
    Media,
    /// Encrypted audio.
    Encrypted,
    /// Invalid `rtpmap`.
    Rtpmap,
    /// No payload type of a media has a supported encoding.
    NoEncoding,
    /// The packet time is not a time, or is longer than [`MAX_PACKET_TIME`].
    PacketTime,
    /// Invalid `rtcp`.
    Rtcp,
    /// Invalid `source-filter`.
    SourceFilter,
    /// Invalid `ts-refclk`.
    ReferenceClock,
    /// Invalid `mediaclk`.
    MediaClock,
    /// Invalid `ssrc-group`.
    SsrcGroup,
    /// The description has no audio over RTP.
    NoAudio,
}

/// Maximum packet time. The longest packets in use are those of Opus with 120 ms.
pub const MAX_PACKET_TIME: Span = Span::from_secs(1);

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => {
                "the description is too long; remove what is not audio (at most 16 KiB, 512 \
                 lines, 32 media with 32 payload types each)"
            }
            Self::NotUtf8 => "not UTF-8; save the description as UTF-8",
            Self::InvalidLine => "expected `x=value`; remove the line, or the spaces before it",
            Self::Version => "expected `v=0` in the first line",
            Self::Origin => "expected the origin `o=USER ID VERSION IN IP4 ADDRESS`",
            Self::Connection => {
                "expected the connection `c=IN IP4 ADDRESS`, for multicast as in `c=IN IP4 239.1.2.3/32`"
            }
            Self::NoConnection => "the media has no address; add `c=IN IP4 ADDRESS` below it",
            Self::Media => "expected the media `m=audio PORT RTP/AVP TYPE`",
            Self::Encrypted => "encrypted audio (SRTP) is not supported; configure the sender to use RTP/AVP",
            Self::Rtpmap => "expected the payload type as in `a=rtpmap:96 L24/48000/2`",
            Self::NoEncoding => {
                "no payload type of this media is known; have PCMU, PCMA, G722, L16, L24 or opus \
                 sent, and add its `a=rtpmap:` line"
            }
            Self::PacketTime => "expected the packet time in milliseconds, as in `a=ptime:20`",
            Self::Rtcp => "expected `a=rtcp:PORT` or `a=rtcp:PORT IN IP4 ADDRESS`",
            Self::SourceFilter => "expected `a=source-filter: incl IN IP4 GROUP SOURCE`",
            Self::ReferenceClock => {
                "the clock is not `a=ts-refclk:ptp=IEEE1588-2008:00-11-22-FF-FE-33-44-55:0`"
            }
            Self::MediaClock => {
                "expected `a=mediaclk:direct=OFFSET` or `a=mediaclk:sender`"
            }
            Self::SsrcGroup => "expected `a=ssrc-group:DUP SSRC SSRC`",
            Self::NoAudio => "the description has no audio over RTP; add `m=audio PORT RTP/AVP TYPE`",
        })
    }
}

#[cfg(test)]
mod tests;
