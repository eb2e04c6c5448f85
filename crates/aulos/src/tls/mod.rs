//! TLS: which certificate we show, which we accept, and the sockets that speak it.
//!
//! A first byte of 0x16 on any port begins it, so there is no second set of ports to open, to
//! announce and to forget. Without a certificate of the user's own the server makes one for itself:
//! it proves nothing to a stranger, but it can be pinned, and nobody who only listens learns
//! passwords. Each handshake is a whole one; nothing is resumed, so that a certificate that is no
//! longer accepted opens nothing, and nothing is kept for those who are gone.

mod own;
mod stream;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aulos_io::reactor::{Door, Limits, Terms};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::access::{Role, Rules};
use crate::config::Tls;
pub(crate) use stream::{Refused, Stream, open};

/// What cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// The key of `[tls]` that is to blame.
    pub key: &'static str,
    /// The fact, without a full stop.
    pub fact: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)
    }
}

impl std::error::Error for TlsError {}

/// How TLS is spoken with certificates of the user's own.
///
/// # Errors
/// [`TlsError`], when a file cannot be read or does not hold what it should.
pub fn load(tls: &Tls) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (true, Some(identity)) = (tls.enabled, &tls.identity) else { return Ok(None) };
    Files::read(identity)?.configure(tls).map(Some)
}

/// A certificate and its key as they were read.
struct Files {
    identity: Identity,
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(identity: &Identity) -> Result<Self, TlsError> {
        let (cert, key) = (read("cert", &identity.cert)?, read("key", &identity.key)?);
        Ok(Self { identity: identity.clone(), cert, key })
    }

    fn configure(&self, tls: &Tls) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = certificates("cert", &self.identity.cert, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| {
            unusable("key", &self.identity.key, &format!("no private key: {error}"))
        })?;
        configure(chain, key, tls).map(Arc::new)
    }
}

/// Whether clients' certificates can be checked, where ours has yet to be made.
pub(crate) fn check_client_ca(tls: &Tls) -> Result<(), TlsError> {
    match &tls.client_ca {
        Some(path) => verifier(path, Arc::new(default_provider())).map(drop),
        None => Ok(()),
    }
}

/// The same, or with a certificate that is made in `state_dir` where it is not there yet. Terms that
/// nobody has asked for are worked out when somebody wants them.
///
/// # Errors
/// As [`load`], and when none can be made.
pub fn load_or_make(tls: &Tls, state_dir: &Path) -> Result<Option<Terms>, TlsError> {
    if !tls.enabled {
        return Ok(None);
    }
    if tls.identity.is_some() {
        return Ok(load(tls)?.map(Terms::from));
    }
    let made = own::identity(state_dir);
    let identity = made.map_err(|error| TlsError {
        key: "cert",
        fact: format!("no certificate can be made in {}: {error}", state_dir.display()),
    })?;
    let (files, tls) = (Files::read(&identity)?, tls.clone());
    if tls.is_asked_for() {
        return files.configure(&tls).map(|config| Some(config.into()));
    }
    Ok(Some(Terms::when_needed(move || {
        let made = files.configure(&tls);
        made.inspect_err(|error| tracing::warn!("there is no TLS: {error}")).ok()
    })))
}

/// What connections have to be.
///
/// # Errors
/// As [`load_or_make`].
pub fn door(tls: &Tls, limits: Limits, state_dir: &Path) -> Result<Door, TlsError> {
    Ok(Door { tls: load_or_make(tls, state_dir)?, require_tls: tls.require, limits })
}

/// What somebody may who has shown this certificate, which was good: what the user may whom it names
/// (a DNS name of it is the user's), else what all of them may.
pub(crate) fn role_of(certificate: &CertificateDer<'_>, rules: &Rules) -> Role {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let named = parsed
        .ok()
        .and_then(|parsed| parsed.valid_dns_names().filter_map(|name| rules.role_of(name)).max());
    named.unwrap_or(rules.certified)
}

fn configure(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    tls: &Tls,
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
    // Whoever has none may still have a password.
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

/// A certificate and its key, each in a file (PEM, RFC 7468).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those that vouch for it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Bytes of one file: hundreds of certificates.
const MAX_PEM: u64 = 1 << 20;

#[cfg(test)]
mod tests;
