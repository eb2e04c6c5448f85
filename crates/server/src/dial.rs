//! Outgoing connections: name lookup, TCP, and TLS with the machine's root certificates. The
//! addresses of a name are tried as [`AddressRace`] says.
//!
//! Each lookup runs on a thread of its own, because it can take arbitrarily long and the runtime's
//! one blocking thread belongs to the disk. Callers limit the total time.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use aulos_core::Instant;
use aulos_io::SystemClock;
use aulos_session::connect::AddressRace;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls::ByteStream;

/// Maximum number of concurrent lookups. One that hangs ends when the system's resolver times out,
/// after about half a minute.
const MAX_LOOKUPS: usize = 8;

/// Opens connections.
#[derive(Debug)]
pub(crate) struct Dialer {
    /// Root certificates; loaded on first use.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    lookups: Arc<Semaphore>,
    /// Names known in a test, with the results of successive lookups; the last one repeats.
    #[cfg(test)]
    names: std::sync::Mutex<Vec<(&'static str, Vec<IpAddr>)>>,
}

/// Why a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DialError {
    /// The name has no address.
    Name,
    /// [`MAX_LOOKUPS`] are in progress.
    Busy,
    /// No address could be reached; the error of the last one.
    Connect(io::ErrorKind),
    /// The certificate is not trusted, or the peer does not speak TLS.
    Tls(String),
}

/// A connection to another server.
pub(crate) type DialedStream = ByteStream<TlsStream<TcpStream>>;

impl DialedStream {
    pub(crate) async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into).await,
            // Many servers close without a TLS close alert.
            Self::Tls(stream) => match stream.read(into).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                done => done,
            },
        }
    }

    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// The non-blocking socket and its TLS state.
    pub(crate) fn into_parts(
        self,
    ) -> io::Result<(std::net::TcpStream, Option<Box<ClientConnection>>)> {
        let (socket, tls) = match self {
            Self::Plain(socket) => (socket, None),
            Self::Tls(stream) => {
                let (socket, tls) = stream.into_inner();
                (socket, Some(Box::new(tls)))
            }
        };
        Ok((socket.into_std()?, tls))
    }
}

impl Default for Dialer {
    fn default() -> Self {
        Self {
            tls: OnceLock::new(),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            #[cfg(test)]
            names: std::sync::Mutex::default(),
        }
    }
}

impl Dialer {
    /// A dialer with a test's TLS configuration.
    #[cfg(test)]
    pub(crate) fn with_tls(config: ClientConfig) -> Self {
        Self { tls: Ok(Arc::new(config)).into(), ..Self::default() }
    }

    /// A dialer that knows these names, each with the results of successive lookups.
    #[cfg(test)]
    pub(crate) fn with_names(names: Vec<(&'static str, Vec<IpAddr>)>) -> Self {
        Self { names: names.into(), ..Self::default() }
    }

    #[cfg(test)]
    fn test_address(&self, host: &str) -> Option<IpAddr> {
        let mut names = self.names.lock().unwrap();
        let (_, answers) = names.iter_mut().find(|(name, _)| *name == host)?;
        if answers.len() > 1 { Some(answers.remove(0)) } else { answers.first().copied() }
    }

    /// A dialer that trusts the certificates of this file in place of the machine's; read at once.
    pub(crate) fn trusting(file: &Path) -> Self {
        let tls = load_roots(file).and_then(client_config);
        Self { tls: tls.into(), ..Self::default() }
    }

    /// Connects to a host, by its name or its address without brackets, with TLS if `secure`.
    ///
    /// # Errors
    /// [`DialError`].
    pub(crate) async fn dial(
        &self,
        secure: bool,
        host: &str,
        port: u16,
    ) -> Result<DialedStream, DialError> {
        let found = self.resolve(host, port).await?;
        if found.is_empty() {
            return Err(DialError::Name);
        }
        let connected = connect_to_any(found, None).await;
        let (_, socket) = connected.map_err(|error| DialError::Connect(error.kind()))?;
        Ok(match secure {
            true => DialedStream::Tls(Box::new(self.start_tls(host, socket).await?)),
            false => DialedStream::Plain(socket),
        })
    }

    /// Performs a TLS handshake with a connected host and verifies its name.
    ///
    /// # Errors
    /// [`DialError::Tls`].
    pub(crate) async fn start_tls(
        &self,
        host: &str,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let config = self.tls.get_or_init(load_tls_config).clone().map_err(DialError::Tls)?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| DialError::Tls(format!("{host} is not a valid host name")))?;
        let shaken = TlsConnector::from(config).connect(name, socket).await;
        shaken.map_err(|error| DialError::Tls(error.to_string()))
    }

    /// Resolves the addresses of a host.
    ///
    /// # Errors
    /// [`DialError::Name`] and [`DialError::Busy`].
    pub(crate) async fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, DialError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        #[cfg(test)]
        if let Some(address) = self.test_address(host) {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        // The thread releases it, not the caller: a lookup that hangs stays counted.
        let permit = Arc::clone(&self.lookups).try_acquire_owned().map_err(|_| DialError::Busy)?;
        let (sender, receiver) = oneshot::channel();
        let host = host.to_owned();
        let lookup = move || {
            let addresses = (host.as_str(), port).to_socket_addrs();
            let addresses = addresses.map(Iterator::collect::<Vec<_>>);
            drop(permit);
            // The caller may have timed out.
            sender.send(addresses).ok();
        };
        let thread = std::thread::Builder::new().name("aulos-resolve".into()).spawn(lookup);
        thread.map_err(|_| DialError::Busy)?;
        receiver.await.map_err(|_| DialError::Name)?.map_err(|_| DialError::Name)
    }
}

/// Connects to the first of these addresses that answers. `receive_buffer` is the size of the
/// kernel's buffer, if not the usual one.
///
/// # Errors
/// That of the last attempt, if all fail.
pub(crate) async fn connect_to_any(
    addresses: Vec<SocketAddr>,
    receive_buffer: Option<u32>,
) -> io::Result<(SocketAddr, TcpStream)> {
    let mut race = AddressRace::new(addresses);
    let mut attempts: Vec<ConnectAttempt> = Vec::new();
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    loop {
        while let Some(address) = race.poll_output(SystemClock::now()) {
            attempts.push(Box::pin(connect(address, receive_buffer)));
        }
        if race.is_lost() || race.is_expired(SystemClock::now()) {
            return Err(failure);
        }
        let due = race.poll_timeout().map_or(Instant::ZERO, |at| at);
        tokio::select! {
            done = first_done(&mut attempts) => match done {
                Ok(connected) => return Ok(connected),
                Err(error) => {
                    race.handle_failure();
                    failure = error;
                }
            },
            () = tokio::time::sleep(due.since(SystemClock::now()).into()) => {}
        }
    }
}

type ConnectAttempt = Pin<Box<dyn Future<Output = io::Result<(SocketAddr, TcpStream)>> + Send>>;

async fn connect(
    address: SocketAddr,
    receive_buffer: Option<u32>,
) -> io::Result<(SocketAddr, TcpStream)> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    if let Some(bytes) = receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok((address, socket.connect(address).await?))
}

/// The result of the attempt that ends first, which is removed. Waits for ever without attempts.
async fn first_done(attempts: &mut Vec<ConnectAttempt>) -> io::Result<(SocketAddr, TcpStream)> {
    poll_fn(|context| {
        for index in 0..attempts.len() {
            if let Poll::Ready(done) = attempts[index].as_mut().poll(context) {
                drop(attempts.swap_remove(index));
                return Poll::Ready(done);
            }
        }
        Poll::Pending
    })
    .await
}

/// A server at `localhost`, and a client that trusts only it.
#[cfg(test)]
pub(crate) fn own_authority() -> (Arc<rustls::ServerConfig>, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), client)
}

/// Loads this machine's root certificates.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn load_tls_config() -> Result<Arc<ClientConfig>, String> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        return Err(
            "no CA certificates found on this machine; install the package ca-certificates"
                .to_owned(),
        );
    }
    client_config(roots)
}

/// The certificates in a file, in PEM.
fn load_roots(file: &Path) -> Result<RootCertStore, String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))? {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() { Err(unreadable(&"no certificate in it")) } else { Ok(roots) }
}

fn client_config(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_on_one_of_two_addresses_of_a_name_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let at = |ip: [u8; 4]| SocketAddr::from((ip, here.port()));
        let v6: SocketAddr = format!("[::1]:{}", here.port()).parse().unwrap();
        for found in [vec![v6, here], vec![at([127, 0, 0, 2]), v6, here], vec![here, v6]] {
            let (address, socket) = connect_to_any(found, None).await.unwrap();
            assert_eq!((address, socket.peer_addr().unwrap()), (here, here));
        }
        let failure = connect_to_any(vec![v6, at([127, 0, 0, 2])], None).await.unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_delays_the_next_by_a_quarter_of_a_second() {
        // Its queue of connections is full, so the kernel answers no further ones.
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.3:0".parse().unwrap()).unwrap();
        let silent = silent.listen(1).unwrap();
        let address = silent.local_addr().unwrap();
        let fill = || {
            let socket = TcpSocket::new_v4().unwrap();
            async move {
                let connecting = socket.connect(address);
                let limit = std::time::Duration::from_millis(50);
                tokio::time::timeout(limit, connecting).await.ok()?.ok()
            }
        };
        let mut filled = Vec::new();
        while let Some(socket) = fill().await {
            filled.push(socket);
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let (found, _) = connect_to_any(vec![address, here], None).await.unwrap();
        assert_eq!(found, here);
    }

    #[tokio::test]
    async fn so_many_lookups_at_once_and_no_more() {
        let dialer = Dialer::default();
        let lookup = || Arc::clone(&dialer.lookups).try_acquire_owned();
        let mut taken: Vec<_> = (0..MAX_LOOKUPS).map(|_| lookup()).collect();
        assert!(taken.iter().all(Result::is_ok));
        assert_eq!(dialer.resolve("localhost", 80).await, Err(DialError::Busy));
        taken.pop();
        dialer.resolve("localhost", 80).await.unwrap();
    }
}
