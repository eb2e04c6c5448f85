//! What the program asks of a source: each scheme answers in its own module, and nothing else
//! compares kinds of sources.

use core::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use aulos_core::SampleSpec;
use aulos_proto::titles::TitleCharset;
use aulos_session::hls_source::VariantChoice;
use aulos_session::srt::SrtPassphrase;

use crate::names::Endpoint;
use crate::security::secrets::RedactedDebug;
use crate::security::users::SecretDigest;

/// The questions to a source. The defaults are the answers of a live source on the network.
pub trait SourceKind: fmt::Debug {
    /// The scheme of its URI; that of a player is `process`.
    fn scheme(&self) -> &'static str;

    /// The incoming spec; `None` if the data has its own header, for another station, and for a
    /// device that is asked for the station's.
    fn spec(&self) -> Option<SampleSpec> {
        None
    }

    /// Whether it delivers on demand, without a pace of its own. Such a source may be the last
    /// resort.
    fn is_on_demand(&self) -> bool {
        false
    }

    /// Whether it delivers on demand and ends by itself.
    fn ends(&self) -> bool {
        false
    }

    /// Whether it is an encoded stream that comes in bursts, so that its input needs more reserve.
    fn comes_in_bursts(&self) -> bool {
        false
    }

    /// Whether its chunks are passed to clients as they are.
    fn is_passed(&self) -> bool {
        false
    }

    /// Whether it plays files that can be skipped.
    fn can_skip(&self) -> bool {
        false
    }

    /// Whether what it plays can be told to play, to pause and to skip.
    fn has_transport(&self) -> bool {
        false
    }

    /// Whether it requires a running server.
    fn needs_server(&self) -> bool {
        true
    }

    /// The station that it plays.
    fn station(&self) -> Option<&str> {
        None
    }

    /// The mount on which it waits for a live source.
    fn mount(&self) -> Option<&Mount> {
        None
    }

    /// The TCP address on which it alone listens.
    fn listen_address(&self) -> Option<&Endpoint> {
        None
    }

    /// The server that it connects to: an error of the network names it.
    fn server(&self) -> Option<Endpoint> {
        None
    }

    /// What it needs of the file system.
    fn local_path(&self) -> Option<LocalPath<'_>> {
        None
    }

    /// The program that it runs.
    fn program(&self) -> Option<&Path> {
        match self.local_path() {
            Some(LocalPath::Program(path)) => Some(path),
            _ => None,
        }
    }

    /// The FIFO for its titles.
    fn titles(&self) -> Option<&TitleFifo> {
        None
    }

    /// The URI for display, if the one that was given has a password.
    fn display_uri(&self) -> Option<String> {
        None
    }

    /// Whether a network call may open its device; `listed` are those that the operator names.
    fn is_device_permitted(&self, _listed: &[String]) -> bool {
        true
    }

    /// Restricts it to paths below these directories.
    fn confine(&mut self, _roots: &[PathBuf]) {}

    /// The FIFO for its titles, to be set.
    fn titles_mut(&mut self) -> Option<&mut TitleFifo> {
        None
    }

    /// The charset of titles that are not UTF-8.
    fn charset_mut(&mut self) -> Option<&mut TitleCharset> {
        None
    }

    /// The variant of an HLS stream.
    fn variant_mut(&mut self) -> Option<&mut VariantChoice> {
        None
    }

    /// Where its password goes.
    fn password_mut(&mut self) -> Option<PasswordSlot<'_>> {
        None
    }
}

/// What a source needs of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalPath<'a> {
    /// A FIFO that the server makes.
    NewFifo(&'a Path),
    /// A FIFO that exists.
    Fifo(&'a Path),
    /// A file to be read.
    File(&'a Path),
    /// A folder with files, or a list of files.
    Playlist(&'a Path),
    /// A program.
    Program(&'a Path),
}

/// Where the password of a source goes.
#[derive(Debug)]
pub enum PasswordSlot<'a> {
    /// Clients log in here with it.
    Mount(&'a mut Option<SecretDigest>),
    /// Both sides encrypt with it.
    Passphrase(&'a mut Option<SrtPassphrase>),
    /// The source logs in on another server with it.
    Login {
        /// Whether the URI has a user.
        has_user: bool,
        /// The password.
        password: &'a mut RedactedDebug<Option<String>>,
        /// How user and password are written.
        hint: &'static str,
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
