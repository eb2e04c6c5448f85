//! A minimal HTTP client: one request.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Status and body of the response to GET. The body is everything before the server closed the
/// connection.
///
/// # Errors
/// As [`request`].
pub fn get(server: SocketAddr, path: &str) -> io::Result<(u16, Vec<u8>)> {
    request(server, "GET", path, b"")
}

/// Status and body of the response to a method with a body.
///
/// # Errors
/// If nothing arrives for five seconds, or the response is not HTTP.
pub fn request(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    )?;
    // A server may refuse a body before it has read it; its response is read all the same.
    let sent = socket.write_all(body);
    let mut answer = Vec::new();
    let received = socket.read_to_end(&mut answer);
    if answer.is_empty() {
        sent.and(received)?;
    }
    let not_http = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer");
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(not_http)?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|w| w.parse().ok()).ok_or_else(not_http)?;
    let body = answer.split_off(end + 4);
    if head.contains("transfer-encoding: chunked") {
        return Ok((status, unchunk(&body).ok_or_else(not_http)?));
    }
    Ok((status, body))
}

/// RFC 9112, 7.1; extensions and trailers are ignored.
fn unchunk(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&body[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        body = &body[end + 2..];
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(body.get(..size)?);
        body = body.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined() {
        assert_eq!(unchunk(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n").unwrap(), b"abcde");
        assert_eq!(unchunk(b"9\r\nabc\r\n"), None);
    }
}
