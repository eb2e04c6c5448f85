//! JSON-RPC 2.0 framing, as Snapcast's control clients use it.
//!
//! Bytes are parsed into [`IncomingMessage`]; [`Reply`] is encoded, notifications by
//! their senders. The methods are defined by the dispatcher: a typed enum of all methods was rejected, because every
//! new method would then change two crates. On TCP a message is a line that ends with LF or CRLF;
//! the server always sends CRLF, because python-snapcast requires it.

mod line_splitter;
mod message;

pub use line_splitter::{LineError, LineSplitter};
pub use message::{
    IncomingMessage, MAX_BATCH, Reply, Request, RequestId, RpcError, code, parse_incoming,
};

/// Maximum length of a line or HTTP body. `Group.SetClients` with a thousand clients has 40 kB.
pub const MAX_LINE: usize = 256 * 1024;

/// Whether a connection that begins with these bytes carries JSON-RPC: its first byte that is not
/// white space opens an object or a list. `None` as long as there is only white space.
///
/// A web page of any origin can make a browser send an HTTP request with any body to any port. The
/// body is preceded by a request line, which begins with a letter: a connection that begins with a
/// letter is not a control client, and none of its content may be executed.
#[must_use]
pub fn starts_with_json(bytes: &[u8]) -> Option<bool> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(matches!(first, b'{' | b'['))
}

/// Appends JSON in ASCII.
///
/// Characters outside ASCII, which occur in JSON only inside strings, are escaped (RFC 8259,
/// section 7): python-snapcast decodes each piece that it reads separately and fails when a piece
/// ends inside a multi-byte character.
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

/// The line of one message, or of several as a batch: its JSON in ASCII ([`write_json`]), and the
/// end of the line. JSON that is ASCII already is not copied, except where its allocation has to
/// grow.
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
