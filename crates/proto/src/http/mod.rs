//! HTTP where hyper does not serve: heads of received messages, heads of requests, URLs, playlists,
//! and response bodies with chunked encoding and ICY metadata.
//!
//! The body is decoded here, because a reactor reads it from the socket in pieces, long after the
//! head.
//!
//! Sources: RFC 9110 and 9112 (HTTP/1.1), RFC 3986 section 5 (relative references), ICY metadata as
//! Shoutcast servers send it, xspf.org (XSPF version 1).

mod address;
mod body;
mod head;
pub mod icy;
mod playlist;
mod request_head;
mod url;

pub use address::AddressClass;
pub(crate) use body::decode_text_in;
pub use body::{BodyDecoder, BodyError, BodyFraming, decode_text};
pub use head::{InvalidHead, MAX_FIELDS, ReceivedHead, head_length};
pub use playlist::{
    MAX_PLAYLIST_BYTES, MAX_PLAYLIST_ENTRIES, PlaylistError, is_playlist_type, playlist_entries,
    playlist_files,
};
pub use request_head::{HeadError, RequestHead};
pub use url::{HttpUrl, UrlError};
