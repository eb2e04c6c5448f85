//! Warnings about folders, files and programs that a configuration names and this machine does not
//! have.
//!
//! They are no errors: a disk may be mounted later, and a FIFO is opened as soon as its folder
//! exists. What the server needs at startup is an error elsewhere.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::env::Environment;
use crate::model::{Config, StationConfig};
use crate::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean};
use crate::program::{ProgramState, find_program};
use crate::source::{self, LocalPath};
use crate::station::insert::parse_uri;
use crate::station::now_playing::NowPlayingConfig;

/// Adds a warning for everything that is missing.
pub(crate) fn check(config: &Config, env: &Environment, problems: &Problems) {
    let search = Search { env, problems };
    for station in &config.station {
        search.station(station, Path::new(&config.streams.plugin_dir.value));
    }
    if let Some(ConfigValue { value, at }) = &config.http.doc_root
        && !Path::new(value).is_dir()
    {
        let message = format!("there is no folder {value}; the built-in page is served");
        let hint = format!("remove `doc_root`, or run mkdir -p {value}");
        search.warn(*at, message, hint);
    }
    for ConfigValue { value, at } in &config.streams.roots {
        search.folder(Path::new(value), *at);
    }
}

struct Search<'a> {
    env: &'a Environment,
    problems: &'a Problems,
}

impl Search<'_> {
    fn station(&self, station: &StationConfig, plugin_dir: &Path) {
        for entry in &station.sources {
            // Wrong URIs have been reported.
            let parsed = source::parse(&entry.uri, &Problems::default());
            for source in parsed.into_iter().flat_map(|(sources, _)| sources) {
                if let Some(path) = source.local_path() {
                    self.path(path, entry.uri.at);
                }
            }
        }
        // A wrong URI has been reported.
        let insert = station.insert.as_ref().map(|insert| &insert.uri);
        let program =
            insert.and_then(|uri| parse_uri(uri, &Problems::default()).map(|it| (it.0, uri)));
        if let Some((program, uri)) = program {
            self.program(&program, uri.at);
        }
        if let Some(now_playing) = &station.now_playing {
            self.titles(now_playing);
        }
        if let Some(script) = station.plugin.as_ref().and_then(|plugin| plugin.script.as_ref()) {
            self.program(&plugin_dir.join(&script.value), script.at);
        }
    }

    fn titles(&self, config: &NowPlayingConfig) {
        let of_outputs = config.outputs.iter().filter_map(|output| {
            let url = output.url.as_ref()?;
            Some((url.value.strip_prefix("file://")?, url.at))
        });
        let input = config.file.as_ref().map(|file| (file.value.as_str(), file.at));
        for (file, at) in of_outputs.chain(input) {
            if let Some(folder) = Path::new(file).parent() {
                self.folder(folder, at);
            }
        }
    }

    fn path(&self, path: LocalPath<'_>, at: ConfigLocation) {
        match path {
            LocalPath::NewFifo(path) => {
                self.folder(path.parent().unwrap_or(path), at);
                self.fifo(path, at);
            }
            LocalPath::Fifo(path) => {
                self.file(path, at, &format!("create it with mkfifo {}", path.display()));
                self.fifo(path, at);
            }
            LocalPath::File(path) => self.sound_file(path, at),
            LocalPath::Playlist(path) => {
                self.file(path, at, "name a folder with audio files, or a list of them");
            }
            LocalPath::Program(path) => self.program(path, at),
        }
    }

    fn folder(&self, path: &Path, at: ConfigLocation) {
        if !path.is_dir() {
            let path = path.display();
            self.warn(at, format!("there is no folder {path}"), format!("mkdir -p {path}"));
        }
    }

    /// A file that is to be read, and is no folder and no playlist.
    fn sound_file(&self, path: &Path, at: ConfigLocation) {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_playlist =
            |extension: &str| PLAYLISTS.iter().any(|known| extension.eq_ignore_ascii_case(known));
        if path.is_dir() {
            let hint = format!("to play its files, write playlist://{}", path.display());
            self.warn(at, format!("{} is a folder", path.display()), hint);
        } else if extension.is_some_and(is_playlist) {
            let hint = format!("to play its files, write playlist://{}", path.display());
            self.warn(at, format!("{} is a playlist", path.display()), hint);
        } else {
            let hint = match similar_file(path) {
                Some(other) => format!("did you mean {}?", other.display()),
                None => "correct the path, or put the file there".to_owned(),
            };
            self.file(path, at, &hint);
        }
    }

    fn file(&self, path: &Path, at: ConfigLocation, hint: &str) {
        if !path.exists() {
            self.warn(at, format!("there is no file {}", path.display()), hint.to_owned());
        }
    }

    /// Something else in place of a FIFO. A device is accepted like one.
    fn fifo(&self, path: &Path, at: ConfigLocation) {
        let kind = std::fs::metadata(path).map(|found| found.file_type());
        if kind.is_ok_and(|kind| !kind.is_fifo() && !kind.is_char_device()) {
            let hint = "move it away, or use another path".to_owned();
            self.warn(at, format!("{} is not a FIFO", path.display()), hint);
        }
    }

    fn program(&self, path: &Path, at: ConfigLocation) {
        let message = match find_program(path, self.env) {
            ProgramState::Runnable => return,
            ProgramState::NotInPath => format!("there is no program `{}` in PATH", path.display()),
            ProgramState::Missing => format!("there is no program {}", path.display()),
            ProgramState::NotExecutable => format!("{} is not executable", path.display()),
        };
        self.warn(at, message, "install it, or correct the path".to_owned());
    }

    fn warn(&self, at: ConfigLocation, message: String, hint: String) {
        self.problems.warn(at, message, hint);
    }
}

/// A file of the same folder whose name is almost the same.
fn similar_file(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let entries = std::fs::read_dir(path.parent()?).ok()?.take(MAX_ENTRIES).filter_map(Result::ok);
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    did_you_mean(name, &names).map(|other| path.with_file_name(other))
}

/// A folder with more files is an archive, in which a similar name says little.
const MAX_ENTRIES: usize = 1_000;

/// Extensions of playlists.
const PLAYLISTS: [&str; 6] = ["m3u", "m3u8", "pls", "xspf", "asx", "cue"];
