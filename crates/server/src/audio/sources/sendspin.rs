//! Sources that are players of a Sendspin server.

use std::sync::Arc;

use aulos_config::source::SendspinSource;
use aulos_core::{Codec, Instant, Rng, SampleSpec, Span};
use aulos_engine::source::RingSource;
use aulos_engine::standby::StandbyHandle;
use aulos_io::SystemClock;
use aulos_io::feed::{SendspinEndpoint, SendspinFeeder};
use aulos_proto::sendspin::{
    ClientIdentity, PlayerHello, ServerTrust, SupportedFormat, TransportCommand,
};
use aulos_proto::uri::percent_encode_url;
use aulos_rt::LatestReader;
use aulos_rt::ring::Producer;
use aulos_session::sendspin::{
    SendspinInput, SendspinInputConfig, SendspinInputHandles, SendspinInputSink,
    SendspinInputStatus, SendspinServer, SourceCommand,
};

use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;
use crate::sendspin::{key_file, random_key};

/// What a source needs to know of its station.
pub(super) struct SendspinStation<'a> {
    pub(super) name: &'a str,
    pub(super) spec: SampleSpec,
    /// From the input until players sound, as far as the configuration says it.
    pub(super) delay: Span,
    /// The buffer of the source's input.
    pub(super) input_buffer: Span,
}

/// Opens a source. Without its key, which is a file, it stays silent and says so.
pub(super) fn open(
    source: &SendspinSource,
    station: &SendspinStation<'_>,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let (sink, handles) = SendspinInputSink::new();
    let SendspinInputHandles { items, status, commands } = handles;
    let ring = Box::new(RingSource::timed(items));
    let path = inner.state_dir.join(key_name(source, station.name));
    let keys = key_file(&path).and_then(|private| Ok((private, random_key()?, random_key()?)));
    let (private, seed, masks) = match keys {
        Ok(keys) => keys,
        Err(error) => {
            let (station, path) = (station.name, path.display());
            tracing::error!(station, %path, %error, "cannot read the key of a Sendspin source");
            return (ring, Box::new(FailedMonitor(format!("its key: {error}"))));
        }
    };
    let identity = Arc::new(ClientIdentity::new(private));
    log_identity(source, station.name, &identity);
    let formats = formats(station.spec);
    let config = SendspinInputConfig {
        identity: Arc::clone(&identity),
        hello: PlayerHello {
            name: source.player.clone().unwrap_or_else(|| station.name.to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            buffer_capacity: capacity(&formats),
            formats,
            unpaired_access: source.unpaired,
        },
        delay: station.delay,
        connects: !source.listens,
        seed,
    };
    let endpoint = SendspinEndpoint {
        address: source.address.to_string(),
        path: source.path.clone(),
        listens: source.listens,
    };
    let input = SendspinInput::new(config, sink.with_standby(standby), SystemClock::now());
    let counters = Arc::clone(&inner.source_counters.sendspin);
    let [a, b, c, d, e, f, g, h, ..] = masks;
    let masks = Rng::new(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
    inner.context.add_feeder(Box::new(SendspinFeeder::new(endpoint, input, masks, counters)));
    let (input_buffer, delay) = (station.input_buffer, station.delay);
    let monitor = SendspinMonitor { status, commands, input_buffer, delay, logged: None };
    (ring, Box::new(monitor))
}

/// The file with the key of a source: each has one of its own, and keeps it when others come or go.
fn key_name(source: &SendspinSource, station: &str) -> String {
    let way = if source.listens { "on" } else { "at" };
    let address = source.address.to_string();
    format!("sendspin-{}-{way}-{}.key", percent_encode_url(station), percent_encode_url(&address))
}

fn log_identity(source: &SendspinSource, station: &str, identity: &ClientIdentity) {
    let (address, id) = (&source.address, identity.id());
    if source.unpaired {
        tracing::info!(station, %address, %id, "a Sendspin source, for servers that are not paired too");
    } else {
        let token = identity.pairing_token().to_text();
        tracing::info!(
            station, %address, %id, token,
            "a Sendspin source; enter its token at the server that is to play into it"
        );
    }
}

/// What the source can play: the station's own rate and channels, its own depth first.
fn formats(spec: SampleSpec) -> Vec<SupportedFormat> {
    let bits = if spec.format.bits() > 16 { [24, 16] } else { [16, 24] };
    let channels = u16::try_from(spec.layout.channels().min(2)).unwrap_or(2);
    let of = |codec, bits| SupportedFormat { codec, channels, hz: spec.rate.hz(), bits };
    bits.into_iter().flat_map(|bits| [of(Codec::Pcm, bits), of(Codec::Flac, bits)]).collect()
}

/// Bytes of [`CAPACITY_S`] in the largest format.
fn capacity(formats: &[SupportedFormat]) -> u32 {
    let bytes = |format: &SupportedFormat| {
        format.hz * u32::from(format.channels) * u32::from(format.bits / 8) * CAPACITY_S
    };
    formats.iter().map(bytes).max().unwrap_or_default()
}

/// Music Assistant sends up to 30 s ahead, if it may: then a new title is heard late.
const CAPACITY_S: u32 = 5;

#[derive(Debug)]
struct SendspinMonitor {
    status: LatestReader<SendspinInputStatus>,
    commands: Producer<SourceCommand>,
    input_buffer: Span,
    /// The delay that the source knows.
    delay: Span,
    /// The server that the log has.
    logged: Option<Arc<SendspinServer>>,
}

impl SourceMonitor for SendspinMonitor {
    fn problem(&mut self) -> Option<String> {
        self.status.read().error.as_ref().map(ToString::to_string)
    }

    fn retry_at(&mut self) -> Option<Instant> {
        self.status.read().retry_at
    }

    fn sendspin(&mut self) -> Option<SendspinInputStatus> {
        Some(self.status.read().clone())
    }

    fn control(&mut self, command: TransportCommand) -> bool {
        self.commands.push(SourceCommand::Transport(command)).is_ok()
    }

    fn set_downstream(&mut self, delay: Span) {
        let delay = self.input_buffer + delay;
        if delay != self.delay && self.commands.push(SourceCommand::Delay(delay)).is_ok() {
            self.delay = delay;
        }
    }

    fn log_obstacle(&mut self, station: &str) {
        let server = self.status.read().server.clone();
        if server == self.logged {
            return;
        }
        self.logged.clone_from(&server);
        match server {
            Some(server) => tracing::info!(
                station,
                server = server.name,
                id = %server.id,
                dialect = server.dialect.info().name,
                paired = server.trust == ServerTrust::Paired,
                "a Sendspin server has the source"
            ),
            None => tracing::info!(station, "the Sendspin server has left the source"),
        }
    }
}

/// The monitor of a source without a key.
#[derive(Debug)]
struct FailedMonitor(String);

impl SourceMonitor for FailedMonitor {
    fn problem(&mut self) -> Option<String> {
        Some(self.0.clone())
    }
}
