//! JSON-RPC 2.0 as Snapcast's control clients speak it: framing only.
//!
//! Bytes become [`Incoming`], and [`Reply`] and [`Notification`] become bytes. What a method means
//! is the dispatcher's; a typed enum of all methods in here was rejected, because then every new
//! method would touch two floors. On TCP a message is a line: we take LF or CRLF and always send
//! CRLF, because python-snapcast waits for it for ever.

mod lines;
mod message;

pub use lines::{LineError, Lines};
pub use message::{Id, Incoming, MAX_BATCH, Notification, Reply, Request, RpcError, code, parse};

/// The longest line or HTTP body that is read. `Group.SetClients` with a thousand clients has 40 kB.
pub const MAX_LINE: usize = 256 * 1024;

/// Appends the JSON of one message, or of several as a batch, and the end of the line.
pub fn write_line(json: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(json.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
