//! What a listener of web radio has to understand of HTTP besides the head of a response: addresses,
//! playlists, and the body of a response with its chunks and titles taken out.
//!
//! Heads are parsed by a library where they are received. Bodies are not: they are taken off a socket
//! bit by bit, long after the head, on a thread that knows nothing of HTTP.
//!
//! Sources: RFC 9110 and 9112 (HTTP/1.1), RFC 3986 section 5 (relative addresses), Shoutcast's ICY
//! metadata as its servers send it, xspf.org (XSPF version 1).

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
