//! Sources that are another Snapcast server.

use std::sync::Arc;

use aulos_config::source::SnapcastSource;
use aulos_core::{Frames, Span};
use aulos_engine::ready_chunk::{MAX_WAITING, ReadyChunkQueue, ReadyChunkSink, ready_chunks};
use aulos_engine::source::{Pacing, RingSource, SourceItem};
use aulos_engine::standby::StandbyHandle;
use aulos_io::SystemClock;
use aulos_io::feed::{SnapcastFeeder, SnapcastServer};
use aulos_io::reactor::StationDescriptor;
use aulos_proto::snap::wire::{Auth, Hello, MAX_ID};
use aulos_rt::ring::Consumer;
use aulos_session::snapcast::{PassConfig, SnapcastInput, SnapcastInputConfig, SnapcastInputSink};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::snapcast_monitor::SnapcastMonitor;
use super::source_monitor::OpenedSource;
use crate::audio::encoding::buffers;
use crate::audio::state::AudioState;
use crate::dial::load_tls_config;

/// What a source needs to pass its chunks.
pub(crate) struct PassThroughHandles {
    config: PassConfig,
    sink: ReadyChunkSink,
}

impl PassThroughHandles {
    /// Lets a source put its chunks into `sink` too, if they are to be passed.
    pub(crate) fn attach(
        parts: Option<Self>,
        sink: SnapcastInputSink,
    ) -> (SnapcastInputSink, Option<PassConfig>) {
        match parts {
            Some(Self { config, sink: chunks }) => (sink.with_ready_chunks(chunks), Some(config)),
            None => (sink, None),
        }
    }
}

/// What the source of the station that `channel` describes needs to pass its chunks, and the
/// station's end.
pub(crate) fn pass_parts(
    channel: &StationDescriptor,
    quantum: Frames,
    input_buffer: Span,
) -> (PassThroughHandles, ReadyChunkQueue) {
    // As many wait for the station as for a reactor.
    let (count, bytes) = buffers(channel, quantum);
    let (sink, queue) = ready_chunks(count + MAX_WAITING, bytes);
    let config = PassConfig {
        codec: channel.codec,
        spec: channel.spec,
        codec_header: Arc::clone(&channel.codec_header),
        chunk: channel.chunk,
        buffer: channel.buffer,
        input_buffer,
    };
    (PassThroughHandles { config, sink }, queue)
}

/// Opens a source of `station`.
pub(crate) fn open(
    source: &SnapcastSource,
    (station, pass): (&str, Option<PassThroughHandles>),
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let (sink, items, state) = SnapcastInputSink::new();
    let passes = pass.is_some();
    let (sink, pass) = PassThroughHandles::attach(pass, sink.with_standby(standby));
    let config = SnapcastInputConfig {
        hello: hello(source, station),
        latency: source.latency,
        pass,
        seed: inner.seeds.next_u64(),
    };
    let server = SnapcastServer {
        address: source.address.to_string(),
        tls: source.tls.then(|| tls(&source.address.host)),
    };
    let input = SnapcastInput::new(config, sink, SystemClock::now());
    let counters = Arc::clone(&inner.source_counters.snapcast);
    inner.context.add_feeder(Box::new(SnapcastFeeder::new(server, input, counters)));
    station_source(items, SnapcastMonitor::new(state, passes))
}

/// The station's end of a source whose blocks come through `items`.
pub(crate) fn station_source(
    items: Consumer<SourceItem>,
    monitor: SnapcastMonitor,
) -> OpenedSource {
    (Box::new(RingSource::new(items, Pacing::Live)), Box::new(monitor))
}

/// How the source introduces itself.
fn hello(source: &SnapcastSource, station: &str) -> Hello {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().into_owned();
    // Another station of this host is another client.
    let mut id = source.id.clone().unwrap_or_else(|| format!("{host}-{station}"));
    while id.len() > MAX_ID {
        id.pop();
    }
    let mut hello = Hello::new(&id);
    hello.host_name = source.host_name.clone().unwrap_or(host);
    hello.client_name = "aulos".to_owned();
    hello.version = env!("CARGO_PKG_VERSION").to_owned();
    hello.os = system.sysname().to_string_lossy().into_owned();
    hello.arch = std::env::consts::ARCH.to_owned();
    let login = source.user.as_ref().zip(source.password.0.as_ref());
    hello.auth = login.map(|(user, password)| Auth::basic(user, password));
    hello
}

fn tls(host: &str) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| format!("{host} is not a valid host name"))?;
    Ok((load_tls_config()?, name))
}
