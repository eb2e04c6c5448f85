//! SDP (RFC 8866) of sound over RTP: where it comes, how it is packed, which clock it follows.
//!
//! The crate `sdp-types` reads more than this, but its attributes no longer know the line that they
//! stood in, and whoever pastes a description that does not work has to be told the line and what to
//! write there. So it judges ours in the tests.
//!
//! What stands for the whole session is handed down to the media it holds for, so a reader looks in one
//! place. What is unknown is passed over; what is known and wrong is an error.

mod clock;
mod parse;
mod write;

use core::fmt;
use core::net::IpAddr;

use aulos_core::Span;

pub use clock::{MediaClock, ReferenceClock};

use crate::rtp::Encoding;

/// Bytes of a description. AES67 devices send less than 2 kB.
pub const MAX_BYTES: usize = 16 * 1_024;
/// Lines of a description.
pub const MAX_LINES: usize = 512;
/// Media of a description.
pub const MAX_MEDIA: usize = 32;
/// Payload types of one media, sources of one filter, members of one group.
pub const MAX_LIST: usize = 32;

/// A description of a session.
///
/// # Examples
/// ```
/// use aulos_proto::sdp::Session;
///
/// let text = "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=Hall\nc=IN IP4 239.1.2.3/32\nt=0 0\n\
///             m=audio 5004 RTP/AVP 96\na=rtpmap:96 L24/48000/2\na=ptime:1\n";
/// let session = Session::parse(text.as_bytes())?;
/// let media = &session.media[0];
/// assert_eq!(media.connection.to_string(), "239.1.2.3/32");
/// assert_eq!(media.formats[0].encoding.to_string(), "L24/48000/2");
/// assert_eq!(Session::parse(session.to_string().as_bytes())?, session);
/// # Ok::<(), aulos_proto::sdp::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain value that is built and written")]
pub struct SessionDescription {
    /// Who made it, and its version.
    pub origin: Origin,
    /// What people call it.
    pub name: String,
    /// More about it, for people; empty when there is nothing.
    pub information: String,
    /// Names of media that carry the same (`group:DUP`, RFC 7104): two ways of one stream.
    pub duplicates: Vec<Vec<String>>,
    /// Sound over RTP.
    pub media: Vec<MediaDescription>,
    /// Media that are something else, or were refused with port 0.
    pub skipped: usize,
}

/// Who made a description (`o=`). User, number and address together name the session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the line has these four")]
pub struct Origin {
    /// Login name, `-` without one.
    pub user: String,
    /// A number, in digits.
    pub id: String,
    /// Grows with each change.
    pub version: u64,
    /// The machine, an address or a name.
    pub address: String,
}

/// One `m=` section.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain value that is built and written")]
pub struct MediaDescription {
    /// Port of RTP.
    pub port: u16,
    /// Where it comes, or goes to.
    pub connection: Connection,
    /// What the payload types mean; at least one.
    pub formats: Vec<PayloadFormat>,
    /// More about it, for people: AES67 devices name their channels here. Empty when there is nothing.
    pub information: String,
    /// Who sends.
    pub direction: Direction,
    /// Sound in one packet.
    pub packet_time: Option<Span>,
    /// The most sound in one packet that is welcome.
    pub max_packet_time: Option<Span>,
    /// Frames in one packet, as RAVENNA says it.
    pub frame_count: Option<u32>,
    /// Port and address of RTCP when they are not the next port and the same address (RFC 3605).
    pub rtcp: Option<(u16, Option<IpAddr>)>,
    /// RTCP on RTP's own port (RFC 5761).
    pub rtcp_mux: bool,
    /// Only packets from these are meant (RFC 4570); all when it is empty.
    pub sources: Vec<IpAddr>,
    /// The clock that the sender follows (RFC 7273); the first one where several are named.
    pub reference_clock: Option<ReferenceClock>,
    /// How timestamps follow that clock (RFC 7273).
    pub media_clock: Option<MediaClock>,
    /// Its name in groups; empty without one.
    pub id: String,
    /// SSRCs that carry the same (`ssrc-group:DUP`, RFC 7104).
    pub duplicates: Vec<Vec<u32>>,
}

impl MediaDescription {
    /// Sound in one encoding that goes to one place, from now on.
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

/// What a payload type means in this media.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "rtpmap and fmtp")]
pub struct PayloadFormat {
    /// 0 to 127.
    pub payload_type: u8,
    /// What it means.
    pub encoding: Encoding,
    /// What `fmtp` says, for the codec to read; empty without one.
    pub parameters: String,
}

/// Where packets go (`c=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the line has these two")]
pub struct Connection {
    /// A machine or a group.
    pub address: IpAddr,
    /// How many routers a packet for an IPv4 group may pass.
    pub ttl: Option<u8>,
}

/// As in `c=`: the TTL is only there with a group.
impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ttl {
            Some(ttl) if self.address.is_ipv4() => write!(f, "{}/{ttl}", self.address),
            _ => write!(f, "{}", self.address),
        }
    }
}

/// Who sends, as its writer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "SDP has these four")]
pub enum Direction {
    /// Both.
    #[default]
    Both,
    /// Its writer. AES67 and RAVENNA say `recvonly` all the same: what the reader does.
    SendOnly,
    /// Its reader.
    ReceiveOnly,
    /// Nobody.
    Inactive,
}

/// What is wrong with a description, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a place and a cause")]
pub struct Error {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub kind: ErrorKind,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

impl core::error::Error for Error {}

/// What can be wrong with a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// More than [`MAX_BYTES`], [`MAX_LINES`], [`MAX_MEDIA`] or [`MAX_LIST`].
    TooLarge,
    /// Not UTF-8.
    NotUtf8,
    /// Not a letter, `=` and a value.
    InvalidLine,
    /// It does not begin with `v=0`.
    Version,
    /// An origin that cannot be read, or none.
    Origin,
    /// A connection that cannot be read.
    Connection,
    /// A media for which there is no connection.
    NoConnection,
    /// An `m=` line that cannot be read.
    Media,
    /// Sound that is encrypted.
    Encrypted,
    /// An `rtpmap` that cannot be read.
    Rtpmap,
    /// No payload type of a media has an encoding that we know.
    NoEncoding,
    /// A packet time that is no time, or longer than [`MAX_PACKET_TIME`].
    PacketTime,
    /// An `rtcp` that cannot be read.
    Rtcp,
    /// A `source-filter` that cannot be read.
    SourceFilter,
    /// A `ts-refclk` that cannot be read.
    ReferenceClock,
    /// A `mediaclk` that cannot be read.
    MediaClock,
    /// An `ssrc-group` that cannot be read.
    SsrcGroup,
    /// No sound over RTP at all.
    NoAudio,
}

/// The longest packet time: Opus has packets of 120 ms, nobody has longer ones than this.
pub const MAX_PACKET_TIME: Span = Span::from_secs(1);

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => {
                "the description is too long; leave out what is not sound (at most 16 KiB, 512 \
                 lines, 32 media with 32 payload types each)"
            }
            Self::NotUtf8 => "this is not text; save the description as UTF-8",
            Self::InvalidLine => "this is no `x=value`; remove the line, or the spaces before it",
            Self::Version => "a description begins with `v=0`",
            Self::Origin => "the origin is not `o=USER ID VERSION IN IP4 ADDRESS`",
            Self::Connection => {
                "the connection is not `c=IN IP4 ADDRESS`; with a group `c=IN IP4 239.1.2.3/32`"
            }
            Self::NoConnection => "this media has no address; add `c=IN IP4 ADDRESS` below it",
            Self::Media => "the media is not `m=audio PORT RTP/AVP TYPE`",
            Self::Encrypted => "the sound is encrypted (SRTP); have it sent as RTP/AVP",
            Self::Rtpmap => "the payload type is not `a=rtpmap:96 L24/48000/2`",
            Self::NoEncoding => {
                "no payload type of this media is known; have PCMU, PCMA, G722, L16, L24 or opus \
                 sent, and add its `a=rtpmap:` line"
            }
            Self::PacketTime => "the packet time is not milliseconds, such as `a=ptime:20`",
            Self::Rtcp => "this is not `a=rtcp:PORT`, or `a=rtcp:PORT IN IP4 ADDRESS`",
            Self::SourceFilter => "this is not `a=source-filter: incl IN IP4 GROUP SOURCE`",
            Self::ReferenceClock => {
                "the clock is not `a=ts-refclk:ptp=IEEE1588-2008:00-11-22-FF-FE-33-44-55:0`"
            }
            Self::MediaClock => {
                "this is neither `a=mediaclk:direct=OFFSET` nor `a=mediaclk:sender`"
            }
            Self::SsrcGroup => "this is not `a=ssrc-group:DUP SSRC SSRC`",
            Self::NoAudio => "there is no sound over RTP here; add `m=audio PORT RTP/AVP TYPE`",
        })
    }
}

#[cfg(test)]
mod tests;
