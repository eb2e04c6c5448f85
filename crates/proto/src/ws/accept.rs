//! The server's answer to the request that begins a WebSocket.

use super::client::answer_to_key;
use crate::http::ReceivedHead;

/// The answer to a request with this `head`, and whether it is a WebSocket at `path`. Whoever asks for
/// something else is told what the port is `for_what`.
#[must_use]
pub fn accept(head: &[u8], path: &str, for_what: &str) -> (String, bool) {
    let head = ReceivedHead::parse(head).ok();
    let field = |name| head.as_ref().and_then(|head| head.field(name));
    let target = head.as_ref().and_then(ReceivedHead::request_line).map(|(_, target, _)| target);
    let is_there = target.is_some_and(|target| target.split('?').next() == Some(path));
    let is_upgrade = field("upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
    let key = field("sec-websocket-key").filter(|_| is_upgrade && is_there);
    match key.and_then(|key| core::str::from_utf8(key).ok()) {
        Some(key) => {
            let answer = answer_to_key(key);
            let response = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {answer}\r\n\r\n"
            );
            (response, true)
        }
        None => {
            let text = format!("this port is for {for_what}: a WebSocket at {path}\n");
            let response = format!(
                "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{text}",
                text.len()
            );
            (response, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::{WsClient, WsClientEvent};

    #[test]
    fn a_client_accepts_the_answer_and_other_requests_are_refused() {
        let mut client = WsClient::new(1);
        let request = client.request("a:1", "/sendspin?x", None);
        let (response, is_accepted) = accept(request.as_bytes(), "/sendspin", "players");
        assert!(is_accepted);
        let mut bytes = response.as_bytes();
        assert_eq!(client.next(&mut bytes), Ok(Some(WsClientEvent::Open)));
        for other in [
            "GET /other HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n",
            "GET /sendspin HTTP/1.1\r\nSec-WebSocket-Key: a\r\n\r\n",
            "GET /sendspin HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
            "\0\r\n\r\n",
        ] {
            let (response, is_accepted) = accept(other.as_bytes(), "/sendspin", "players");
            assert!(!is_accepted && response.starts_with("HTTP/1.1 404"), "{other}");
            assert!(response.ends_with("for players: a WebSocket at /sendspin\n"), "{response}");
        }
    }
}
