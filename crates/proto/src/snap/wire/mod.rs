//! Snapcast's stream protocol as bytes.
//!
//! Every message is a header of 26 bytes and a payload, all little endian. [`parse`] cuts messages
//! off a stream that may end anywhere; [`ClientMessage`] and [`ServerMessage`] give the payload a
//! meaning; both directions can be written and read, so that server, client and tests share one
//! truth. Audio does not go through these enums on its way out: [`write_chunk_header`] writes in
//! front of bytes that never move.

mod audio;
mod header;
mod json;
mod message;
mod time;

pub use audio::{CHUNK_HEADER_LEN, UnsupportedSampleFormat, codec_header, write_chunk_header};
pub use header::{
    FrameError, HEADER_LEN, MAX_MESSAGE, MessageFrame, MessageHeader, MessageHeaderView,
    MessageKind, MessageStamp, ParsedMessage, parse_framed, parse_message,
};
pub use json::{Auth, ClientInfo, Hello, MAX_ID, MAX_TEXT, ServerSettings};
pub(crate) use message::write_message;
pub use message::{ClientMessage, PayloadError, ServerMessage, Transport};
pub use time::WireTime;

pub use crate::json::JsonError;

#[cfg(test)]
mod tests;
