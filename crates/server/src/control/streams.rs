//! Stations as controllers see them: those of the configuration, and those that they add.
//!
//! What a remote call can add is bounded on purpose: snapserver let it start programs, and that was
//! a remote execution of code (CVE-2023-36177). Here a call names a scheme of an allow-list, and a
//! path below a folder that the configuration names; a control script in it is passed over.

use std::net::{IpAddr, TcpListener};
use std::path::{Component, Path, PathBuf};

use aulos_config::{
    Mount, OPEN_MOUNT_HINT, SoundSettings, SourceConfig, Station, StreamSettings, StreamUri,
    meta_loop,
};
use aulos_core::SampleSpec;
use aulos_proto::snap::control::RpcError;
use aulos_proto::uri::Uri;
use serde_json::{Map, Value, json};

use super::plugin::PluginHandle;
use super::rpc::internal_error;
use super::{Control, ControlState};
use crate::hooks::StationWatch;
use crate::registry::{Effects, Notice, StationInfo};

/// A station, and what Snapcast's clients want to know of a stream.
#[derive(Debug)]
pub(super) struct StationSlot {
    pub(super) station: Station,
    /// As a controller wrote it; none for those of the configuration.
    pub(super) added: Option<Uri>,
    /// What the configuration says of its sound, where a call has set something else.
    pub(super) file_sound: Option<SoundSettings>,
    /// What a control script told of it.
    pub(super) properties: Map<String, Value>,
    /// The way to the control script, while it runs.
    pub(super) plugin: Option<PluginHandle>,
    /// What of it hooks are to be told.
    pub(super) watch: StationWatch,
}

/// Streams that controllers may have added; each is some threads' work and a megabyte of buffers.
pub const MAX_ADDED: usize = 128;

impl StationSlot {
    pub(super) fn new(station: Station, added: Option<Uri>) -> Self {
        let (properties, plugin, watch) =
            (uncontrollable_properties(), None, StationWatch::default());
        Self { station, added, file_sound: None, properties, plugin, watch }
    }
}

/// The properties of a stream that nobody can control.
pub(super) fn uncontrollable_properties() -> Map<String, Value> {
    let keys = ["canControl", "canGoNext", "canGoPrevious", "canPause", "canPlay", "canSeek"];
    keys.into_iter().map(|key| (key.to_owned(), json!(false))).collect()
}

impl ControlState {
    /// The stations that run, each with its number.
    pub(super) fn slots(&self) -> impl Iterator<Item = (usize, &StationSlot)> {
        self.slots.iter().enumerate().filter_map(|(at, slot)| Some((at, slot.as_ref()?)))
    }

    pub(super) fn slot(&self, name: &str) -> Option<(usize, &StationSlot)> {
        self.slots().find(|(_, slot)| slot.station.name == name)
    }

    pub(super) fn slot_mut(&mut self, name: &str) -> Option<&mut StationSlot> {
        self.slots.iter_mut().flatten().find(|slot| slot.station.name == name)
    }

    /// The places for DJs, each with its station.
    pub(super) fn mounts(&self) -> impl Iterator<Item = (&str, &Mount)> {
        self.slots().flat_map(|(_, slot)| {
            slot.station.sources.iter().filter_map(|source| match &source.config {
                SourceConfig::Icecast(mount) => Some((slot.station.name.as_str(), mount)),
                _ => None,
            })
        })
    }

    /// The addresses of what was added, to be saved.
    pub(super) fn added_streams(&self) -> Vec<String> {
        self.slots().filter_map(|(_, slot)| Some(slot.added.as_ref()?.raw.clone())).collect()
    }
}

impl Control {
    /// Makes a stream out of its address; gives its name.
    ///
    /// `fresh` is false for what is put back after a restart: then a port that is taken now is
    /// waited for.
    pub(super) fn add_stream(
        &self,
        inner: &mut ControlState,
        text: &str,
        fresh: bool,
    ) -> Result<String, RpcError> {
        let refuse = |why: String| Err(RpcError::invalid_params(&why));
        let mut stream = match StreamUri::parse(text, SampleSpec::DEFAULT) {
            Ok(stream) => stream,
            Err(error) => return refuse(error.to_string()),
        };
        let resolved = self.config();
        if let Some(why) = remote_refusal(&stream.uri, &resolved.streams) {
            return refuse(why);
        }
        if inner.slot(&stream.name).is_some() {
            return Err(internal_error(format!(
                "Stream with name \"{}\" already exists",
                stream.name
            )));
        }
        if inner.added_streams().len() >= MAX_ADDED {
            return Err(internal_error(format!(
                "there are {MAX_ADDED} added streams, and no more"
            )));
        }
        let Some(like) = resolved.stations.first() else {
            return Err(internal_error("there is no station to take the codec from"));
        };
        let make = |stream: &StreamUri| {
            let made = stream.station(like);
            let mut made = made.map_err(|error| RpcError::invalid_params(&error.to_string()))?;
            // The check above is for the answer. What is opened later, and again, is what counts.
            for source in &mut made.sources {
                source.config.confine(&resolved.streams.roots);
            }
            Ok::<_, RpcError>(made)
        };
        let mut station = make(&stream)?;
        check_stations(inner, &station, fresh)?;
        check_mounts(inner, &station)?;
        if fresh && let Some(port) = check_listen_port(&station)? {
            stream = stream.with_port(port, SampleSpec::DEFAULT);
            station = make(&stream)?;
        }
        if stream.script.is_some() {
            tracing::info!(stream = stream.name, "a remote call cannot start a control script");
        }
        let number = self
            .backend
            .add_station(&station)
            .map_err(|error| internal_error(error.to_string()))?;
        let info = StationInfo { name: station.name.clone(), buffer_ms: station.buffer_ms };
        inner.registry.add_station(number, info);
        let name = station.name.clone();
        inner.set_slot(number, StationSlot::new(station, Some(stream.uri)));
        Ok(name)
    }

    /// Takes a stream away; its groups play the default one. One that is not there is as good as
    /// removed, as snapserver has it.
    pub(super) fn remove_stream(
        &self,
        inner: &mut ControlState,
        name: &str,
    ) -> Result<Effects, RpcError> {
        let Some((number, slot)) = inner.slot(name) else { return Ok(Effects::default()) };
        if slot.added.is_none() {
            return Err(internal_error(
                "this stream is in the configuration file; take it out there",
            ));
        }
        let mut effects = inner.registry.remove_station(number);
        effects.notices.push(Notice::Server);
        inner.slots[number] = None;
        Ok(effects)
    }
}

/// A stream that plays others plays streams that are there, and not itself. After a restart one of
/// them may come later.
fn check_stations(inner: &ControlState, station: &Station, fresh: bool) -> Result<(), RpcError> {
    for source in &station.sources {
        let SourceConfig::Station { name } = &source.config else { continue };
        let all = inner.slots().map(|(_, slot)| &slot.station).chain([station]);
        if let Some(way) = meta_loop(all, name, &station.name) {
            let why = format!("`{}` would play itself: it plays {way}", station.name);
            return Err(RpcError::invalid_params(&why));
        }
        if fresh && inner.slot(name).is_none() {
            return Err(internal_error(format!("there is no stream `{name}`")));
        }
    }
    Ok(())
}

/// A DJ's place that a call adds can have no password, and is nobody else's.
fn check_mounts(inner: &ControlState, station: &Station) -> Result<(), RpcError> {
    for source in &station.sources {
        let SourceConfig::Icecast(mount) = &source.config else { continue };
        if mount.is_open_to_network() {
            return Err(RpcError::invalid_params(OPEN_MOUNT_HINT));
        }
        if let Some((name, _)) = inner.mounts().find(|(_, other)| other.is_same_mount(mount)) {
            let why = format!("{}{} is the mount of `{name}`", mount.address, mount.path);
            return Err(internal_error(why));
        }
    }
    Ok(())
}

/// Why a remote call cannot have this opened.
pub(super) fn remote_refusal(uri: &Uri, allowed: &StreamSettings) -> Option<String> {
    let scheme = &uri.scheme;
    if !allowed.schemes.contains(scheme) {
        return Some(format!(
            "`{scheme}:` cannot be added by a call; it can be {}",
            allowed.schemes.join(", ")
        ));
    }
    let is_path = matches!(scheme.as_str(), "pipe" | "file" | "sdp");
    (is_path && !is_below(Path::new(&uri.path), &allowed.roots)).then(|| {
        format!("{} does not lie in one of the folders that `roots` of [streams] names", uri.path)
    })
}

/// Whether a path lies in one of the folders, links followed as far as it exists.
fn is_below(path: &Path, roots: &[PathBuf]) -> bool {
    if path.components().any(|part| matches!(part, Component::ParentDir)) {
        return false;
    }
    let Some(folder) = path.parent() else { return false };
    let real = match path.canonicalize() {
        Ok(real) => real,
        // It is to be made.
        Err(_) => match folder.canonicalize() {
            Ok(folder) => folder.join(path.file_name().unwrap_or_default()),
            Err(_) => return false,
        },
    };
    roots.iter().filter_map(|root| root.canonicalize().ok()).any(|root| real.starts_with(root))
}

/// For a source that listens: sees whether it can, and which port the system chose where 0 was
/// wanted. Music Assistant tries another port when this one is taken, so it has to hear of it now.
fn check_listen_port(station: &Station) -> Result<Option<u16>, RpcError> {
    let Some(SourceConfig::TcpServer { address, .. }) =
        station.sources.first().map(|source| &source.config)
    else {
        return Ok(None);
    };
    // A name would have to be looked up, and everybody would wait for that.
    let Ok(ip) = address.host.parse::<IpAddr>() else {
        let why = format!("{address}: to listen on it, write an address and no name");
        return Err(RpcError::invalid_params(&why));
    };
    let bound = TcpListener::bind((ip, address.port));
    match bound.and_then(|listener| listener.local_addr()) {
        Ok(local) if address.port == 0 => Ok(Some(local.port())),
        Ok(_) => Ok(None),
        Err(error) => Err(internal_error(format!("{address}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_below_a_root_or_it_does_not() {
        let folder = aulos_blackbox::golden::scratch("roots");
        let root = folder.join("music");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(folder.join("secret"), "").unwrap();
        std::os::unix::fs::symlink(folder.join("secret"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(&folder, root.join("out")).unwrap();
        let roots = [root.clone()];
        for good in ["a.fifo", "sub/new.wav"] {
            assert!(is_below(&root.join(good), &roots), "{good}");
        }
        for bad in ["../secret", "link", "out/secret", "out/new", "sub/../../secret", "no/such/x"] {
            assert!(!is_below(&root.join(bad), &roots), "{bad}");
        }
        assert!(!is_below(&root.join("a.fifo"), &[]));
        assert!(!is_below(Path::new("/"), &roots));
    }
}
