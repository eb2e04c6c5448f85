//! The server's key, and what is kept of the players, in files that only their owner can read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use aulos_control::sendspin::ClientRecord;
use aulos_io::disk::replace;
use aulos_proto::sendspin::{Key, Psk};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Map, Value, json};

/// The server's private key: players know the server by it.
pub(super) fn identity(dir: &Path) -> io::Result<[u8; 32]> {
    key_file(&dir.join("sendspin.key"))
}

/// The private key in a file, which is made at the first start and stays.
pub(crate) fn key_file(path: &Path) -> io::Result<[u8; 32]> {
    match fs::read_to_string(path) {
        Ok(text) => Key::parse(text.trim()).map(|key| key.0).ok_or_else(|| {
            let text = format!("{} is damaged: it must be a key of 43 characters", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = random_key()?;
            replace(path, 0o600, format!("{}\n", Key(key)).as_bytes())?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// The file with the players.
#[derive(Debug)]
pub(super) struct TrustFile {
    path: PathBuf,
    /// Held by whoever writes.
    writing: Mutex<()>,
}

impl TrustFile {
    pub(super) fn new(dir: &Path) -> Self {
        Self { path: dir.join("sendspin.json"), writing: Mutex::default() }
    }

    /// What was kept; nothing at the first start.
    pub(super) fn load(&self) -> io::Result<BTreeMap<String, ClientRecord>> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let damaged = || {
            let text = format!("{} is damaged; pair the players anew", self.path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let all: Value = serde_json::from_slice(&text).map_err(|_| damaged())?;
        let clients = all.get("clients").and_then(Value::as_object).ok_or_else(damaged)?;
        let record = |value: &Value| ClientRecord {
            name: value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            is_approved: value.get("approved").and_then(Value::as_bool).unwrap_or(false),
            paired: value
                .get("psk")
                .and_then(Value::as_str)
                .and_then(Key::parse)
                .map(|key| Psk(key.0)),
        };
        Ok(clients.iter().map(|(id, value)| (id.clone(), record(value))).collect())
    }

    /// Replaces the file by what `records` gives once nobody else writes, so that the newest is
    /// written last.
    pub(super) fn save(
        &self,
        records: impl FnOnce() -> BTreeMap<String, ClientRecord>,
    ) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let records = records();
        let clients: Map<String, Value> = records
            .iter()
            .map(|(id, record)| {
                let mut value = json!({ "name": record.name, "approved": record.is_approved });
                if let Some(psk) = record.paired {
                    value["psk"] = Key(psk.0).to_string().into();
                }
                (id.clone(), value)
            })
            .collect();
        let text = serde_json::to_string_pretty(&json!({ "clients": clients }))?;
        replace(&self.path, 0o600, text.as_bytes())
    }
}

/// Random bytes for a key.
pub(crate) fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    #[test]
    fn keys_stay_and_only_their_owner_reads_them() {
        let dir = ScratchDir::new("sendspin-store").unwrap();
        let key = identity(dir.path()).unwrap();
        assert_eq!(identity(dir.path()).unwrap(), key);
        let file = TrustFile::new(dir.path());
        assert!(file.load().unwrap().is_empty());
        let record = ClientRecord {
            name: "Kitchen".to_owned(),
            is_approved: true,
            paired: Some(Psk([7; 32])),
        };
        let records = BTreeMap::from([("id".to_owned(), record)]);
        file.save(|| records.clone()).unwrap();
        assert_eq!(file.load().unwrap(), records);
        for name in ["sendspin.key", "sendspin.json"] {
            let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        fs::write(dir.path().join("sendspin.json"), "{").unwrap();
        assert_eq!(file.load().unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::write(dir.path().join("sendspin.key"), "short").unwrap();
        assert_eq!(identity(dir.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
