//! The complete files of a recorder, for those who look for a recording.
//!
//! The sidecars say which files of a folder a recorder has written; everything else in it is none
//! of a reader's business. Nothing is indexed: a folder may be changed by hand, and the newest
//! files are what is looked for.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aulos_core::{Frames, SampleRate};
use aulos_io::confined_open::{open_regular_beneath, open_root};
use serde_json::Value;

use super::sidecar::{MAX_SIDECAR, ParsedSidecar, sidecar_name};

/// A complete file.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedFile {
    /// Its path in the recorder's folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The time of its first frame, in RFC 3339.
    pub start: String,
    /// Its length, if known.
    pub seconds: Option<f64>,
    /// Frames that were lost and are silent.
    pub lost_frames: u64,
    /// The number of its markers.
    pub markers: usize,
    /// `integrated_lufs`, `range_lu`, `true_peak_dbtp` and so on; null if it was not measured.
    pub loudness: Value,
}

/// The newest complete files of a recorder, the newest first, and whether there are more. Blocks.
///
/// # Errors
/// Errors of the file system, when the folder cannot be read.
pub fn list_recordings(
    folder: &Path,
    recorder: &str,
    limit: usize,
) -> io::Result<(Vec<RecordedFile>, bool)> {
    let root = open_root(folder)?;
    let mut candidates = candidates(folder)?;
    candidates.sort_by_key(|(modified, name)| (Reverse(*modified), Reverse(name.clone())));
    let mut found = Vec::new();
    for (_, name) in candidates {
        let Some(sidecar) = read_sidecar(&root, &name, recorder) else { continue };
        if found.len() == limit {
            return Ok((found, true));
        }
        // A sidecar without its file is that of a file which was deleted by hand.
        let Ok(file) = open_regular_beneath(&root, Path::new(&name)) else { continue };
        found.push(recorded_file(name, file.metadata()?.len(), &sidecar));
    }
    Ok((found, false))
}

/// Opens a complete file of a recorder by its path in the recorder's folder. Blocks.
///
/// # Errors
/// Errors of the file system; [`NotFound`](io::ErrorKind::NotFound) for a file that the recorder
/// has not written or not completed.
pub fn open_recording(folder: &Path, recorder: &str, name: &Path) -> io::Result<File> {
    let root = open_root(folder)?;
    let text = name.to_str().ok_or(io::ErrorKind::NotFound)?;
    read_sidecar(&root, text, recorder).ok_or(io::ErrorKind::NotFound)?;
    open_regular_beneath(&root, name)
}

/// Files that have a sidecar, with the time at which that was last written.
fn candidates(folder: &Path) -> io::Result<Vec<(SystemTime, String)>> {
    let (mut folders, mut found) = (vec![(PathBuf::new(), 0)], Vec::new());
    let mut looked_at = 0;
    while let Some((below, depth)) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            looked_at += 1;
            if looked_at > MAX_ENTRIES {
                return Ok(found);
            }
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((path, depth + 1));
            } else if kind.is_file()
                && let Some(name) = path.to_str().and_then(|name| name.strip_suffix(".json"))
            {
                // An entry that has just been removed is none.
                let Ok(about) = entry.metadata() else { continue };
                let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((modified, name.to_owned()));
            }
        }
    }
    Ok(found)
}

/// The sidecar of a complete file of this recorder.
fn read_sidecar(
    root: &impl std::os::fd::AsFd,
    name: &str,
    recorder: &str,
) -> Option<ParsedSidecar> {
    let file = open_regular_beneath(root, Path::new(&sidecar_name(name))).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_SIDECAR + 1).read_to_end(&mut bytes).ok()?;
    let is_whole = u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_SIDECAR);
    let sidecar = ParsedSidecar::parse(&bytes).filter(|_| is_whole)?;
    (sidecar.is_closed && sidecar.recorder == recorder).then_some(sidecar)
}

fn recorded_file(name: String, bytes: u64, sidecar: &ParsedSidecar) -> RecordedFile {
    let json = sidecar.json();
    let rate = json["rate"].as_u64().and_then(|hz| u32::try_from(hz).ok());
    let rate = rate.and_then(|hz| SampleRate::new(hz).ok());
    let frames = json["frames"].as_u64().map(Frames);
    RecordedFile {
        name,
        bytes,
        start: json["start_utc"].as_str().unwrap_or_default().to_owned(),
        seconds: rate.zip(frames).map(|(rate, frames)| rate.span(frames).as_secs_f64()),
        lost_frames: json["lost_frames"].as_u64().unwrap_or(0),
        markers: json["markers"].as_array().map_or(0, Vec::len),
        loudness: json["loudness"].clone(),
    }
}

/// Entries of a folder that are looked at; a recorder that writes a file each hour has as many
/// after half a year.
const MAX_ENTRIES: usize = 10_000;

/// Depth of folders that are looked into; patterns have fewer.
const MAX_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use aulos_blackbox::scratch::ScratchDir;
    use serde_json::json;

    use super::*;

    fn write(folder: &Path, name: &str, recorder: &str, state: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "sound").unwrap();
        let sidecar = json!({
            "written_by": "aulos", "recorder": recorder, "state": state, "file": name,
            "start_utc": "2026-11-22T10:00:00.000000Z", "start_unix_ns": 0, "rate": 48_000,
            "frames": 24_000, "lost_frames": 3, "markers": [{}],
            "loudness": { "integrated_lufs": -23.0 },
        });
        fs::write(folder.join(sidecar_name(name)), sidecar.to_string()).unwrap();
    }

    #[test]
    fn the_complete_files_of_a_recorder_are_listed_and_no_others() {
        let folder = ScratchDir::new("catalog").unwrap();
        write(&folder.join("."), "2026/a.flac", "air", "closed");
        write(&folder.join("."), "b.flac", "air", "repaired");
        write(&folder.join("."), "c.flac", "air", "recording");
        write(&folder.join("."), "d.flac", "other", "closed");
        write(&folder.join("."), "gone.flac", "air", "closed");
        fs::remove_file(folder.join("gone.flac")).unwrap();
        fs::write(folder.join("e.flac"), "by hand").unwrap();
        fs::write(folder.join("f.flac.json"), "{}").unwrap();
        let (files, is_more) = list_recordings(&folder.join("."), "air", 10).unwrap();
        let mut names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!((names, is_more), (vec!["2026/a.flac", "b.flac"], false));
        let file = &files[0];
        assert_eq!(
            (file.bytes, file.seconds, file.lost_frames, file.markers),
            (5, Some(0.5), 3, 1)
        );
        assert_eq!(file.loudness["integrated_lufs"], -23.0);
        let (one, is_more) = list_recordings(&folder.join("."), "air", 1).unwrap();
        assert_eq!((one.len(), is_more), (1, true));
        assert!(list_recordings(&folder.join("missing"), "air", 1).is_err());
    }

    #[test]
    fn only_a_complete_file_of_the_recorder_is_opened() {
        let folder = ScratchDir::new("catalog-open").unwrap();
        let root = folder.join("root");
        write(&root, "2026/a.flac", "air", "closed");
        write(&root, "c.flac", "air", "recording");
        write(&folder.join("."), "secret.flac", "air", "closed");
        symlink("../secret.flac", root.join("link.flac")).unwrap();
        symlink("../secret.flac.json", root.join("link.flac.json")).unwrap();
        let open = |name: &str| open_recording(&root, "air", Path::new(name));
        assert!(open("2026/a.flac").is_ok());
        for name in ["c.flac", "2026/a.flac.json", "../secret.flac", "link.flac", "/etc/passwd", ""]
        {
            assert!(open(name).is_err(), "{name}");
        }
        assert!(open_recording(&root, "other", Path::new("2026/a.flac")).is_err());
    }
}
