//! Files that a command writes: a name that was given by mistake, as by `--report *.flac` without
//! the name of the report, must not replace what is there.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use aulos_server::exit::{Exit, Failure};

use crate::cli::scan::plain;

/// Fails if `path` is a file with contents that `is_own` does not recognize by its first bytes.
/// Devices and FIFOs keep nothing that could be lost.
pub(crate) fn check_own(path: &Path, is_own: impl Fn(&[u8]) -> bool) -> Result<(), Failure> {
    if !has_contents(path) {
        return Ok(());
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START_BYTES).read_to_end(&mut start));
    if read.is_ok() && is_own(&start) {
        return Ok(());
    }
    let message = format!(
        "{}: the file already exists, and this option did not write it\n    hint: use another name, \
         or --force to replace the file",
        plain(&path.to_string_lossy())
    );
    Err(Failure::new(Exit::CannotCreate, message))
}

fn has_contents(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0)
}

/// Bytes by which a file is recognized: what precedes the mark in a journal is shorter.
const START_BYTES: u64 = 8 << 10;

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    #[test]
    fn only_missing_empty_and_own_files_may_be_written() {
        let folder = ScratchDir::new("output-file").unwrap();
        let check = |path: &Path| check_own(path, |start| start.starts_with(b"own"));
        let path = folder.join("file");
        assert!(check(&path).is_ok());
        assert!(check(Path::new("/dev/null")).is_ok());
        for (contents, accepted) in [("", true), ("own text", true), ("ow", false), ("song", false)]
        {
            fs::write(&path, contents).unwrap();
            assert_eq!(check(&path).is_ok(), accepted, "{contents}");
        }
        let failure = check(&path).unwrap_err();
        assert_eq!(failure.exit, Exit::CannotCreate);
        assert!(failure.message.contains("--force"), "{}", failure.message);
    }
}
