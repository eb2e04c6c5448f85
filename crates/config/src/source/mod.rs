//! Sources as values: what a source URI means.

pub(crate) mod capture_device;
pub(crate) mod data_timeout;
pub(crate) mod exclusive;
pub(crate) mod meta;
pub(crate) mod mounts;
pub(crate) mod query;
pub(crate) mod schemes;
pub(crate) mod uri;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use aulos_core::{SampleSpec, Span};
use aulos_engine::generate::Generator;
use aulos_io::SourcePath;
use aulos_io::feed::FifoMode;
use aulos_proto::http::HttpUrl;
use aulos_proto::titles::TitleCharset;
use aulos_session::rtp::PlayoutDelay;
use aulos_session::rtp::RtpPayloadFormat;

use crate::cluster::NatsServer;
use crate::names::Endpoint;
use crate::security::secrets::RedactedDebug;
use crate::security::users::SecretDigest;

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
        /// Time without a sample after which it is started again.
        timeout: Option<Span>,
        /// The FIFO for its titles.
        titles: Option<TitleFifo>,
    },
    /// Web radio, or a file on a web server.
    Http {
        /// The URL.
        url: HttpUrl,
        /// The charset of titles that are not UTF-8.
        charset: TitleCharset,
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
        /// Time without a sample after which the connection is closed.
        timeout: Option<Span>,
    },
    /// Raw samples from a TCP server.
    TcpClient {
        /// The address to connect to; the port is never 0.
        address: Endpoint,
        /// The incoming spec.
        spec: SampleSpec,
        /// Time without a sample after which the connection is closed.
        timeout: Option<Span>,
    },
    /// Samples from a device of this machine.
    Capture {
        /// How it is reached.
        api: CaptureApi,
        /// Its name; none for the default device.
        device: Option<String>,
        /// The spec that is asked for; none for the station's.
        spec: Option<SampleSpec>,
    },
    /// A stream of another Snapcast server.
    Snapcast(SnapcastSource),
    /// A station that another server publishes through NATS.
    Nats(NatsSource),
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

/// Interfaces to devices that record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureApi {
    /// PulseAudio or PipeWire.
    Pulse,
    /// ALSA.
    Alsa,
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

/// Another Snapcast server, and this client of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapcastSource {
    /// The address to connect to; the port is never 0.
    pub address: Endpoint,
    /// Whether the connection uses TLS.
    pub tls: bool,
    /// The id there; by default made of this host's name and the station's.
    pub id: Option<String>,
    /// The name of this host there; by default its own.
    pub host_name: Option<String>,
    /// How much earlier than the server's loudspeakers it plays.
    pub latency: Span,
    /// Whether its chunks are passed to the station's clients as they are.
    pub pass: bool,
    /// The user to log in as.
    pub user: Option<String>,
    /// The user's password.
    pub password: RedactedDebug<Option<String>>,
}

/// A station that another server publishes through NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSource {
    /// The server; none means those of `cluster`.
    pub server: Option<NatsServer>,
    /// The site; none means that of `cluster`.
    pub site: Option<String>,
    /// The name of the station there.
    pub station: String,
    /// How much earlier than at the origin it plays; negative for later.
    pub latency: Span,
    /// Whether its chunks are passed to the station's clients as they are.
    pub pass: bool,
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
    /// The charset of titles that name none and are not UTF-8.
    pub charset: TitleCharset,
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
            Self::Http { url, .. } => {
                if url.secure {
                    "https"
                } else {
                    "http"
                }
            }
            Self::Station { .. } => "meta",
            Self::TcpServer { .. } | Self::TcpClient { .. } => "tcp",
            Self::Capture { api: CaptureApi::Pulse, .. } => "pulse",
            Self::Capture { api: CaptureApi::Alsa, .. } => "alsa",
            Self::Snapcast(_) => "snapcast",
            Self::Nats(_) => "nats",
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

    /// Whether its chunks are passed to clients as they are.
    #[must_use]
    pub const fn is_passed(&self) -> bool {
        matches!(
            self,
            Self::Snapcast(SnapcastSource { pass: true, .. })
                | Self::Nats(NatsSource { pass: true, .. })
        )
    }

    /// The incoming spec; `None` if the data has its own header, for another station, and for a
    /// device that is asked for the station's.
    #[must_use]
    pub const fn spec(&self) -> Option<SampleSpec> {
        match self {
            Self::File { spec, .. } | Self::Capture { spec, .. } => *spec,
            Self::Http { .. }
            | Self::Station { .. }
            | Self::Snapcast(_)
            | Self::Nats(_)
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
