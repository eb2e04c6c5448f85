//! Sources as values: what a source URI means.
//!
//! A scheme is a module with its parameters, its settings, a parser and the answers to
//! [`SourceKind`], and two lines here: its settings in [`SourceConfig`] and a row of `SCHEMES`.

mod capture;
pub(crate) mod check;
pub(crate) mod data_timeout;
mod file;
mod generated;
mod http;
mod icecast;
mod kind;
mod meta;
mod nats;
mod pipe;
mod players;
mod playlist;
mod process;
pub(crate) mod query;
pub(crate) mod rtp;
mod sendspin;
mod snapcast;
pub(crate) mod srt;
mod tcp;

use core::ops::{Deref, DerefMut};

use aulos_files::playlist::PlaylistOptions;
use aulos_proto::uri::{Uri, UriError};

pub use capture::{CaptureApi, CaptureSource};
pub use file::PlayedFile;
pub use generated::GeneratedSource;
pub use http::HttpSource;
pub use kind::{LocalPath, Mount, PasswordSlot, SourceKind, TitleFifo, TitleFormat};
pub use meta::PlayedStation;
pub use nats::NatsSource;
pub use pipe::{PipeSource, StdinSource};
pub use process::ProcessSource;
pub use rtp::{ReceptionSettings, RtpSource, SdpSource};
pub use sendspin::SendspinSource;
pub use snapcast::SnapcastSource;
pub use srt::{SrtMode, SrtSource};
pub use tcp::{TcpMode, TcpSource};

use crate::keys::{KeyTable, Table, hint_for};
use crate::problem::{ConfigValue, Problems};
use crate::source::query::{NoParams, Query, SampleParams};

/// A row is the meaning and the name of a variant, with the settings of its module.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident($settings:ty);)*) => {
        /// A parsed source. It answers the questions of [`SourceKind`].
        #[derive(Clone, Debug, PartialEq)]
        pub enum SourceConfig {
            $($(#[doc = $doc])+ $kind($settings),)*
        }

        impl Deref for SourceConfig {
            type Target = dyn SourceKind;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$kind(settings) => settings,)*
                }
            }
        }

        impl DerefMut for SourceConfig {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self {
                    $(Self::$kind(settings) => settings,)*
                }
            }
        }

        $(impl From<$settings> for SourceConfig {
            fn from(settings: $settings) -> Self {
                Self::$kind(settings)
            }
        })*
    };
}

kinds! {
    /// Generated sound: the demo programme, a tone.
    Generated(GeneratedSource);
    /// Raw samples from standard input.
    Stdin(StdinSource);
    /// Raw samples from a FIFO.
    Pipe(PipeSource);
    /// A file.
    File(PlayedFile);
    /// The files of a folder or of a list, one after the other.
    Playlist(PlaylistOptions);
    /// Raw samples from the standard output of a child process.
    Process(ProcessSource);
    /// Web radio, or a file on a web server.
    Http(HttpSource);
    /// The programme of another station, before announcements.
    Station(PlayedStation);
    /// Raw samples over TCP.
    Tcp(TcpSource);
    /// Samples from a device of this machine.
    Capture(CaptureSource);
    /// A stream of another Snapcast server.
    Snapcast(SnapcastSource);
    /// A player of a Sendspin server.
    Sendspin(SendspinSource);
    /// A station that another server publishes through NATS.
    Nats(NatsSource);
    /// A live source on a mount.
    Icecast(Mount);
    /// RTP packets.
    Rtp(RtpSource);
    /// RTP packets according to an SDP file.
    Sdp(SdpSource);
    /// A stream over SRT.
    Srt(SrtSource);
}

/// A scheme of source URIs: parser, hints, reference page and `convert` use it.
#[derive(Debug)]
pub(crate) struct Scheme {
    /// Its name.
    pub name: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// What the source delivers.
    pub doc: &'static str,
    /// An example.
    pub example: &'static str,
    /// Its parameters, besides `name`.
    pub params: &'static Table,
    /// Whether controllers may add it.
    pub remote: RemoteUse,
    parse: fn(&Query<'_>) -> Option<Vec<SourceConfig>>,
}

/// Whether controllers may add a stream of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteUse {
    /// By default.
    Allowed,
    /// If `streams.schemes` has it.
    IfListed,
    /// Never: the scheme starts a program. In snapserver this was a remote code execution
    /// (CVE-2023-36177).
    Never,
}

/// A row is the meaning, `scheme(parser, parameters, who may add it) = "example", alias "name";`.
macro_rules! schemes {
    ($($(#[doc = $doc:literal])+ $name:ident($parse:path, $params:ty, $remote:ident)
        = $example:literal $(, alias $alias:literal)*;)*) => {
        /// Every scheme.
        pub(crate) const SCHEMES: &[Scheme] = &[$(Scheme {
            name: stringify!($name),
            aliases: &[$($alias),*],
            doc: concat!($($doc),+),
            example: $example,
            params: <$params as KeyTable>::TABLE,
            remote: RemoteUse::$remote,
            parse: |query| $parse(query).map(|parsed| parsed.into_iter().map(Into::into).collect()),
        }),*];
    };
}

schemes! {
    /// The built-in programme.
    demo(generated::demo, SampleParams, IfListed) = "demo://";
    /// A sine tone.
    tone(generated::tone, generated::ToneParams, IfListed) = "tone://?hz=440&dbfs=-18";
    /// Raw samples from standard input; one source of a server can read it.
    stdin(pipe::stdin, SampleParams, IfListed) = "stdin:";
    /// Raw samples from a FIFO.
    pipe(pipe::parse, pipe::PipeParams, Allowed) = "pipe:///run/aulos/kitchen?mode=read";
    /// A file, encoded or with raw samples.
    file(file::parse, file::FileParams, Allowed) = "file:///srv/music/loop.flac?loop=true";
    /// The files of a folder, or of a list file (M3U, PLS, XSPF), one after the other.
    playlist(playlist::parse, playlist::PlaylistParams, Allowed) = "playlist:///srv/music?order=shuffle&crossfade=3s";
    /// Raw samples from the standard output of a program.
    process(process::parse, process::ProcessParams, Never) = "process:///usr/bin/ffmpeg?params=-re -i /srv/show.ogg -f s16le -ar 48000 -ac 2 -";
    /// A source of PulseAudio or PipeWire, such as a microphone, or `NAME.monitor` for what a sink
    /// plays.
    pulse(capture::pulse, capture::CaptureParams, IfListed) = "pulse://alsa_output.usb-dac.monitor";
    /// A device of ALSA that records; its library is loaded when it is used.
    alsa(capture::alsa, capture::CaptureParams, IfListed) = "alsa://hw:1,0";
    /// Raw samples over TCP; the default port is 4953.
    tcp(tcp::parse, tcp::TcpParams, Allowed) = "tcp://0.0.0.0:4953";
    /// Web radio, or a file on a web server. The whole query belongs to that server.
    http(http::parse, NoParams, Allowed) = "https://radio.example/live", alias "https";
    /// A stream of another Snapcast server; the default port is 1704. A password is a key of the
    /// source's table.
    snapcast(snapcast::parse, snapcast::SnapcastParams, IfListed) = "snapcast://living-room.local?id=kitchen";
    /// A player of a Sendspin server, such as Music Assistant: it waits for servers that connect, or
    /// connects to one. The default ports are 8928 and 8927.
    sendspin(sendspin::parse, sendspin::SendspinParams, IfListed) = "sendspin://0.0.0.0:8928/sendspin";
    /// A station that another server publishes through NATS; the default port is 4222. Without a
    /// host the servers of `cluster` are used. Its login is sent to those servers only.
    nats(nats::parse, nats::NatsParams, IfListed) = "nats://nats.example/kitchen?site=home";
    /// A mount for a live source; the default port is 8000. The password is a key of the source's
    /// table.
    icecast(icecast::parse, icecast::IcecastParams, IfListed) = "icecast://127.0.0.1:8000/live";
    /// RTP packets, unicast or multicast; the default port is 5004.
    rtp(rtp::parse, rtp::RtpParams, IfListed) = "rtp://239.69.1.2:5004?payload=l24";
    /// RTP packets as a file with a session description (SDP) defines them.
    sdp(rtp::sdp, rtp::SdpParams, IfListed) = "sdp:///etc/aulos/studio.sdp";
    /// An encoded stream over SRT, in a transport stream (MPEG-TS) or by itself. A passphrase is a
    /// key of the source's table, or a parameter.
    srt(srt::parse, srt::SrtParams, IfListed) = "srt://0.0.0.0:9000?mode=listener&latency=300";
    /// The programmes of other stations, in order of priority.
    meta(meta::parse, NoParams, Allowed) = "meta:///kitchen/radio";
    /// Spotify through the program librespot.
    librespot(players::librespot, players::LibrespotParams, Never) = "librespot:///usr/bin/librespot?devicename=Kitchen", alias "spotify";
    /// AirPlay through the program shairport-sync.
    airplay(players::airplay, players::AirplayParams, Never) = "airplay:///usr/bin/shairport-sync?devicename=Kitchen";
}

impl Scheme {
    /// The scheme of this name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        SCHEMES.iter().find(|scheme| scheme.names().any(|known| known == name))
    }

    /// Its name and its other names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The names of all schemes that controllers may use like this.
    pub(crate) fn names_for(remote: RemoteUse) -> impl Iterator<Item = &'static str> {
        SCHEMES.iter().filter(move |scheme| scheme.remote == remote).flat_map(Self::names)
    }

    /// Whether its URIs have this parameter.
    pub(crate) fn has_param(&self, name: &str) -> bool {
        self.params.keys.iter().any(|key| key.name == name)
    }
}

/// The names of the schemes whose sources answer with yes, in alphabetical order.
pub(crate) fn schemes_with(answer: impl Fn(&mut SourceConfig) -> bool) -> Vec<&'static str> {
    let is_one = |scheme: &&Scheme| {
        let example = ConfigValue::default_value(scheme.example.to_owned());
        let sources = parse(&example, &Problems::default()).map(|(sources, _)| sources);
        sources.into_iter().flatten().any(|mut source| answer(&mut source))
    };
    let mut names: Vec<_> = SCHEMES.iter().filter(is_one).map(|scheme| scheme.name).collect();
    names.sort_unstable();
    names
}

/// Parses a URI; returns the sources and the name in its query. There is one source, or several for
/// `meta:`. Problems are reported; `None` if there is no usable source.
pub(crate) fn parse(
    text: &ConfigValue<String>,
    problems: &Problems,
) -> Option<(Vec<SourceConfig>, Option<String>)> {
    let uri = match text.value.parse::<Uri>() {
        Ok(uri) => uri,
        Err(error) => {
            let start: String = text.value.chars().take(60).collect();
            let hint = match error {
                UriError::NoScheme if start.starts_with('/') => {
                    "file:// plus the path, or pipe:// for a FIFO".to_owned()
                }
                UriError::NoScheme => scheme_hint(),
                _ => error.to_string(),
            };
            problems.add_with_hint(text.at, format!("\"{start}\" is not a source URI"), hint);
            return None;
        }
    };
    let query = Query { uri: &uri, at: text.at, problems };
    let Some(scheme) = Scheme::find(&uri.scheme) else {
        return report_unknown(&query);
    };
    let name = uri.get("name").map(str::to_owned);
    Some(((scheme.parse)(&query)?, name))
}

fn scheme_hint() -> String {
    let names: Vec<String> = SCHEMES.iter().map(|scheme| format!("{}:", scheme.name)).collect();
    format!("a source URI begins with {}", names.join(" "))
}

fn report_unknown<T>(query: &Query<'_>) -> Option<T> {
    let scheme = query.uri.scheme.as_str();
    if let Some((_, instead)) = PLANNED_SCHEMES.iter().find(|(name, _)| *name == scheme) {
        return query.refuse(format!("`{scheme}://` is not built yet in this version"), instead);
    }
    let known: Vec<&str> = SCHEMES.iter().flat_map(Scheme::names).collect();
    query.refuse(format!("unknown source scheme `{scheme}`"), &hint_for(scheme, &known))
}

/// Planned schemes, and today's alternative.
const PLANNED_SCHEMES: [(&str, &str); 5] = [
    ("pipewire", "pulse://SOURCE, which PipeWire serves as well"),
    ("jack", "let jack write to a FIFO, and read it with pipe://"),
    ("rtmp", "process:///usr/bin/ffmpeg?params=-i rtmp://HOST/APP -f s16le -ar 48000 -ac 2 -"),
    ("rtsp", "process:///usr/bin/ffmpeg?params=-i rtsp://HOST/PATH -f s16le -ar 48000 -ac 2 -"),
    ("udp", "send raw samples to tcp://0.0.0.0:4953"),
];
