//! When a player writes its sound: a library that is loaded into the player logs it.
//!
//! The library is built from its C source by the system's compiler, so that it goes into any
//! dynamically linked program. It can also let the clock of the program drift.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that logs the writes of a player.
#[derive(Debug)]
pub struct StampLibrary(PathBuf);

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a record of the log")]
pub struct WriteStamp {
    /// `CLOCK_MONOTONIC` before the call, in nanoseconds.
    pub nanos: u64,
    /// Bytes that were written.
    pub bytes: u64,
}

impl StampLibrary {
    /// Compiles it into a folder.
    ///
    /// # Errors
    /// If there is no C compiler, or it refuses the source.
    pub fn build(compiler: &Path, folder: &Path) -> io::Result<Self> {
        let (source, library) = (folder.join("write_stamps.c"), folder.join("write_stamps.so"));
        std::fs::write(&source, include_str!("write_stamps.c"))?;
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-O2", "-o"]).args([&library, &source]).arg("-ldl");
        let done = command.output()?;
        if done.status.success() {
            return Ok(Self(library));
        }
        Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()))
    }

    /// Lets a player log its writes to the file `sound` into the file `log`, with its clock
    /// `clock_ppm` too fast. A program whose clock cannot be replaced ends with status 78.
    pub fn load_into(&self, command: &mut Command, sound: &Path, log: &Path, clock_ppm: i32) {
        command.env("LD_PRELOAD", &self.0).env("AULOS_STAMPED_FILE", sound);
        command.env("AULOS_STAMPS", log);
        if clock_ppm != 0 {
            command.env("AULOS_CLOCK_PPM", clock_ppm.to_string());
        }
    }
}

/// Whether clocks can be replaced on this processor.
pub const CAN_DRIFT: bool = cfg!(target_arch = "x86_64");

/// Reads a log.
///
/// # Errors
/// If the log cannot be read: the player has written nothing, or not through the C library.
pub fn read_stamps(log: &Path) -> io::Result<Vec<WriteStamp>> {
    let bytes = std::fs::read(log)?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let records = bytes.chunks_exact(16);
    Ok(records.map(|r| WriteStamp { nanos: word(&r[..8]), bytes: word(&r[8..]) }).collect())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::peer::find_or_skip;
    use crate::scratch::ScratchDir;

    #[test]
    fn the_writes_of_a_program_are_logged() {
        let Some(compiler) = find_or_skip("cc") else { return };
        let scratch = ScratchDir::new("stamps").unwrap();
        let library = StampLibrary::build(&compiler, &scratch).unwrap();
        let (sound, log) = (scratch.join("sound"), scratch.join("log"));
        let mut command = Command::new("sh");
        // What goes to another file is not logged.
        command.args(["-c", "printf abc > $0; sleep 0.2; printf de >> $0; echo > /dev/null"]);
        command.arg(&sound);
        library.load_into(&mut command, &sound, &log, if CAN_DRIFT { 100 } else { 0 });
        let begin = Instant::now();
        assert!(command.status().unwrap().success());
        let took = begin.elapsed();
        assert_eq!(std::fs::read(&sound).unwrap(), b"abcde");
        let stamps = read_stamps(&log).unwrap();
        assert_eq!(stamps.iter().map(|stamp| stamp.bytes).collect::<Vec<_>>(), [3, 2]);
        let apart = Duration::from_nanos(stamps[1].nanos - stamps[0].nanos);
        assert!(apart >= Duration::from_millis(200) && apart <= took, "{apart:?} {took:?}");
    }
}
