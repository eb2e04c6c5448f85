//! Stations as controllers see them: those of the configuration and those added by calls.
//!
//! What a call may add is limited: snapserver let it start programs, which was a remote code
//! execution (CVE-2023-36177). Here the scheme must be in an allow-list, a path below a configured
//! folder, and a device of ALSA must be a sound card. A control script in the URI is ignored unless
//! `plugins_by_rpc` is set; then a caller on this machine may name a file of `plugin_dir`.

use std::net::{IpAddr, TcpListener};
use std::path::{Component, Path, PathBuf};

use aulos_config::{
    OPEN_MOUNT_HINT, Plugin, ResolvedConfig, StationSettings, StreamSettings, StreamUri, meta_loop,
};
use aulos_core::SampleSpec;
use aulos_proto::snap::control::RpcError;
use aulos_proto::uri::Uri;

use crate::backend::AudioBackend;
use crate::clients::registry::StationInfo;
use crate::clients::registry::store::MAX_ADDED;
use crate::methods::rpc::internal_error;
use crate::stations::plugin::find_script;
use crate::stations::slot::StationSlot;
use crate::stations::{Stations, mounts};

/// Where the URI of an added stream comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamOrigin {
    /// A call from this address.
    Call(IpAddr),
    /// The state file. A port may be in use for a while after a restart and is retried.
    SavedState,
}

/// A stream that was added: its number and what clients need of it.
pub(crate) struct AddedStream {
    pub(crate) number: usize,
    pub(crate) info: StationInfo,
    /// Whether a control script has to be started.
    pub(crate) has_script: bool,
}

impl Stations {
    /// Adds a stream from its URI.
    pub(crate) fn add_stream(
        &mut self,
        text: &str,
        origin: StreamOrigin,
        config: &ResolvedConfig,
        backend: &dyn AudioBackend,
    ) -> Result<AddedStream, RpcError> {
        let allowed = &config.streams;
        let fresh = origin != StreamOrigin::SavedState;
        let mut stream = StreamUri::parse(text, SampleSpec::DEFAULT)
            .map_err(|error| RpcError::invalid_params(&error.to_string()))?;
        if let Some(why) = remote_refusal(&stream.uri, allowed, &allowed.roots) {
            return Err(RpcError::invalid_params(&why));
        }
        self.check_room(&stream)?;
        let Some(like) = config.stations.first() else {
            return Err(internal_error(
                "there is no station whose codec an added stream could take",
            ));
        };
        let plugin = self.added_plugin(&stream, allowed, origin)?;
        let make = |stream: &StreamUri| {
            let made = stream.station(like);
            let mut made = made.map_err(|error| RpcError::invalid_params(&error.to_string()))?;
            // The check above gives the caller an error. This one also holds for every later open.
            for source in &mut made.sources {
                source.config.confine(&allowed.roots);
            }
            made.plugin.clone_from(&plugin);
            Ok::<_, RpcError>(made)
        };
        let mut station = make(&stream)?;
        check_devices(&station, allowed)?;
        check_stations(self, &station, fresh)?;
        check_mounts(self, &station)?;
        if fresh && let Some(port) = check_listen_port(&station)? {
            stream = stream.with_port(port, SampleSpec::DEFAULT);
            station = make(&stream)?;
        }
        let added = backend.add_station(&station);
        let number = added.map_err(|error| internal_error(error.to_string()))?;
        let info = StationInfo { name: station.name.clone(), buffer_ms: station.buffer_ms };
        self.set(number, StationSlot::new(station, Some(stream.uri)));
        Ok(AddedStream { number, info, has_script: plugin.is_some() })
    }

    /// Removes a stream that a call has added; none if it is unknown.
    pub(crate) fn remove_stream(
        &mut self,
        name: &str,
    ) -> Result<Option<(usize, StationSlot)>, RpcError> {
        let Some((number, slot)) = self.find(name) else { return Ok(None) };
        if slot.added.is_none() {
            return Err(internal_error(
                "this stream is in the configuration file; take it out there",
            ));
        }
        Ok(self.remove(number).map(|slot| (number, slot)))
    }

    /// The URIs of added streams, for the state file. A stream with a control script is not saved:
    /// the script's arguments belong to the program that added it, which adds it again.
    pub(crate) fn saved_streams(&self) -> Vec<String> {
        let saved = self.slots().filter(|(_, slot)| slot.station.plugin.is_none());
        saved.filter_map(|(_, slot)| Some(slot.added.as_ref()?.raw.clone())).collect()
    }

    fn check_room(&self, stream: &StreamUri) -> Result<(), RpcError> {
        if self.find(&stream.name).is_some() {
            return Err(internal_error(format!(
                "Stream with name \"{}\" already exists",
                stream.name
            )));
        }
        if self.slots().filter(|(_, slot)| slot.added.is_some()).count() >= MAX_ADDED {
            return Err(internal_error(format!(
                "there are {MAX_ADDED} added streams already, which is the limit"
            )));
        }
        Ok(())
    }

    /// The control script that the URI of an added stream names, if its caller may name one.
    fn added_plugin(
        &mut self,
        stream: &StreamUri,
        allowed: &StreamSettings,
        origin: StreamOrigin,
    ) -> Result<Option<Plugin>, RpcError> {
        let Some((script, params)) = &stream.script else { return Ok(None) };
        let from = match origin {
            StreamOrigin::Call(from) if allowed.plugins_by_rpc => from,
            _ => {
                tracing::info!(
                    stream = stream.name,
                    "the `controlscript` of an added stream is ignored: `plugins_by_rpc` of [streams] \
                     is not set, or was not when the stream was added"
                );
                return Ok(None);
            }
        };
        if !from.to_canonical().is_loopback() {
            return Err(RpcError::invalid_params(&format!(
                "`controlscript` is allowed in calls from this machine, and this one comes from {from}; \
                 remove `controlscript`, or write the script into a [[station]]"
            )));
        }
        find_script(&allowed.plugin_dir, Path::new(script)).map_err(|error| {
            let dir = allowed.plugin_dir.display();
            let why = format!("`controlscript` is {script:?}: {error} (`plugin_dir` is {dir})");
            RpcError::invalid_params(&why)
        })?;
        self.named_plugins += 1;
        let call = Some(self.named_plugins);
        Ok(Some(Plugin { script: script.into(), params: params.clone(), call }))
    }
}

/// Checks that the devices of an added stream are sound cards or listed by the operator.
fn check_devices(station: &StationSettings, allowed: &StreamSettings) -> Result<(), RpcError> {
    let listed = &allowed.alsa_devices;
    if station.sources.iter().all(|source| source.config.is_device_permitted(listed)) {
        return Ok(());
    }
    Err(RpcError::invalid_params(
        "a call may name `default`, `sysdefault`, `hw:` or `plughw:` with card, device and \
         subdevice (hw:1,0 or hw:CARD=PCH,DEV=0), or a device that `streams.alsa_devices` has",
    ))
}

/// Checks that a `meta:` stream plays existing streams and not itself. At startup a stream may
/// refer to one that is restored later.
fn check_stations(
    stations: &Stations,
    station: &StationSettings,
    fresh: bool,
) -> Result<(), RpcError> {
    for source in &station.sources {
        let Some(name) = source.config.station() else { continue };
        let all = stations.slots().map(|(_, slot)| &*slot.station).chain([station]);
        if let Some(way) = meta_loop(all, name, &station.name) {
            let why = format!("`{}` would play itself: it plays {way}", station.name);
            return Err(RpcError::invalid_params(&why));
        }
        if fresh && stations.find(name).is_none() {
            return Err(internal_error(format!("there is no stream `{name}`")));
        }
    }
    Ok(())
}

/// Checks that an added mount is local, because it has no password, and not in use.
fn check_mounts(stations: &Stations, station: &StationSettings) -> Result<(), RpcError> {
    for source in &station.sources {
        let Some(mount) = source.config.mount() else { continue };
        if mount.is_open_to_network() {
            return Err(RpcError::invalid_params(OPEN_MOUNT_HINT));
        }
        let all = stations.list();
        if let Some((name, _)) = mounts(&all).find(|(_, other)| other.is_same_mount(mount)) {
            let why = format!("{}{} is the mount of `{name}`", mount.address, mount.path);
            return Err(internal_error(why));
        }
    }
    Ok(())
}

/// Why a call may not open this URI; a path has to be below one of `roots`.
pub(crate) fn remote_refusal(
    uri: &Uri,
    allowed: &StreamSettings,
    roots: &[PathBuf],
) -> Option<String> {
    let scheme = &uri.scheme;
    if !allowed.schemes.contains(scheme) {
        return Some(format!(
            "`{scheme}:` cannot be added by a call; it can be {}",
            allowed.schemes.join(", ")
        ));
    }
    let is_path = matches!(scheme.as_str(), "pipe" | "file" | "sdp");
    let path = Path::new(&uri.path);
    (is_path && !is_below(path, roots)).then(|| {
        let folder = path.parent().unwrap_or(path).display();
        match &allowed.roots[..] {
            [] => format!(
                "calls may open no file; to allow those below {folder}, write into the \
                 configuration: [streams] roots = [\"{folder}\"]"
            ),
            roots => {
                let roots: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
                let roots = roots.join(", ");
                format!("{} is not below one of `streams.roots`: {roots}", uri.path)
            }
        }
    })
}

/// Whether a path lies below one of the folders, after resolving links in its existing part.
fn is_below(path: &Path, roots: &[PathBuf]) -> bool {
    if path.components().any(|part| matches!(part, Component::ParentDir)) {
        return false;
    }
    let Some(folder) = path.parent() else { return false };
    let real = match path.canonicalize() {
        Ok(real) => real,
        // The file is yet to be created.
        Err(_) => match folder.canonicalize() {
            Ok(folder) => folder.join(path.file_name().unwrap_or_default()),
            Err(_) => return false,
        },
    };
    roots.iter().filter_map(|root| root.canonicalize().ok()).any(|root| real.starts_with(root))
}

/// Checks that a listening source can bind its address; returns the port that the system chose for
/// port 0. Music Assistant tries another port if this one is in use, so the answer has to tell.
fn check_listen_port(station: &StationSettings) -> Result<Option<u16>, RpcError> {
    let first = station.sources.first();
    let Some(address) = first.and_then(|source| source.config.listen_address()) else {
        return Ok(None);
    };
    // A DNS lookup would block all other calls.
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
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    #[test]
    fn a_path_lies_below_a_root_or_it_does_not() {
        let folder = ScratchDir::new("roots").unwrap();
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
