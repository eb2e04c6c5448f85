//! `aulos check`: reports the problems of a configuration, and renames old keys.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use aulos_config::StationSettings;
use aulos_core::Codec;
use aulos_io::encoder::encoder_name;
use aulos_io::replace::{ReplaceError, Replacement};
use aulos_server::exit::{Exit, Failure};
use clap::Args;

use super::config_args::{ConfigArgs, read_config, resolve};
use super::output::print;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Rename old keys in the file to their new names before the check
    ///
    /// Comments and formatting are kept; the file is replaced atomically. Prints each change.
    #[arg(long)]
    fix: bool,
    /// Do not look for the folders, files and programs that the configuration names
    #[arg(long)]
    offline: bool,
}

/// The problems are the result of the command, so they go to standard output.
pub(super) fn run(mut args: CheckArgs) -> Result<Exit, Failure> {
    args.config.resolve_config_path();
    match (args.fix, &args.config.config) {
        (true, Some(path)) => fix(path)?,
        (true, None) => return Err(Failure::new(Exit::Usage, "--fix requires a file")),
        (false, _) => {}
    }
    let load = if args.offline { aulos_config::load } else { aulos_config::load_on_this_machine };
    match resolve(&args.config, load) {
        Ok(resolved) => {
            for warning in &resolved.warnings {
                print(format!("{warning}\n").as_bytes())?;
            }
            let sources: usize =
                resolved.stations.iter().map(|station| station.sources.len()).sum();
            let file = match &args.config.config {
                Some(file) => file.to_string_lossy(),
                None => "built-in default".into(),
            };
            tracing::info!(
                %file,
                stations = resolved.stations.len(),
                sources,
                warnings = resolved.warnings.len(),
                mp3 = mp3_encoders(&resolved.stations),
                "no problem found"
            );
            Ok(Exit::Ok)
        }
        Err(Failure { exit: Exit::Config, message }) => {
            print(message.as_bytes())?;
            Ok(Exit::Config)
        }
        Err(failure) => Err(failure),
    }
}

/// What encodes the MP3 of these stations.
fn mp3_encoders(stations: &[StationSettings]) -> String {
    let names = stations.iter().map(|station| encoder_name(station.codec_settings(Codec::Mp3)));
    Vec::from_iter(BTreeSet::from_iter(names)).join(", ")
}

/// Renames the old keys of a file.
fn fix(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::new(Exit::Usage, "--fix requires a file, not standard input"));
    }
    let before = fs::metadata(path);
    let (name, text) = read_config(path)?;
    let file = aulos_config::ConfigFile { name: &name, text: &text };
    // A file that is not TOML stays as it is; the check reports it.
    let Ok(renamed) = aulos_config::rename_old_keys(file) else { return Ok(()) };
    if renamed.changes.is_empty() {
        return Ok(());
    }
    let written = before.map_err(ReplaceError::from).and_then(|before| {
        // A symbolic link keeps pointing to the file.
        let mut new = Replacement::create(&fs::canonicalize(path)?, before)?;
        new.file().write_all(renamed.text.as_bytes())?;
        new.commit()
    });
    written.map_err(|error| {
        let (exit, reason) = match error {
            ReplaceError::ReadOnly => {
                (Exit::Permission, io::ErrorKind::PermissionDenied.to_string())
            }
            ReplaceError::Busy => (Exit::Io, "another program is replacing the file".to_owned()),
            ReplaceError::Changed => (Exit::Io, "the file has changed meanwhile".to_owned()),
            ReplaceError::Io(error) => (Exit::Io, error.to_string()),
        };
        Failure::new(exit, format!("{name}: {reason}"))
    })?;
    print(format!("{}\n", renamed.changes.join("\n")).as_bytes()).map(drop)
}
