//! Wire format of Snapcast's stream protocol.
//!
//! Every message is a header of 26 bytes and a payload, all little endian. [`parse_message`] splits
//! messages off a byte stream; [`ClientMessage`] and [`ServerMessage`] are the parsed payloads.
//! Both directions can be parsed and encoded, so that server, client and tests share one
//! implementation. Outgoing audio does not use these enums: [`write_chunk_header`] writes in front
//! of bytes that are never copied.

mod audio;
mod header;
mod json;
mod message;
mod report;
mod time;

pub use audio::{
    CHUNK_HEADER_LEN, UnsupportedSampleFormat, codec_header, stream_begin, write_chunk_header,
};
pub use header::{
    FrameError, HEADER_LEN, MAX_MESSAGE, MessageFrame, MessageHeader, MessageHeaderView,
    MessageKind, MessageStamp, ParsedMessage, parse_framed, parse_message,
};
pub use json::{Auth, ClientInfo, Hello, MAX_ID, MAX_TEXT, PayloadError, ServerSettings};
pub(crate) use message::write_message;
pub use message::{ClientMessage, ServerMessage, Transport};
pub use report::{MAX_TIME, PlayerReport};
pub use time::WireTime;

pub use crate::json::JsonError;

#[cfg(test)]
mod tests;
