//! Certificates: self-signed, configured, and those of clients.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use aulos_blackbox::scratch::ScratchDir;
use aulos_config::certificates::Identity;
use aulos_control::access::{Role, User};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;

use super::*;

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_first_start_creates_a_certificate_that_later_starts_use() {
    let scratch = ScratchDir::new("own").unwrap();
    let tls = TlsSettings::default();
    assert!(load_or_make(&tls, &scratch).unwrap().is_some_and(|terms| terms.get().is_some()));
    let cert = std::fs::read(scratch.join("tls/cert.pem")).unwrap();
    let key = std::fs::metadata(scratch.join("tls/key.pem")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    assert!(load_or_make(&tls, &scratch).unwrap().is_some_and(|terms| terms.get().is_some()));
    assert_eq!(std::fs::read(scratch.join("tls/cert.pem")).unwrap(), cert);
    // It can be pinned: it names this machine.
    let der = CertificateDer::from_pem_slice(&cert).unwrap();
    let parsed = webpki::EndEntityCert::try_from(&der).unwrap();
    assert!(parsed.valid_dns_names().any(|name| name == "localhost"));
    assert!(
        load_or_make(&TlsSettings { enabled: false, ..tls.clone() }, &scratch).unwrap().is_none()
    );
    // A damaged certificate is noticed when it is needed, and there is no TLS then.
    write(&scratch, "tls/cert.pem", "nothing\n");
    assert!(load_or_make(&tls, &scratch).unwrap().is_some_and(|terms| terms.get().is_none()));
}

#[test]
fn what_cannot_be_used_is_named() {
    let scratch = ScratchDir::new("bad").unwrap();
    let own = ScratchDir::new("good").unwrap();
    load_or_make(&TlsSettings::default(), &own).unwrap();
    let (cert, key) = (own.join("tls/cert.pem"), own.join("tls/key.pem"));
    let other = ScratchDir::new("other").unwrap();
    load_or_make(&TlsSettings::default(), &other).unwrap();
    let text = write(&scratch, "text.pem", "nothing\n");
    let cases = [
        (scratch.join("absent.pem"), key.clone(), None, "cert", "absent.pem"),
        (text.clone(), key.clone(), None, "cert", "no certificate"),
        (cert.clone(), text.clone(), None, "key", "text.pem"),
        (cert.clone(), other.join("tls/key.pem"), None, "cert", ""),
        (cert, key, Some(text), "client_ca", "text.pem"),
    ];
    for (cert, key, client_ca, wanted, fact) in cases {
        let identity = Some(Identity { cert, key });
        let error =
            load(&TlsSettings { identity, client_ca, ..TlsSettings::default() }).unwrap_err();
        assert!(error.key == wanted && error.fact.contains(fact), "{error:?}");
    }
}

#[test]
fn a_certificate_that_names_a_user_is_that_user() {
    let certificate = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(names).unwrap().self_signed(&key).unwrap().der().clone()
    };
    let user = |name: &str, role| User {
        name: name.to_owned(),
        role,
        has_log: name == "kitchen",
        password: None,
        token: None,
    };
    let rules = AccessPolicy {
        users: vec![user("kitchen", Role::Control), user("anna", Role::Admin)],
        ..AccessPolicy::default()
    };
    assert_eq!(login_of(&certificate(&["kitchen"]), &rules).role, Role::Control);
    assert_eq!(login_of(&certificate(&["x", "kitchen", "anna"]), &rules).role, Role::Admin);
    let kitchen = login_of(&certificate(&["kitchen"]), &rules);
    assert!(kitchen.has_log && kitchen.user.as_deref() == Some("kitchen"));
    assert!(!login_of(&certificate(&["anna"]), &rules).has_log);
    assert_eq!(login_of(&certificate(&["stranger"]), &rules).role, Role::Listen);
    assert_eq!(login_of(&certificate(&[]), &rules).role, Role::Listen);
}
