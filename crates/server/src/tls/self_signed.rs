//! The self-signed certificate, generated at the first start and kept beside the state file.

use std::fs::DirBuilder;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType, date_time_ymd};

use aulos_config::certificates::Identity;
use aulos_io::disk::replace;

/// Returns the existing certificate, or generates one.
pub(super) fn identity(state_dir: &Path) -> io::Result<Identity> {
    let dir = state_dir.join("tls");
    let identity = Identity { cert: dir.join("cert.pem"), key: dir.join("key.pem") };
    // The certificate is written last: if it exists, both do.
    if identity.cert.exists() {
        return Ok(identity);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let (certificate, key) = generate().map_err(io::Error::other)?;
    write(&identity.key, "PRIVATE KEY", &key, 0o600)?;
    write(&identity.cert, "CERTIFICATE", &certificate, 0o644)?;
    Ok(identity)
}

/// Generates a certificate and its private key (ECDSA on P-256), as DER.
fn generate() -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let bare = host.split('.').next().unwrap_or_default();
    let mut names = vec!["localhost".to_owned(), host.clone()];
    names.extend([format!("{bare}.local"), format!("{bare}-aulos.local")]);
    names.dedup();
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    // The machine's name may not be valid in a certificate.
    let names = names.into_iter().filter_map(|name| name.try_into().ok()).map(SanType::DnsName);
    params.subject_alt_names = names
        .chain(
            [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()].map(SanType::IpAddress),
        )
        .collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("aulos on {host}"));
    // Its age proves nothing, so it does not expire (RFC 5280, 4.1.2.5).
    (params.not_before, params.not_after) =
        (date_time_ymd(2025, 1, 1), date_time_ymd(9999, 12, 31));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.der().to_vec(), key.serialize_der()))
}

/// Writes a PEM file atomically, writable by its owner only.
fn write(path: &Path, label: &str, der: &[u8], mode: u32) -> io::Result<()> {
    let encoded = BASE64_STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text += &String::from_utf8_lossy(line);
        text.push('\n');
    }
    text += &format!("-----END {label}-----\n");
    replace(path, mode, text.as_bytes())
}
