//! `aulos rpc`: one control call.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{RpcArgs, print};
use crate::exit::{Exit, Failure};

const PORT: u16 = 1705;
/// For connecting and for the answer, each.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of one line from the server; a full house's status has two million.
const MAX_ANSWER: u64 = 64 << 20;

pub(super) fn run(args: &RpcArgs) -> Result<Exit, Failure> {
    let params: Value = if args.params == "-" {
        serde_json::from_reader(io::stdin().lock().take(MAX_ANSWER))
    } else {
        serde_json::from_str(&args.params)
    }
    .map_err(|error| Failure::new(Exit::Usage, format!("the parameters are not JSON: {error}")))?;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": args.method, "params": params });
    let reply = ask(&args.server, &call)
        .map_err(|error| Failure::new(Exit::Unavailable, format!("{}: {error}", args.server)))?;
    if let Some(error) = reply.get("error") {
        let fact = error["data"].as_str().map_or_else(String::new, |data| format!(": {data}"));
        let message = error["message"].as_str().unwrap_or("error");
        return Err(Failure::new(Exit::Negative, format!("{message}{fact} ({})", error["code"])));
    }
    print(format!("{:#}\n", reply["result"]).as_bytes())
}

/// Sends the call and reads lines until its answer comes; what else comes are notifications.
fn ask(server: &str, call: &Value) -> io::Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    let mut socket = connect(server)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(format!("{call}\r\n").as_bytes())?;
    let mut lines = BufReader::new(socket);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        }
        lines.get_ref().set_read_timeout(Some(left))?;
        let mut line = String::new();
        let count = (&mut lines).take(MAX_ANSWER).read_line(&mut line).map_err(|error| {
            let late = error.kind() == io::ErrorKind::WouldBlock;
            if late { io::Error::new(io::ErrorKind::TimedOut, "no answer") } else { error }
        })?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
        }
        let reply: Value = serde_json::from_str(&line)?;
        if reply.get("id").is_some() {
            return Ok(reply);
        }
    }
}

fn connect(server: &str) -> io::Result<TcpStream> {
    let literal = server.parse::<std::net::Ipv6Addr>().is_ok();
    let has_port = !literal && server.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let addresses: Vec<_> = if has_port {
        server.to_socket_addrs()?.collect()
    } else {
        let host = server.trim_start_matches('[').trim_end_matches(']');
        (host, PORT).to_socket_addrs()?.collect()
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
