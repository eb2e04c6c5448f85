//! HTTP for web radio apart from the response head: URLs, playlists, and response bodies with
//! chunked encoding and ICY metadata.
//!
//! An HTTP library parses the response head. The body is decoded here, because a reactor reads it
//! from the socket in pieces, long after the head.
//!
//! Sources: RFC 9110 and 9112 (HTTP/1.1), RFC 3986 section 5 (relative references), ICY metadata as
//! Shoutcast servers send it, xspf.org (XSPF version 1).

mod address;
mod body;
pub mod icy;
mod playlist;
mod request_head;
mod url;

pub use address::AddressClass;
pub(crate) use body::decode_latin_1;
pub use body::{BodyDecoder, BodyError, BodyFraming, decode_text};
pub use playlist::{
    MAX_PLAYLIST_BYTES, MAX_PLAYLIST_ENTRIES, PlaylistError, is_playlist_type, playlist_entries,
};
pub use request_head::{HeadError, RequestHead};
pub use url::{HttpUrl, UrlError};
