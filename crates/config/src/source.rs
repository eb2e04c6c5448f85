//! Sources as values: what a source URI means.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use aulos_core::{SampleSpec, Span};
use aulos_engine::generate::Generator;
use aulos_io::SourcePath;
use aulos_io::feed::FifoMode;
use aulos_proto::http::HttpUrl;
use aulos_session::relay::RtpPayloadFormat;
use aulos_session::rtp::PlayoutDelay;

use crate::names::Endpoint;
use crate::users::SecretDigest;

/// A parsed source. For raw sources, the spec is that of the incoming samples.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    /// Generated sound: the demo programme, a tone.
    Generated {
        /// The sound.
        generator: Generator,
        /// The generated spec.
        spec: SampleSpec,
    },
    /// Raw samples from standard input.
    Stdin {
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// Raw samples from a FIFO.
    Pipe {
        /// The path.
        path: SourcePath,
        /// Whether the FIFO is created, and for whom.
        mode: FifoMode,
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// A file.
    File {
        /// The path.
        path: SourcePath,
        /// Whether it is played in a loop.
        repeat: bool,
        /// The spec of raw samples; none for a file with a header.
        spec: Option<SampleSpec>,
    },
    /// Raw samples from the standard output of a child process.
    Process {
        /// The program.
        path: PathBuf,
        /// Its arguments in one string, as written.
        params: String,
        /// The incoming spec.
        spec: SampleSpec,
        /// Whether its standard error is logged.
        log_stderr: bool,
        /// The FIFO for its titles.
        titles: Option<TitleFifo>,
    },
    /// Web radio, or a file on a web server.
    Http {
        /// The URL.
        url: HttpUrl,
    },
    /// The programme of another station, before announcements.
    Station {
        /// Its name.
        name: String,
    },
    /// Raw samples from a TCP client.
    TcpServer {
        /// The address to listen on.
        address: Endpoint,
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// Raw samples from a TCP server.
    TcpClient {
        /// The address to connect to; the port is never 0.
        address: Endpoint,
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// A live source on a mount.
    Icecast(Mount),
    /// RTP packets.
    Rtp(RtpSource),
    /// RTP packets according to an SDP file.
    Sdp {
        /// The path of the SDP file.
        path: SourcePath,
        /// Reception settings.
        reception: ReceptionSettings,
    },
}

/// The FIFO through which a player reports its titles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TitleFifo {
    /// The format of the data.
    pub kind: TitleFormat,
    /// The path; empty until the source belongs to a station.
    pub fifo: PathBuf,
}

/// Formats of title reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TitleFormat {
    /// librespot's log.
    Librespot,
    /// shairport-sync's metadata pipe.
    Airplay,
}

/// A mount for one live source at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The address to listen on; several mounts may share it.
    pub address: Endpoint,
    /// The path with its leading slash.
    pub path: String,
    /// The user name of the live source.
    pub user: String,
    /// The password; none means no authentication.
    pub password: Option<SecretDigest>,
    /// Whether the next port is open as well, for streams of Shoutcast programs.
    pub shoutcast: bool,
}

impl Mount {
    /// Whether other machines can use it without a password.
    #[must_use]
    pub fn is_open_to_network(&self) -> bool {
        self.password.is_none() && !is_loopback(&self.address.host)
    }

    /// Whether both are the same mount.
    #[must_use]
    pub fn is_same_mount(&self, other: &Self) -> bool {
        self.address == other.address && self.path == other.path
    }
}

fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback())
}

/// An RTP source: address and encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtpSource {
    /// A local address or a multicast group.
    pub address: SocketAddr,
    /// The incoming encoding.
    pub media: RtpPayloadFormat,
    /// Channels of decoded Opus.
    pub opus_channels: u8,
    /// The payload type of redundant packets (RED).
    pub red: Option<u8>,
    /// Reception settings.
    pub reception: ReceptionSettings,
}

/// Reception settings that do not depend on the encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceptionSettings {
    /// The network interface for a multicast group, by name or address.
    pub interface: Option<String>,
    /// How long to wait for a packet that others have overtaken; by default as long as the source's
    /// buffer allows.
    pub jitter: Option<Span>,
    /// Playout delay after the fastest packets; by default packets go to the input as soon as they
    /// are in order.
    pub delay: Option<PlayoutDelay>,
    /// Accepted senders; empty means all.
    pub senders: Vec<IpAddr>,
}

impl SourceConfig {
    /// Restricts the source to paths below these directories.
    pub fn confine(&mut self, roots: &[PathBuf]) {
        if let Self::File { path, .. } | Self::Pipe { path, .. } | Self::Sdp { path, .. } = self {
            *path = path.clone().confined_to(roots);
        }
    }

    /// The scheme of its URI.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::Generated { generator, .. } => generator.scheme(),
            Self::Stdin { .. } => "stdin",
            Self::Pipe { .. } => "pipe",
            Self::File { .. } => "file",
            Self::Process { .. } => "process",
            Self::Http { url } => {
                if url.secure {
                    "https"
                } else {
                    "http"
                }
            }
            Self::Station { .. } => "meta",
            Self::TcpServer { .. } | Self::TcpClient { .. } => "tcp",
            Self::Icecast(_) => "icecast",
            Self::Rtp(_) => "rtp",
            Self::Sdp { .. } => "sdp",
        }
    }

    /// Whether it delivers on demand, without a pace of its own.
    #[must_use]
    pub const fn is_on_demand(&self) -> bool {
        matches!(self, Self::Generated { .. } | Self::File { .. })
    }

    /// The incoming spec; `None` if the data has its own header, and for another station.
    #[must_use]
    pub const fn spec(&self) -> Option<SampleSpec> {
        match self {
            Self::File { spec, .. } => *spec,
            Self::Http { .. }
            | Self::Station { .. }
            | Self::Icecast(_)
            | Self::Rtp(_)
            | Self::Sdp { .. } => None,
            Self::Generated { spec, .. }
            | Self::Stdin { spec }
            | Self::Pipe { spec, .. }
            | Self::Process { spec, .. }
            | Self::TcpServer { spec, .. }
            | Self::TcpClient { spec, .. } => Some(*spec),
        }
    }
}
