//! JSON-RPC 2.0 as Snapcast's control clients speak it: framing only.
//!
//! Bytes become [`Incoming`], and [`Reply`] and [`Notification`] become bytes. What a method means
//! is the dispatcher's; a typed enum of all methods in here was rejected, because then every new
//! method would touch two floors. On TCP a message is a line: we take LF or CRLF and always send
//! CRLF, because python-snapcast waits for it for ever.

mod line_splitter;
mod message;

pub use line_splitter::{LineError, LineSplitter};
pub use message::{
    IncomingMessage, MAX_BATCH, Notification, Reply, Request, RequestId, RpcError, code,
    parse_incoming,
};

/// The longest line or HTTP body that is read. `Group.SetClients` with a thousand clients has 40 kB.
pub const MAX_LINE: usize = 256 * 1024;

/// Whether a connection that begins with these bytes sends JSON-RPC: its first byte that is not white
/// space opens an object or a list. `None` while nothing but white space has arrived.
///
/// A web page of any origin can make a browser send an HTTP request to any port, and chooses its body.
/// What stands in front of that body is a request line, which begins with a letter: a connection that
/// begins so is no controller, and nothing of it may be carried out.
#[must_use]
pub fn begins_json(bytes: &[u8]) -> Option<bool> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(matches!(first, b'{' | b'['))
}

/// Appends JSON in ASCII.
///
/// What is not ASCII is escaped (RFC 8259, section 7), which in JSON can only be inside of a text:
/// python-snapcast decodes each piece that it reads by itself, and falls over one that ends in the
/// middle of the two bytes of "ü".
pub fn write_json(json: &str, out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| !c.is_ascii()) {
        let (plain, from) = rest.split_at(at);
        out.extend_from_slice(plain.as_bytes());
        let mut chars = from.chars();
        for unit in chars.next().map(|c| c.encode_utf16(&mut [0; 2]).to_vec()).unwrap_or_default() {
            out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
}

/// The line of one message, or of several as a batch: its JSON in ASCII ([`write_json`]), and the end
/// of the line. JSON that is ASCII already is not copied, except where its allocation has to grow.
#[must_use]
pub fn to_line(json: String) -> Vec<u8> {
    let mut line = if json.is_ascii() {
        json.into_bytes()
    } else {
        let mut escaped = Vec::with_capacity(json.len() + json.len() / 8);
        write_json(&json, &mut escaped);
        escaped
    };
    line.extend_from_slice(b"\r\n");
    line
}

#[cfg(test)]
mod tests;
