//! The machine that the server runs on.

/// A server and the machine that it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInfo {
    /// Identifies this server among others, whatever its name and address; empty if unknown.
    pub id: String,
    /// Its host name.
    pub name: String,
    /// Its operating system.
    pub os: String,
    /// Its processor.
    pub arch: String,
}

impl HostInfo {
    /// Reads it from the system, which does not know the id.
    #[must_use]
    pub fn of_machine() -> Self {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Self {
            id: String::new(),
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            os: pretty.unwrap_or(std::env::consts::OS).trim_matches('"').to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        }
    }
}
