//! TLS: certificates of the server and of clients, and the sockets that use them.
//!
//! A first byte of 0x16 on any port starts TLS, so there is no second set of ports to open and
//! announce. Without a configured certificate the server generates a self-signed one: it does not
//! prove the server's identity, but it can be pinned, and a passive listener does not learn
//! passwords. Sessions are not resumed, so that a revoked certificate gives no access
//! (`docs/decisions/tls.md`).

mod byte_stream;
mod self_signed;
mod stream;
mod watched_socket;

use std::path::Path;

use aulos_config::TlsSettings;
use aulos_config::certificates::{CertificateFiles, TlsError, load};
use aulos_control::access::{AccessControl, AccessPolicy, Login};
use aulos_io::reactor::{AddressLimits, LazyTlsConfig, ListenPolicy};
use rustls::pki_types::CertificateDer;

pub(crate) use byte_stream::ByteStream;
pub(crate) use stream::{ClientStream, PeerStart, RefusalReason, open};
pub(crate) use watched_socket::PeerWatch;

/// The same, or with a self-signed certificate, which is created in `state_dir` if it is missing.
/// If TLS is not configured explicitly, the configuration is only built when it is first needed.
///
/// # Errors
/// As [`load`], and when no certificate can be created.
pub fn load_or_make(
    tls: &TlsSettings,
    state_dir: &Path,
) -> Result<Option<LazyTlsConfig>, TlsError> {
    if !tls.enabled {
        return Ok(None);
    }
    if tls.identity.is_some() {
        return Ok(load(tls)?.map(LazyTlsConfig::from));
    }
    let made = self_signed::identity(state_dir);
    let identity = made.map_err(|error| TlsError {
        key: "cert",
        fact: format!("cannot create a certificate in {}: {error}", state_dir.display()),
        hint: "the server has to be able to write into the state directory",
    })?;
    let (files, tls) = (CertificateFiles::read(&identity)?, tls.clone());
    if tls.is_required() {
        return files.configure(&tls).map(|config| Some(config.into()));
    }
    Ok(Some(LazyTlsConfig::new_lazy(move || {
        let made = files.configure(&tls);
        made.inspect_err(|error| tracing::warn!(%error, "TLS is not available")).ok()
    })))
}

/// The policy for connections.
///
/// # Errors
/// As [`load_or_make`].
pub fn listen_policy(
    tls: &TlsSettings,
    limits: AddressLimits,
    state_dir: &Path,
) -> Result<ListenPolicy, TlsError> {
    Ok(ListenPolicy { tls: load_or_make(tls, state_dir)?, require_tls: tls.require, limits })
}

/// The permissions of a connection before its login, from its certificate.
pub(crate) fn initial_login(
    access: &AccessControl,
    certificate: Option<&CertificateDer<'_>>,
) -> Login {
    let rules = access.rules();
    let shown = certificate.map(|certificate| login_of(certificate, &rules));
    shown.unwrap_or_default().or(rules.anonymous_login())
}

/// The permissions of a client with this valid certificate: those of the user it names (a DNS name
/// equals the user's), otherwise the default role for certificates.
fn login_of(certificate: &CertificateDer<'_>, rules: &AccessPolicy) -> Login {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let named = parsed.ok().and_then(|parsed| {
        let users = parsed.valid_dns_names().filter_map(|name| rules.login_of(name));
        users.max_by_key(|login| login.role)
    });
    named.unwrap_or_else(|| Login { role: rules.certificate_role, ..Login::default() })
}

#[cfg(test)]
mod tests;
