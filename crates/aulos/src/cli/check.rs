//! `aulos check`: reports the problems of a configuration, and renames old keys.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

use aulos_server::exit::{Exit, Failure};
use clap::Args;

use super::{ConfigArgs, print, read_config, resolve};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Rename old keys in the file to their new names before the check
    ///
    /// Comments and formatting are kept; the file is replaced atomically. Prints each change.
    #[arg(long, requires = "config")]
    fix: bool,
}

/// The problems are the result of the command, so they go to standard output.
pub(super) fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    if let (true, Some(path)) = (args.fix, &args.config.config) {
        fix(path)?;
    }
    match resolve(&args.config) {
        Ok(resolved) => {
            for warning in &resolved.warnings {
                print(format!("{warning}\n").as_bytes())?;
            }
            let sources: usize =
                resolved.stations.iter().map(|station| station.sources.len()).sum();
            tracing::info!(stations = resolved.stations.len(), sources, "no problem found");
            Ok(Exit::Ok)
        }
        Err(Failure { exit: Exit::Config, message }) => {
            print(message.as_bytes())?;
            Ok(Exit::Config)
        }
        Err(failure) => Err(failure),
    }
}

/// Renames the old keys of a file.
fn fix(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::new(Exit::Usage, "--fix requires a file, not standard input"));
    }
    let (name, text) = read_config(path)?;
    let file = aulos_config::ConfigFile { name: &name, text: &text };
    // A file that is not TOML stays as it is; the check reports it.
    let Ok(renamed) = aulos_config::rename_old_keys(file) else { return Ok(()) };
    if renamed.changes.is_empty() {
        return Ok(());
    }
    replace(path, &renamed.text).map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Io,
        };
        Failure::new(exit, format!("{name}: {error}"))
    })?;
    print(format!("{}\n", renamed.changes.join("\n")).as_bytes()).map(drop)
}

/// Replaces a file atomically; the new one has its mode and, where permitted, its owner. A symbolic
/// link keeps pointing to it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let old = fs::metadata(&path)?;
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        fchown(&file, Some(old.uid()), Some(old.gid())).ok();
        file.set_permissions(old.permissions())?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&part, &path)) {
        fs::remove_file(&part).ok();
        return Err(error);
    }
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
