//! The titles of stations across restarts: `titles/STATION.jsonl` in the state directory, to which
//! lines are added. A file that has become too long is replaced by one with its newest titles.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use aulos_control::TitleHistory;
use aulos_io::disk;

/// The lines of all stations. What cannot be read is left out.
pub(crate) fn load(dir: &Path) -> HashMap<String, String> {
    let files = fs::read_dir(dir.join(FOLDER)).into_iter().flatten().flatten();
    let station = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.to_owned();
        let text = read(&path).inspect_err(|error| {
            tracing::warn!(file = %path.display(), %error, "cannot read the history of titles");
        });
        Some((name, text.ok()?))
    };
    files.take(MAX_FILES).filter_map(|entry| station(entry.path())).collect()
}

/// Adds lines to the file of a station.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn append(dir: &Path, station: &str, lines: &str) -> io::Result<()> {
    let folder = dir.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{station}{SUFFIX}"));
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(&path)?;
    let length = file.metadata()?.len();
    if length == 0 {
        remove_oldest(&folder)?;
    } else if length + lines.len() as u64 > MAX_BYTES {
        return shorten(&path, lines);
    } else if !ends_line(&mut file)? {
        // A kill has cut the last line.
        file.write_all(b"\n")?;
    }
    file.write_all(lines.as_bytes())
}

fn shorten(path: &Path, lines: &str) -> io::Result<()> {
    let history = TitleHistory::from_lines(&(read(path)? + "\n" + lines));
    disk::replace(path, 0o666, history.to_lines(KEPT_BYTES).as_bytes())
}

/// Makes room for another station: controllers can add and remove streams with any name.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    if files.len() > MAX_FILES {
        files.sort_unstable();
        for (_, path) in files.iter().take(files.len() - MAX_FILES) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(2 * MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn ends_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

const FOLDER: &str = "titles";
const SUFFIX: &str = ".jsonl";

/// A month of usual titles with 200 bytes and two lines each; of the longest ones a day.
const MAX_BYTES: u64 = 4 << 20;

/// What is kept of a file that is too long.
const KEPT_BYTES: usize = 2 << 20;

/// Twice as many as there can be stations and added streams.
const MAX_FILES: usize = 1_000;

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    fn line(at: usize) -> String {
        format!("{{\"at\":{at},\"title\":\"t\",\"album\":\"{}\"}}\n", "x".repeat(900))
    }

    #[test]
    fn lines_are_added_and_those_after_a_cut_line_are_not_lost() {
        let dir = ScratchDir::new("titles").unwrap();
        append(&dir, "a b", &line(1)).unwrap();
        let path = dir.join("titles/a b.jsonl");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"at\":2,\"ti");
        fs::write(&path, text).unwrap();
        append(&dir, "a b", &line(3)).unwrap();
        append(&dir, "a b", &line(4)).unwrap();
        let loaded = load(&dir);
        let history = TitleHistory::from_lines(&loaded["a b"]).to_lines(usize::MAX);
        let times: Vec<_> = history
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["at"].clone())
            .collect();
        assert_eq!(times, [1, 3, 4]);
    }

    #[test]
    fn a_file_does_not_grow_without_end() {
        let dir = ScratchDir::new("titles").unwrap();
        let lines: String = (0..1_000).map(line).collect();
        for _ in 0..10 {
            append(&dir, "radio", &lines).unwrap();
        }
        append(&dir, "radio", &line(5_000)).unwrap();
        let text = &load(&dir)["radio"];
        assert!(text.len() as u64 <= MAX_BYTES, "{}", text.len());
        assert!(text.ends_with(&line(5_000)));
    }
}
