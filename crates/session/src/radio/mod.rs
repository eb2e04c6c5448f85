//! Web radio without its connections: from a URL to a body of audio.
//!
//! [`StreamFetch`] follows redirects and playlists, one request after the other, and tells what
//! opens connections what to do next. Old Shoutcast servers are answered as well, which a general
//! HTTP client refuses.

mod error;
mod fetch;
mod hosts;
mod response;
mod scope;
#[cfg(test)]
mod tests;

pub use error::{RADIO_FAILURE_NAMES, RadioError};
pub use fetch::{FetchConfig, FetchInput, FetchOutput, FetchedStream, StreamFetch};
pub use hosts::{HostAllowList, HostRule, InvalidHostRule, InvalidIpNetwork, IpNetwork};

/// What a station reports about itself in its response head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of a head")]
pub struct RadioInfo {
    /// Final URL of the stream, behind redirects and playlists, without its password.
    pub url: Option<String>,
    /// `icy-name`.
    pub name: Option<String>,
    /// `icy-genre`.
    pub genre: Option<String>,
    /// `icy-description`.
    pub description: Option<String>,
    /// `icy-br`: kilobits per second.
    pub bitrate: Option<String>,
    /// `Content-Type`, which the audio data may contradict.
    pub content_type: Option<String>,
}
