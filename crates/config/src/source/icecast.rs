//! Mounts for live sources: `icecast://HOST:PORT/MOUNT`.
//!
//! The password is a key of its own and not part of the URI, because URIs are shown on the page, in
//! the status and in logs. A mount without a password must listen on loopback, so that a forgotten
//! line does not open a station to the network.

use aulos_proto::titles::TitleCharset;

use crate::keys::keys;
use crate::limits::{MAX_MOUNT, MAX_NAME};
use crate::names::endpoint;
use crate::source::kind::{Mount, PasswordSlot, SourceKind};
use crate::source::query::{Parsed, Query};

impl SourceKind for Mount {
    fn scheme(&self) -> &'static str {
        "icecast"
    }

    fn comes_in_bursts(&self) -> bool {
        true
    }

    fn mount(&self) -> Option<&Mount> {
        Some(self)
    }

    fn charset_mut(&mut self) -> Option<&mut TitleCharset> {
        Some(&mut self.charset)
    }

    fn password_mut(&mut self) -> Option<PasswordSlot<'_>> {
        Some(PasswordSlot::Mount(&mut self.password))
    }
}

keys! {
    /// Parameters of `icecast:`.
    pub(crate) struct IcecastParams {
        /// Listen on the next port as well: there Shoutcast programs connect with their stream.
        shoutcast: bool = false;
    }
}

/// The password of the mount is a key of its own.
pub(crate) fn parse(query: &Query<'_>) -> Parsed<Mount> {
    let uri = query.uri;
    let user = uri.user.clone().unwrap_or_else(|| DEFAULT_USER.to_owned());
    if user.contains(':') || uri.get("password").is_some() {
        return query.refuse("a source URI must not contain a password", MOUNT_SECRET_HINT);
    }
    let IcecastParams { shoutcast, .. } = query.params();
    if user.is_empty() || user.len() > MAX_NAME || user.chars().any(char::is_control) {
        let hint = "leave it out for the usual `source`";
        return query.refuse("the URI has no valid user name", hint);
    }
    let authority = uri.authority();
    let Some(address) = endpoint(&authority, Some("0.0.0.0"), Some(MOUNT_PORT)) else {
        let hint = "as in icecast://127.0.0.1:8000/live";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    let path = uri.path.clone();
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '?';
    if path.len() < 2 || path.len() > MAX_MOUNT || path.contains(odd) || path.starts_with("/admin/")
    {
        let hint = format!("1 to {MAX_MOUNT} letters, as in icecast://{address}/live");
        return query.refuse(format!("\"{}\" is not a valid mount", path.escape_debug()), &hint);
    }
    if shoutcast && address.port == u16::MAX {
        return query.refuse("`shoutcast` needs the next port, and 65535 is the last", "port 8000");
    }
    let (password, charset) = (None, TitleCharset::default());
    Some(vec![Mount { address, path, user, password, shoutcast, charset }])
}

/// Icecast's default port.
const MOUNT_PORT: u16 = 8000;

/// The user name of Icecast's source clients.
const DEFAULT_USER: &str = "source";

pub(crate) const MOUNT_SECRET_HINT: &str =
    "write { uri = \"icecast://0.0.0.0:8000/live\", password_file = \"FILE\" }";

#[cfg(test)]
mod tests {
    use crate::source::SourceConfig;
    use crate::tests::{first_problem, load_text, station};

    #[test]
    fn a_short_password_of_a_mount_is_a_warning() {
        let mount = |password: &str| {
            let source = "uri = \"icecast://0.0.0.0:8000/live?shoutcast=true\"";
            station(&format!("sources = [{{ {source}, password = \"{password}\" }}]"))
        };
        let loaded = load_text(&mount("pass"), &[]).unwrap();
        assert!(loaded.warnings.concat().contains("a mount password of 4 bytes"), "{loaded:?}");
        let SourceConfig::Icecast(mount_of) = &loaded.stations[0].sources[0].config else {
            panic!()
        };
        assert!(mount_of.shoutcast && mount_of.password.is_some());
        assert!(load_text(&mount("long enough"), &[]).unwrap().warnings.is_empty());
        assert!(first_problem(&mount("abc"), &[]).contains("a secret of 3 bytes is too short"));
        let last = mount("long enough").replace(":8000", ":65535");
        assert!(first_problem(&last, &[]).contains("needs the next port"));
    }
}
