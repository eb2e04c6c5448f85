//! Passwords of sources: of mounts, and of logins on other servers.

use crate::env::Environment;
use crate::limits::{MIN_MOUNT_PASSWORD, MIN_PASSWORD};
use crate::model::{Config, SourceEntry};
use crate::problem::Problems;
use crate::security::secrets::{RedactedDebug, SecretConfig};
use crate::security::users::SecretDigest;
use crate::source::srt::set_passphrase;
use crate::source::{PasswordSlot, schemes_with};
use crate::station::StationSettings;

/// Sets the password of every source.
pub(crate) fn set(
    config: &Config,
    all: &mut [StationSettings],
    env: &Environment,
    problems: &Problems,
) {
    for (config, station) in config.station.iter().zip(all) {
        for entry in &config.sources {
            let mut sources = station.sources.iter_mut();
            let source = sources.find(|source| source.uri == entry.uri.value);
            match source.and_then(|source| source.config.password_mut()) {
                Some(slot) => fill(slot, entry, env, problems),
                None => check_idle(entry, problems),
            }
        }
    }
}

fn fill(slot: PasswordSlot<'_>, entry: &SourceEntry, env: &Environment, problems: &Problems) {
    let secret = entry.password.as_ref();
    match slot {
        PasswordSlot::Mount(digest) => {
            *digest = secret.and_then(|secret| mount_digest(secret, env, problems));
        }
        PasswordSlot::Passphrase(slot) => {
            let text = secret.and_then(|secret| secret.text(1, env, problems));
            set_passphrase(slot, text, entry.uri.at, problems);
        }
        PasswordSlot::Login { has_user, password, hint } => {
            if has_user != secret.is_some() {
                let message = "a login on another server has a user and a password";
                problems.add_with_hint(entry.uri.at, message, hint);
            }
            *password = RedactedDebug(secret.and_then(|secret| secret.text(1, env, problems)));
        }
    }
}

/// The digest of a mount's password. A short one is permitted: what a source client has been set up
/// with for years should not keep a station off the air.
fn mount_digest(
    secret: &SecretConfig,
    env: &Environment,
    problems: &Problems,
) -> Option<SecretDigest> {
    let text = secret.text(MIN_MOUNT_PASSWORD, env, problems)?;
    if text.len() < MIN_PASSWORD {
        let message = format!("a mount password of {} bytes can be guessed", text.len());
        problems.warn(secret.location(), message, format!("use at least {MIN_PASSWORD} bytes"));
    }
    Some(SecretDigest::new(&text))
}

/// Reports a password that the source has no use for.
fn check_idle(entry: &SourceEntry, problems: &Problems) {
    let uri = entry.uri.value.to_ascii_lowercase();
    let scheme = uri.split(':').next().unwrap_or_default();
    let users = schemes_with(|source| source.password_mut().is_some());
    if entry.password.is_some() && !users.contains(&scheme) {
        let hint = format!("leave it out: only {}: sources have a password", users.join(": and "));
        let message = format!("`password` requires an {}: source", users.join(": or "));
        problems.add_with_hint(entry.uri.at, message, hint);
    }
}
