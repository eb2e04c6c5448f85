//! TLS: which certificate we show, which we accept, and the sockets that speak it.
//!
//! A first byte of 0x16 on any port begins it, so there is no second set of ports to open, to
//! announce and to forget. Without a certificate of the user's own the server makes one for itself:
//! it proves nothing to a stranger, but it can be pinned, and nobody who only listens learns
//! passwords. Each handshake is a whole one; nothing is resumed, so that a certificate that is no
//! longer accepted opens nothing, and nothing is kept for those who are gone.

mod self_signed;
mod stream;

use std::path::Path;

use aulos_config::TlsSettings;
use aulos_config::certificates::{CertificateFiles, TlsError, load};
use aulos_io::reactor::{AddressLimits, LazyTlsConfig, ListenPolicy};
use rustls::pki_types::CertificateDer;

use crate::access::{Role, Rules};
pub(crate) use stream::{ClientStream, RefusalReason, open};

/// The same, or with a certificate that is made in `state_dir` where it is not there yet. Terms that
/// nobody has asked for are worked out when somebody wants them.
///
/// # Errors
/// As [`load`], and when none can be made.
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
        fact: format!("no certificate can be made in {}: {error}", state_dir.display()),
    })?;
    let (files, tls) = (CertificateFiles::read(&identity)?, tls.clone());
    if tls.is_required() {
        return files.configure(&tls).map(|config| Some(config.into()));
    }
    Ok(Some(LazyTlsConfig::new_lazy(move || {
        let made = files.configure(&tls);
        made.inspect_err(|error| tracing::warn!("there is no TLS: {error}")).ok()
    })))
}

/// What connections have to be.
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

/// What somebody may who has shown this certificate, which was good: what the user may whom it names
/// (a DNS name of it is the user's), else what all of them may.
pub(crate) fn role_of(certificate: &CertificateDer<'_>, rules: &Rules) -> Role {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let named = parsed
        .ok()
        .and_then(|parsed| parsed.valid_dns_names().filter_map(|name| rules.role_of(name)).max());
    named.unwrap_or(rules.certified)
}

#[cfg(test)]
mod tests;
