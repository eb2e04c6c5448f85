//! Certificates and keys of `[tls]`: read, checked and turned into the server's side of TLS.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use crate::security::x509::{self, CertificateFields};

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
    /// When the configured certificate expires.
    pub expires: Option<SystemTime>,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self { enabled: true, identity: None, client_ca: None, require: false, expires: None }
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
    /// What to do about it.
    pub hint: &'static str,
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
        let key = self.private_key()?;
        let provider = Arc::new(default_provider());
        self.check_pair(&chain, &key, &provider)?;
        configure(chain, key, tls, provider).map(Arc::new)
    }

    /// When the certificate expires, and what its clients may object to.
    pub(crate) fn inspect(&self, now: SystemTime) -> CertificateReport {
        let chain = certificates("cert", &self.identity.cert, &self.cert).unwrap_or_default();
        let fields: Vec<_> = chain.iter().map_while(|one| CertificateFields::parse(one)).collect();
        let (Some(own), Some(last)) = (fields.first(), fields.last()) else {
            return CertificateReport::default();
        };
        let path = self.identity.cert.display();
        let mut notes = Vec::new();
        let mut note = |fact: String, hint| notes.push((format!("{path}: {fact}"), hint));
        let (begin, end) = (SystemTime::from(own.not_before), SystemTime::from(own.not_after));
        let day = |at: Timestamp| at.strftime("%Y-%m-%d");
        if end < now {
            let fact = format!("the certificate expired on {}", day(own.not_after));
            note(fact, "renew it, and reload the server; until then clients refuse it");
        } else if begin > now {
            let fact = format!("the certificate is not valid before {}", day(own.not_before));
            note(fact, "check the clock of this machine; until then clients refuse it");
        }
        for (at, pair) in fields.windows(2).enumerate() {
            if let [one, next] = pair
                && one.issuer != next.subject
            {
                let (number, of) = (at + 2, at + 1);
                let fact = format!("certificate {number} is not that of the issuer of {of}");
                note(fact, "write each issuer's certificate behind the one that it has issued");
            }
        }
        if fields.len() == 1 && chain.len() == 1 && !last.is_self_issued() {
            let issuer = last.issuer_name().unwrap_or_default();
            let fact = format!("the certificate of its issuer `{issuer}` is missing");
            note(
                fact,
                "append it, or use the file of the whole chain (fullchain.pem), unless every \
                        client knows the issuer",
            );
        }
        CertificateReport { expires: Some(end), notes }
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let path = &self.identity.key;
        // PKCS #8 (RFC 7468, section 11), and the older form of OpenSSL (RFC 1421, section
        // 4.6.1.1).
        if contains(&self.key, b"BEGIN ENCRYPTED") || contains(&self.key, b"4,ENCRYPTED") {
            return Err(TlsError {
                hint: "write it without one: openssl pkey -in KEY -out NEW",
                ..unusable("key", path, "the key has a passphrase, which the server cannot enter")
            });
        }
        PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| match error {
            pem::Error::NoItemsFound => unusable("key", path, "there is no private key in it"),
            error => unusable("key", path, &pem_fact(&error)),
        })
    }

    /// Checks that the key is of a supported kind, and belongs to the first certificate.
    fn check_pair(
        &self,
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<(), TlsError> {
        let Identity { cert, key: key_path } = &self.identity;
        let loaded = provider.key_provider.load_private_key(key.clone_key());
        let key = loaded.map_err(|error| {
            let fact = if x509::is_p521(key.secret_der()) {
                "the key is of the curve P-521, which is not supported".to_owned()
            } else {
                error.to_string()
            };
            let hint = "use a key of P-256, P-384, Ed25519 or RSA (2048 bits and more)";
            TlsError { hint, ..unusable("key", key_path, &fact) }
        })?;
        let is_of = |certificate: &CertificateDer<'static>| {
            CertifiedKey::new(vec![certificate.clone()], Arc::clone(&key)).keys_match()
        };
        let mismatch = Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch));
        if chain.first().map(is_of) != Some(mismatch) {
            return Ok(());
        }
        let at = chain.iter().position(|certificate| is_of(certificate).is_ok());
        Err(match at {
            Some(at) => TlsError {
                hint: "reverse the order: the server's own certificate, then that of its issuer",
                ..unusable(
                    "cert",
                    cert,
                    &format!("the first certificate is not that of the key; number {} is", at + 1),
                )
            },
            None => TlsError {
                hint: "use the key with which the certificate was requested",
                ..unusable(
                    "cert",
                    cert,
                    &format!("the certificate is not that of the key {}", key_path.display()),
                )
            },
        })
    }
}

/// What a certificate says of itself.
#[derive(Debug, Default)]
pub(crate) struct CertificateReport {
    pub(crate) expires: Option<SystemTime>,
    /// Facts with what to do about them.
    pub(crate) notes: Vec<(String, &'static str)>,
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
    provider: Arc<CryptoProvider>,
) -> Result<ServerConfig, TlsError> {
    let wrong = |key, error: &dyn fmt::Display| {
        let fact = error.to_string();
        TlsError { key, fact, hint: PEM_HINT }
    };
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
    let chain = parsed.map_err(|error| unusable(key, path, &pem_fact(&error)))?;
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
    TlsError { key, fact: format!("{}: {why}", path.display()), hint: PEM_HINT }
}

/// What is wrong with a PEM file (RFC 7468).
fn pem_fact(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "it ends in the middle of a section, so the file is not complete".to_owned()
        }
        error => error.to_string(),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|here| here == part)
}

const PEM_HINT: &str = "a PEM file (-----BEGIN ...) that the server can read";

/// Maximum length of a file in bytes: hundreds of certificates.
const MAX_PEM: u64 = 1 << 20;
