//! Certificates and keys of `[tls]`: read, checked and turned into the server's side of TLS.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// TLS settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whether TLS is accepted.
    pub enabled: bool,
    /// Certificate and key; none means that a self-signed one is made.
    pub identity: Option<Identity>,
    /// The CA of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether connections without TLS are refused.
    pub require: bool,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self { enabled: true, identity: None, client_ca: None, require: false }
    }
}

impl TlsSettings {
    /// Whether another setting needs TLS.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        self.require || self.identity.is_some() || self.client_ca.is_some()
    }
}

/// A configuration value that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// The key of `[tls]` concerned.
    pub key: &'static str,
    /// The problem, without a full stop.
    pub fact: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)
    }
}

impl std::error::Error for TlsError {}

/// The TLS configuration with the user's certificate.
///
/// # Errors
/// [`TlsError`] when a file cannot be read or is invalid.
pub fn load(tls: &TlsSettings) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (true, Some(identity)) = (tls.enabled, &tls.identity) else { return Ok(None) };
    CertificateFiles::read(identity)?.configure(tls).map(Some)
}

/// The contents of a certificate file and its key file.
#[derive(Debug)]
pub struct CertificateFiles {
    identity: Identity,
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl CertificateFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// [`TlsError`], when one cannot be read.
    pub fn read(identity: &Identity) -> Result<Self, TlsError> {
        let (cert, key) = (read("cert", &identity.cert)?, read("key", &identity.key)?);
        Ok(Self { identity: identity.clone(), cert, key })
    }

    /// The server's side of TLS with this certificate.
    ///
    /// # Errors
    /// [`TlsError`], when a file does not hold what it should.
    pub fn configure(&self, tls: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = certificates("cert", &self.identity.cert, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| {
            unusable("key", &self.identity.key, &format!("no private key: {error}"))
        })?;
        configure(chain, key, tls).map(Arc::new)
    }
}

/// Checks the CA for client certificates, if the server's own certificate does not exist yet.
pub(crate) fn check_client_ca(tls: &TlsSettings) -> Result<(), TlsError> {
    match &tls.client_ca {
        Some(path) => verifier(path, Arc::new(default_provider())).map(drop),
        None => Ok(()),
    }
}

/// Paths of a certificate and its key (PEM, RFC 7468).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate and its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

fn configure(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    tls: &TlsSettings,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(default_provider());
    let wrong = |key, error: &dyn fmt::Display| TlsError { key, fact: error.to_string() };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("cert", &error))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(verifier(path, provider)?),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| wrong("cert", &error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let bad = |error: &dyn fmt::Display| unusable("client_ca", path, &error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca", path, &read("client_ca", path)?)? {
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    // A client without a certificate may have a password.
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| bad(&error))
}

fn certificates(
    key: &'static str,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let chain = parsed.map_err(|error| unusable(key, path, &error.to_string()))?;
    if chain.is_empty() {
        return Err(unusable(key, path, "there is no certificate in it"));
    }
    Ok(chain)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let all = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_PEM + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = all().map_err(|error| unusable(key, path, &error.to_string()))?;
    if bytes.len() as u64 > MAX_PEM {
        return Err(unusable(key, path, &format!("it has more than {MAX_PEM} bytes")));
    }
    Ok(bytes)
}

fn unusable(key: &'static str, path: &Path, why: &str) -> TlsError {
    TlsError { key, fact: format!("{}: {why}", path.display()) }
}

/// Maximum length of a file in bytes: hundreds of certificates.
const MAX_PEM: u64 = 1 << 20;
