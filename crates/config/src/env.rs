//! The process environment as a value, so that tests can supply their own.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use aulos_proto::uri::percent_encode;

/// The parts of the environment on which defaults depend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// The user id.
    pub uid: u32,
    /// All variables, because any of them may hold a secret for `..._env` keys.
    pub variables: Variables,
}

/// Environment variables by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl fmt::Debug for Variables {
    /// Prints the number of variables only, because values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

impl Environment {
    /// Reads the environment of this process. Empty and relative directories are ignored (XDG Base
    /// Directory Specification, "Environment variables").
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

    /// The default state directory.
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

    /// The configuration for a server without a configuration file.
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
