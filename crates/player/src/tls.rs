//! TLS of the connection to the server: its certificate is always verified.

use core::fmt;
use std::path::PathBuf;

/// Files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "options of the command line")]
pub struct TlsFiles {
    /// Certificates of authorities that the server's is issued by, or the server's own one; those
    /// of the system if there is none.
    pub server_ca: Option<PathBuf>,
    /// Certificate of this player, for servers that require one.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// Why TLS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerTlsError(String);

impl fmt::Display for PlayerTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for PlayerTlsError {}

pub use implementation::TlsClient;

pub(crate) use implementation::TlsSession;

#[cfg(feature = "tls")]
mod implementation {
    use std::io::{self, Read as _};
    use std::path::Path;
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{CertificateError, ClientConfig, ClientConnection, Error, RootCertStore};

    use super::{PlayerTlsError, TlsFiles};

    /// What is trusted, and the own certificate.
    #[derive(Clone, Debug)]
    pub struct TlsClient(Arc<ClientConfig>);

    impl TlsClient {
        /// Reads the files.
        ///
        /// # Errors
        /// [`PlayerTlsError`] if a file cannot be read or used.
        pub fn load(files: &TlsFiles) -> Result<Self, PlayerTlsError> {
            let plain = |error: Error| PlayerTlsError(error.to_string());
            let provider = Arc::new(default_provider());
            let roots = match &files.server_ca {
                Some(path) => roots_of(path)?,
                None => system_roots()?,
            };
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .build()
                    .map_err(|error| PlayerTlsError(error.to_string()))?;
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(plain)?
                .with_webpki_verifier(verifier);
            let config = match (&files.certificate, &files.key) {
                (None, None) => config.with_no_client_auth(),
                (Some(certificate), Some(key)) => {
                    let chain = certificates(certificate)?;
                    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unusable(key, &e))?;
                    config
                        .with_client_auth_cert(chain, key)
                        .map_err(|e| unusable(certificate, &e))?
                }
                _ => {
                    return Err(PlayerTlsError("--cert and --cert-key belong together".to_owned()));
                }
            };
            Ok(Self(Arc::new(config)))
        }
    }

    fn roots_of(path: &Path) -> Result<RootCertStore, PlayerTlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| unusable(path, &error))?;
        }
        Ok(roots)
    }

    fn system_roots() -> Result<RootCertStore, PlayerTlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let text = "no CA certificates on this machine; install the package \
                        ca-certificates, or use --server-cert FILE";
            return Err(PlayerTlsError(text.to_owned()));
        }
        Ok(roots)
    }

    fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PlayerTlsError> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let found: Vec<_> = read.map_err(|error| unusable(path, &error))?;
        if found.is_empty() {
            return Err(unusable(path, &"no certificate in this file"));
        }
        Ok(found)
    }

    fn unusable(path: &Path, why: &dyn std::fmt::Display) -> PlayerTlsError {
        PlayerTlsError(format!("{}: {why}", path.display()))
    }

    /// TLS of one connection, without its socket.
    #[derive(Debug)]
    pub(crate) struct TlsSession {
        connection: Box<ClientConnection>,
        host: String,
    }

    impl TlsSession {
        pub(crate) fn new(client: &TlsClient, host: &str) -> io::Result<Self> {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let connection = ClientConnection::new(Arc::clone(&client.0), name);
            let connection = Box::new(connection.map_err(io::Error::other)?);
            Ok(Self { connection, host: host.to_owned() })
        }

        pub(crate) fn is_handshaking(&self) -> bool {
            self.connection.is_handshaking()
        }

        /// Encrypts `plain` and appends it to `out`, with what the handshake has to send.
        pub(crate) fn write(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
            use std::io::Write as _;
            self.connection.writer().write_all(plain)?;
            self.drain(out)
        }

        fn drain(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
            while self.connection.wants_write() {
                self.connection.write_tls(out)?;
            }
            Ok(())
        }

        /// Decrypts what was received and appends it to `plain`; what is to be sent, to `out`.
        pub(crate) fn read(
            &mut self,
            mut received: &[u8],
            plain: &mut Vec<u8>,
            out: &mut Vec<u8>,
        ) -> io::Result<()> {
            while !received.is_empty() {
                self.connection.read_tls(&mut received)?;
                let processed = self.connection.process_new_packets();
                // On an error this is the alert.
                self.drain(out)?;
                let state = processed.map_err(|error| self.explain(&error))?;
                let from = plain.len();
                plain.resize(from + state.plaintext_bytes_to_read(), 0);
                self.connection.reader().read_exact(plain.get_mut(from..).unwrap_or_default())?;
                if state.peer_has_closed() {
                    return Err(io::Error::other("the server has closed the connection"));
                }
            }
            Ok(())
        }

        fn explain(&self, error: &Error) -> io::Error {
            let host = &self.host;
            io::Error::other(match error {
                Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                    "the certificate of the server is not trusted; name it, or the authority that \
                     has issued it, by --server-cert FILE"
                        .to_owned()
                }
                Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                ) => format!("the certificate of the server is not for `{host}`"),
                Error::InvalidCertificate(
                    CertificateError::Expired | CertificateError::ExpiredContext { .. },
                ) => "the certificate of the server has expired".to_owned(),
                Error::InvalidMessage(_) => "the server does not speak TLS on this port".to_owned(),
                error => format!("TLS failed: {error}"),
            })
        }
    }
}

#[cfg(not(feature = "tls"))]
#[allow(clippy::needless_pass_by_ref_mut, reason = "as in the other build")]
mod implementation {
    use std::io;

    use super::{PlayerTlsError, TlsFiles};

    /// Does not exist in this build.
    #[derive(Clone, Debug)]
    #[allow(clippy::exhaustive_enums, reason = "there is nothing to add")]
    pub enum TlsClient {}

    impl TlsClient {
        /// Fails: this build has no TLS.
        ///
        /// # Errors
        /// Always.
        pub fn load(_: &TlsFiles) -> Result<Self, PlayerTlsError> {
            Err(PlayerTlsError("this program was built without TLS".to_owned()))
        }
    }

    #[derive(Debug)]
    pub(crate) enum TlsSession {}

    impl TlsSession {
        pub(crate) fn new(client: &TlsClient, _: &str) -> io::Result<Self> {
            match *client {}
        }

        pub(crate) fn is_handshaking(&self) -> bool {
            match *self {}
        }

        pub(crate) fn write(&mut self, _: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn read(
            &mut self,
            _: &[u8],
            _: &mut Vec<u8>,
            _: &mut Vec<u8>,
        ) -> io::Result<()> {
            match *self {}
        }
    }
}
