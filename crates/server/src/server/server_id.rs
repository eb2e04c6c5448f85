//! The id by which programs recognize a server whose name and address change.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use aulos_io::disk::replace;

/// The id in the state directory: 32 hexadecimal digits, written at the first start. One that
/// cannot be written is used until the server ends.
pub(super) fn server_id(state_dir: &Path) -> String {
    let file = state_dir.join("server-id");
    if let Some(id) = std::fs::read_to_string(&file).ok().filter(|text| is_id(text.trim_end())) {
        return id.trim_end().to_owned();
    }
    // It has to be unlike others and need not be secret.
    let word = || RandomState::new().hash_one(std::process::id());
    let id = format!("{:016x}{:016x}", word(), word());
    if let Err(error) = replace(&file, 0o600, format!("{id}\n").as_bytes()) {
        tracing::warn!(%error, file = %file.display(), "cannot keep the id of the server");
    }
    id
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    #[test]
    fn an_id_is_kept_and_unlike_others() {
        let [one, two] = ["one", "two"].map(|name| ScratchDir::new(name).unwrap());
        let id = server_id(one.path());
        assert!(is_id(&id), "{id}");
        assert_eq!(server_id(one.path()), id);
        assert_ne!(server_id(two.path()), id);
        std::fs::write(one.join("server-id"), "nonsense\n").unwrap();
        let new = server_id(one.path());
        assert!(is_id(&new) && new != id);
        assert_eq!(server_id(one.path()), new);
        // Where it cannot be written there is one all the same.
        assert!(is_id(&server_id(&one.join("missing"))));
    }
}
