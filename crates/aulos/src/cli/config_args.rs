//! The configuration that a command names, and loading it.

use std::io;
use std::path::{Path, PathBuf};

use aulos_config::{Environment, ResolvedConfig, limits};
use aulos_server::exit::{Exit, Failure};
use clap::{Args, ValueHint};

use super::serve::{LoadReason, shell_word};

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Configuration file (TOML), at most 4 MiB; `-` reads standard input
    /// [default: /etc/aulos.toml, if it exists]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "config")]
    pub(super) file: Option<PathBuf>,
    /// The same, as an option
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config: Option<PathBuf>,
    /// Directory for groups, client names, volumes and the TLS certificate
    /// [default: the key `state_dir`, then ~/.local/state/aulos]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) state_dir: Option<PathBuf>,
    /// Set a configuration key, as in listen.address=0.0.0.0; overrides the file; repeatable
    #[arg(long = "set", short = 's', value_name = "KEY=VALUE")]
    pub(super) sets: Vec<String>,
}

/// The configuration file of a system service.
const DEFAULT_CONFIG: &str = "/etc/aulos.toml";

impl ConfigArgs {
    /// Chooses the file, once: a reload must not change to another one.
    pub(super) fn resolve_config_path(&mut self) {
        let default = || {
            let path = Path::new(DEFAULT_CONFIG);
            path.exists().then(|| path.to_owned())
        };
        self.config = self.config.take().or_else(|| self.file.take()).or_else(default);
    }

    /// The command that runs the same server for the network.
    pub(super) fn network_command(&self) -> String {
        let mut words = vec!["aulos serve".to_owned()];
        let config = self.config.iter().map(|file| ("--config", file));
        for (option, path) in config.chain(self.state_dir.iter().map(|dir| ("--state-dir", dir))) {
            words.push(format!("{option} {}", shell_word(&path.to_string_lossy())));
        }
        for set in self.sets.iter().filter(|set| !set.starts_with("listen.address=")) {
            words.push(format!("--set {}", shell_word(set)));
        }
        words.push("--set listen.address=0.0.0.0".to_owned());
        words.join(" ")
    }
}

/// Loads the configuration for a server; warnings are logged.
pub(super) fn load(args: &ConfigArgs) -> Result<ResolvedConfig, Failure> {
    resolve(args, aulos_config::load).inspect(log_warnings)
}

pub(super) fn log_warnings(resolved: &ResolvedConfig) {
    for warning in &resolved.warnings {
        warning.to_string().lines().for_each(|line| tracing::warn!("{line}"));
    }
}

/// A function of `aulos-config` that loads a configuration.
pub(super) type LoadConfig = fn(
    Option<aulos_config::ConfigFile<'_>>,
    &[String],
    &Environment,
) -> Result<ResolvedConfig, aulos_config::ConfigError>;

pub(super) fn resolve(args: &ConfigArgs, load: LoadConfig) -> Result<ResolvedConfig, Failure> {
    let file = args.config.as_deref().map(read_config).transpose()?;
    let file = file.as_ref().map(|(name, text)| aulos_config::ConfigFile { name, text });
    let env = Environment::of_process();
    let mut resolved = load(file, &args.sets, &env)
        .map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    if let Some(dir) = &args.state_dir {
        resolved.set_state_dir(dir.clone());
    }
    Ok(resolved)
}

/// Checks before a reload that the configuration can be read again: standard input and pipes are
/// empty by now, which would read as a configuration without stations.
pub(super) fn check_rereadable(path: Option<&Path>, reading: LoadReason) -> Result<(), Failure> {
    let Some(path) = path.filter(|_| reading == LoadReason::Again) else { return Ok(()) };
    // If this fails, reading the file reports the error.
    if path != Path::new("-") && std::fs::metadata(path).map_or(true, |data| data.is_file()) {
        return Ok(());
    }
    let why = "not a regular file, so the configuration cannot be read again; restart the server";
    Err(Failure::new(Exit::NoInput, format!("{}: {why}", path.display())))
}

pub(super) fn read_config(path: &Path) -> Result<(String, String), Failure> {
    use io::Read;
    let name = if path == Path::new("-") { "stdin".into() } else { path.display().to_string() };
    let fail = |exit, why: &dyn std::fmt::Display| Failure::new(exit, format!("{name}: {why}"));
    let mut bytes = Vec::new();
    let limit = limits::MAX_FILE;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => fail(Exit::NoInput, &"no such file"),
        io::ErrorKind::PermissionDenied => fail(Exit::Permission, &error),
        io::ErrorKind::IsADirectory => {
            let file = path.join("aulos.toml");
            let hint = format!("name the file, as in {}", file.display());
            fail(Exit::NoInput, &format!("it is a folder\n    hint: {hint}"))
        }
        _ => fail(Exit::Io, &error),
    })?;
    if bytes.len() as u64 > limit {
        return Err(fail(Exit::Config, &format!("the file is larger than {limit} bytes")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((name, text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let lines = error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count();
            Err(fail(Exit::Config, &format!("line {} is not valid UTF-8", lines + 1)))
        }
    }
}
