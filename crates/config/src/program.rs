//! Whether this machine has a program that a configuration names.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::env::Environment;

/// Whether a program can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramState {
    Runnable,
    /// A name without a slash that no directory of PATH has.
    NotInPath,
    Missing,
    NotExecutable,
}

/// Looks for a program. A name without a slash is looked up in PATH, and taken for granted without
/// one.
pub(crate) fn find_program(program: &Path, env: &Environment) -> ProgramState {
    if program.components().count() == 1 && !program.is_absolute() {
        let path = env.variables.0.get("PATH");
        let mut dirs = path.iter().flat_map(|path| path.split(':')).map(PathBuf::from);
        return if path.is_none() || dirs.any(|dir| can_run(&dir.join(program))) {
            ProgramState::Runnable
        } else {
            ProgramState::NotInPath
        };
    }
    match (program.is_file(), can_run(program)) {
        (false, _) => ProgramState::Missing,
        (_, false) => ProgramState::NotExecutable,
        _ => ProgramState::Runnable,
    }
}

fn can_run(program: &Path) -> bool {
    let found = std::fs::metadata(program);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
