//! What a default takes from its surroundings, as values, so that tests have surroundings of their
//! own.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use aulos_proto::uri::percent_encode;

/// The surroundings of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// The user's number.
    pub uid: u32,
    /// All the variables, for those that hold a secret.
    pub variables: Variables,
}

/// Variables by their names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl fmt::Debug for Variables {
    /// Only how many: there are secrets among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

impl Environment {
    /// Of this process. Variables that are empty or relative are not there (XDG base directories,
    /// "Environment variables").
    #[must_use]
    pub fn of_process() -> Self {
        let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: Variables(std::env::vars_os().filter_map(text).collect()),
            runtime_dir: dir("XDG_RUNTIME_DIR"),
            state_home: dir("XDG_STATE_HOME"),
            home: dir("HOME"),
            uid: rustix::process::getuid().as_raw(),
        }
    }

    /// Where state is kept when nobody says it.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        match (&self.state_home, &self.home) {
            (Some(state), _) => state.join("aulos"),
            (None, Some(home)) => home.join(".local/state/aulos"),
            (None, None) => PathBuf::from("/var/lib/aulos"),
        }
    }

    /// The FIFO of the station `default`.
    #[must_use]
    pub fn fifo(&self) -> PathBuf {
        match &self.runtime_dir {
            Some(dir) => dir.join("aulos.fifo"),
            None => PathBuf::from(format!("/tmp/aulos-{}.fifo", self.uid)),
        }
    }

    /// The configuration of a server that nobody configured.
    #[must_use]
    pub fn default_config(&self) -> String {
        let fifo = percent_encode(&self.fifo().to_string_lossy()).replace(['\\', '"'], "_");
        DEFAULT_CONFIG.replace("FIFO", &fifo)
    }
}

const DEFAULT_CONFIG: &str = r#"[[station]]
name    = "default"
codec   = "flac"
sources = ["pipe://FIFO", "demo://"]
"#;
