//! `aulos rpc`: makes one control call.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aulos_server::exit::{Exit, Failure};
use clap::{Args, ValueHint};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::output::print;

#[derive(Debug, Args)]
pub(super) struct RpcArgs {
    /// Method name, as in Server.GetStatus; General.GetRPCCommands lists all
    method: String,
    /// Parameters as a JSON object; `-` reads standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    params: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// The server to call.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Control address of the server (JSON-RPC over TCP); the default port is 1705
    #[arg(long, value_name = "HOST[:PORT]", default_value = "127.0.0.1:1705")]
    server: String,
    /// Log in with the first line of this file: `user:password` or a token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    login: Option<PathBuf>,
    /// Connect with TLS, and trust this server or CA certificate (PEM)
    ///
    /// A server writes its own certificate to `tls/cert.pem` in its state directory.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tls_ca: Option<PathBuf>,
}

/// Snapcast's control port.
const PORT: u16 = 1705;
/// Time limit for connecting, and for the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const NO_ANSWER: &str = "no answer within 5 s";
/// JSON-RPC's code for failures that are not the caller's mistake.
const INTERNAL_ERROR: i64 = -32_603;
/// Longest line from the server, in bytes; the status of a large server has two million.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

pub(super) fn run(args: &RpcArgs) -> Result<Exit, Failure> {
    let params: Value = if args.params == "-" {
        serde_json::from_reader(io::stdin().lock().take(MAX_RESPONSE_BYTES))
    } else {
        serde_json::from_str(&args.params)
    }
    .map_err(|error| Failure::new(Exit::Usage, format!(
            "the parameters are not valid JSON: {error}\n    hint: quote the object for the shell, as \
             in '{{\"id\": \"default\"}}'"
        )))?;
    print(format!("{:#}\n", call(&args.server, &args.method, &params)?).as_bytes())
}

/// Makes a control call and returns its result.
///
/// # Errors
/// [`Exit::Negative`] with the error of the server, [`Exit::Unavailable`] without an answer.
pub(super) fn call(args: &ServerArgs, method: &str, params: &Value) -> Result<Value, Failure> {
    call_and_keep(args, method, params).map(|(result, _)| result)
}

/// The same, and then waits for a notification that `is_it` accepts, given the result; at most
/// `most`. Returns the result and the parameters of the notification.
pub(super) fn call_and_wait(
    args: &ServerArgs,
    (method, params): (&str, &Value),
    most: Duration,
    is_it: impl Fn(&Value, &Value) -> bool,
) -> Result<(Value, Value), Failure> {
    let (result, mut connection) = call_and_keep(args, method, params)?;
    let deadline = Instant::now() + most;
    loop {
        let message =
            connection.message(deadline).map_err(|error| unreachable_server(args, &error))?;
        if is_it(&result, &message) {
            return Ok((result, message["params"].clone()));
        }
    }
}

fn call_and_keep(
    args: &ServerArgs,
    method: &str,
    params: &Value,
) -> Result<(Value, ControlConnection), Failure> {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let login = args.login.as_deref().map(read_login).transpose()?;
    let answered = ControlConnection::open(args, login.as_ref(), &call)
        .and_then(|mut open| Ok((open.answer(Instant::now() + TIMEOUT)?, open)));
    let (mut reply, connection) = answered.map_err(|error| unreachable_server(args, &error))?;
    match reply.get("error") {
        Some(error) => Err(Failure::new(Exit::Negative, error_text(error))),
        None => Ok((reply["result"].take(), connection)),
    }
}

/// The text of an error. Its data alone where the message says no more than that the call failed.
fn error_text(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("error");
    match error["data"].as_str() {
        Some(data) if error["code"] == json!(INTERNAL_ERROR) => data.to_owned(),
        Some(data) => format!("{message}: {data} ({})", error["code"]),
        None => format!("{message} ({})", error["code"]),
    }
}

/// The failure for a server that cannot be reached, with the likely remedy.
fn unreachable_server(args: &ServerArgs, error: &io::Error) -> Failure {
    use io::ErrorKind as K;
    let hint = match error.kind() {
        K::ConnectionRefused | K::HostUnreachable | K::NetworkUnreachable => {
            "is the server running? `aulos serve` starts one; --server HOST:PORT addresses another"
        }
        K::TimedOut | K::UnexpectedEof | K::InvalidData => {
            "is this the control port? if the server requires TLS, add --tls-ca FILE"
        }
        K::Unsupported => "the control port is 1705, unless `listen.control` says otherwise",
        K::NotFound => "check --server HOST:PORT; a port is 1 to 65535",
        _ => return Failure::new(Exit::Unavailable, format!("{}: {error}", args.server)),
    };
    Failure::new(Exit::Unavailable, format!("{}: {error}\n    hint: {hint}", args.server))
}

/// The login call, from a file with `user:password` or a token.
fn read_login(path: &Path) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NoInput,
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Io,
        };
        Failure::new(exit, format!("{}: {error}", path.display()))
    })?;
    let secret = text.lines().next().unwrap_or_default();
    let scheme = if secret.contains(':') { "Plain" } else { "Bearer" };
    let params = json!({ "scheme": scheme, "param": secret });
    Ok(json!({ "jsonrpc": "2.0", "id": 0, "method": "Server.Authenticate", "params": params }))
}

/// A connection, with or without TLS.
trait RpcStream: Read + Write {}

impl<T: Read + Write> RpcStream for T {}

/// Wraps a connection in TLS that trusts one certificate, or those that it has issued.
fn secure(socket: TcpStream, ca: &Path, server: &str) -> io::Result<Box<dyn RpcStream>> {
    let odd =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", ca.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| odd(&error))? {
        let certificate = certificate.map_err(|error| odd(&error))?;
        roots.add(certificate).map_err(|error| odd(&error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host_of(server).to_owned()).map_err(io::Error::other)?;
    let tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(tls, socket)))
}

/// A connection to the control port.
struct ControlConnection {
    lines: BufReader<Box<dyn RpcStream>>,
    /// The same socket, whose timeout bounds each read.
    timer: TcpStream,
}

impl ControlConnection {
    /// Connects, and sends the call.
    fn open(args: &ServerArgs, login: Option<&Value>, call: &Value) -> io::Result<Self> {
        let socket = connect(&args.server)?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let timer = socket.try_clone()?;
        let mut wire: Box<dyn RpcStream> = match &args.tls_ca {
            Some(ca) => secure(socket, ca, &args.server)?,
            None => Box::new(socket),
        };
        let calls: String =
            login.into_iter().chain([call]).map(|call| format!("{call}\r\n")).collect();
        wire.write_all(calls.as_bytes())?;
        wire.flush()?;
        Ok(Self { lines: BufReader::new(wire), timer })
    }

    /// Reads lines until the answer to the call; other lines are notifications.
    fn answer(&mut self, deadline: Instant) -> io::Result<Value> {
        loop {
            let reply = self.message(deadline)?;
            let logged_in = reply.get("id") == Some(&json!(0)) && reply.get("error").is_none();
            if reply.get("id").is_some() && !logged_in {
                return Ok(reply);
            }
        }
    }

    fn message(&mut self, deadline: Instant) -> io::Result<Value> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER));
        }
        self.timer.set_read_timeout(Some(left))?;
        let mut line = String::new();
        let count =
            (&mut self.lines).take(MAX_RESPONSE_BYTES).read_line(&mut line).map_err(|error| {
                let late = error.kind() == io::ErrorKind::WouldBlock;
                if late { io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER) } else { error }
            })?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection without an answer",
            ));
        }
        if line.starts_with("HTTP/") {
            let message = "this is the port of the page, not the control port";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        serde_json::from_str(&line).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("the answer is not JSON: {error}"))
        })
    }
}

fn has_port(server: &str) -> bool {
    // An address of IPv6 without brackets has no port.
    let literal = !server.starts_with('[') && server.matches(':').count() > 1;
    !literal && server.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

fn host_of(server: &str) -> &str {
    let host = if has_port(server) {
        server.rsplit_once(':').map_or(server, |(host, _)| host)
    } else {
        server
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

fn connect(server: &str) -> io::Result<TcpStream> {
    // The standard library has no error kind for a failed name lookup.
    let unknown = |error| io::Error::new(io::ErrorKind::NotFound, error);
    let port = match server.rsplit_once(':') {
        Some((_, port)) if has_port(server) => port.parse().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{port}` is not a port"))
        })?,
        _ => PORT,
    };
    // The resolver knows the zone of a link-local address, but no brackets.
    aulos_io::feed::connect_to_any(
        (host_of(server), port).to_socket_addrs().map_err(unknown)?.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_with_or_without_a_port_and_a_zone() {
        for (server, host, port) in [
            ("music.local", "music.local", false),
            ("music.local:1705", "music.local", true),
            ("192.0.2.1:1", "192.0.2.1", true),
            ("::1", "::1", false),
            ("fe80::1%eth0", "fe80::1%eth0", false),
            ("[::1]", "::1", false),
            ("[fe80::1%eth0]", "fe80::1%eth0", false),
            ("[fe80::1%eth0]:1705", "fe80::1%eth0", true),
        ] {
            assert_eq!((host_of(server), has_port(server)), (host, port), "{server}");
        }
    }
}
