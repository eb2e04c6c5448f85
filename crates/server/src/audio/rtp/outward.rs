//! Outputs.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use aulos_config::{RtpOut, Station};
use aulos_core::{Codec, Frames, HEADROOM, SampleRate, Span};
use aulos_dsp::g711::Law;
use aulos_engine::encode::{self, Encoder, Opus, Wire, WireFormat};
use aulos_engine::rendition::Rendition;
use aulos_io::SystemClock;
use aulos_io::feed::Backoff;
use aulos_io::rtp::{Announced, Output, OutputConfig, OutputState, Session, interface, way_to};
use aulos_io::udp::{SocketOptions, StreamId, bind_socket};
use aulos_proto::rtp::Codec as Payload;
use aulos_proto::rtp::payload::OpusParameters;
use aulos_proto::{sap, sdp};
use aulos_rt::ring::ring;
use aulos_rt::{Pool, Reader};

use super::Problem;
use crate::audio::{Inner, Running, take_same};
use crate::house::RtpSent;
use crate::relay::wall;

/// An output of a station.
#[derive(Debug)]
pub(in crate::audio) struct Sent {
    config: RtpOut,
    /// What runs: the machine, the rendition that feeds it, and how it does.
    running: Option<Sending>,
    problem: Problem,
    backoff: Backoff,
    /// Our number, and the one of the description: the same for as long as it is there.
    ssrc: u32,
    id: u64,
}

#[derive(Debug)]
struct Sending {
    stream: StreamId,
    outlet: u64,
    state: Reader<OutputState>,
    sdp: String,
}

/// The outputs of a station that begins; [`look_at_outputs`] opens them.
pub(in crate::audio) fn start(station: &Station, inner: &mut Inner) -> Vec<Sent> {
    station.rtp.iter().map(|config| Sent::new(config, inner)).collect()
}

/// Lets a station that runs go to these from now on; what is the same goes on.
pub(in crate::audio) fn change(inner: &mut Inner, number: usize, wanted: &[RtpOut]) {
    let Some(running) = inner.station(number) else { return };
    running.config.rtp = wanted.to_vec();
    let mut old = std::mem::take(&mut running.rtp);
    let mut all = Vec::new();
    for config in wanted {
        let there = take_same(&mut old, |one| one.config == *config);
        all.push(there.unwrap_or_else(|| Sent::new(config, inner)));
    }
    let Some(running) = inner.stations.get_mut(number).and_then(Option::as_mut) else { return };
    for gone in old.into_iter().filter_map(|one| one.running) {
        // A station without time for it goes on encoding for nobody, until it ends.
        running.outlets.remove(gone.outlet);
        if let Some(context) = &mut inner.rtp.context {
            context.remove(gone.stream);
        }
    }
    running.rtp = all;
    look_at_outputs(inner);
}

/// A station is over: who listens is told at once, and not when it is freed.
pub(in crate::audio) fn end(running: &Running, inner: &mut Inner) {
    let Some(context) = &mut inner.rtp.context else { return };
    for gone in running.rtp.iter().filter_map(|one| one.running.as_ref()) {
        context.remove(gone.stream);
    }
}

/// Opens what can be opened now.
pub(in crate::audio) fn look_at_outputs(inner: &mut Inner) {
    let now = SystemClock::now();
    let Inner { stations, rtp, .. } = inner;
    for running in stations.iter_mut().flatten() {
        let mut all = std::mem::take(&mut running.rtp);
        for one in all.iter_mut().filter(|one| one.running.is_none() && one.backoff.is_due(now)) {
            match one.open(running, rtp) {
                Ok(sending) => {
                    one.running = Some(sending);
                    one.problem.set(None);
                }
                Err(why) => {
                    one.problem.set(Some(why));
                    one.backoff.failed(now);
                }
            }
        }
        running.rtp = all;
    }
}

impl Sent {
    fn new(config: &RtpOut, inner: &mut Inner) -> Self {
        // Nobody else has it but by chance, and nobody outside can guess it (RFC 3550, 8).
        let seed = RandomState::new().hash_one(inner.seeds.next());
        Self {
            config: config.clone(),
            running: None,
            problem: Problem::default(),
            backoff: Backoff::new(seed),
            ssrc: u32::try_from(seed & u64::from(u32::MAX)).unwrap_or(1),
            id: seed >> 32,
        }
    }

    pub(in crate::audio) fn status(&mut self) -> RtpSent {
        RtpSent {
            state: self.running.as_mut().map(|sending| *sending.state.read()),
            problem: self.problem.text(),
        }
    }

    pub(in crate::audio) fn description(&self) -> Option<&str> {
        self.running.as_ref().map(|sending| sending.sdp.as_str())
    }

    fn open(&self, running: &mut Running, rtp: &mut super::Rtp) -> Result<Sending, String> {
        let config = &self.config;
        let fail = |error: io::Error| format!("rtp://{}: {error}", config.dest);
        let mut options = SocketOptions {
            dscp: config.dscp,
            multicast_hops: config.ttl,
            // Who listens on this machine hears it too.
            multicast_loop: true,
            ..SocketOptions::default()
        };
        let own = match &config.interface {
            Some(wanted) => {
                let card = interface(wanted, config.dest.is_ipv6());
                let card =
                    card.map_err(|_| format!("there is no network card {wanted} here now"))?;
                options.multicast_interface = card.index;
                card.address
            }
            None => way_to(config.dest).map_err(fail)?,
        };
        let from = if own.is_ipv4() == config.dest.is_ipv4() {
            SocketAddr::new(own, 0)
        } else {
            return Err(format!("{own} is no address from which {} is reached", config.dest));
        };
        let socket = bind_socket(from, &options).map_err(fail)?;
        let description = self.describe(&running.config, from);
        let (encoder, room) = encoder(config, &running.config)?;
        let (output, chunks) = ring(RING_CHUNKS);
        let pool = Pool::new(RING_CHUNKS + IN_FLIGHT, || Vec::with_capacity(HEADROOM + room));
        let rendition = Rendition::new(encoder, pool, vec![output], |_, _, _, _| 0);
        let announced = config.sap.then(|| Announced {
            to: SocketAddr::new(sap::SITE.into(), sap::PORT),
            origin: own,
            sdp: description.clone(),
        });
        let wishes = OutputConfig {
            dest: config.dest,
            encoding: config.encoding,
            payload_type: config.payload_type,
            units: config.units,
            rate: running.config.spec.rate,
            lead: OutputConfig::LEAD,
            ssrc: self.ssrc,
            cname: Some(Arc::from(format!("aulos@{own}"))),
            clock: wall(),
            announced,
            seed: RandomState::new().hash_one(self.ssrc),
        };
        let (published, state) = aulos_rt::latest(OutputState::default());
        let output = Output::new(wishes, chunks, published, SystemClock::now());
        let busy = || "the station has no time for it".to_owned();
        let outlet = running.outlets.add(rendition).ok_or_else(busy)?;
        let context = rtp.context().map_err(fail)?;
        let stream = context.add(Some(socket), Session::Output(Box::new(output))).map_err(fail)?;
        Ok(Sending { stream, outlet, state, sdp: description })
    }

    /// The description, as AES67 wants it but for the clock: nobody here follows PTP.
    fn describe(&self, station: &Station, from: SocketAddr) -> String {
        let config = &self.config;
        let group = config.dest.ip().is_multicast();
        let ttl = (group && config.dest.is_ipv4()).then_some(config.ttl);
        let connection = sdp::Connection { address: config.dest.ip(), ttl };
        let opus = OpusParameters {
            stereo: station.spec.layout.channels() > 1,
            sprop_stereo: station.spec.layout.channels() > 1,
            ..OpusParameters::default()
        };
        let is_opus = config.encoding.codec == Payload::Opus;
        let parameters = if is_opus { opus.to_string() } else { String::new() };
        let format = sdp::Format {
            payload_type: config.payload_type,
            encoding: config.encoding,
            parameters,
        };
        let mut media = sdp::Media::new(connection, config.dest.port(), format);
        media.direction = sdp::Direction::ReceiveOnly;
        let clock = u64::from(config.encoding.clock_rate.max(1));
        let nanos = u64::from(config.units) * 1_000_000_000 / clock;
        // To the hundredth of a millisecond, as AES67 writes 1.09.
        let nanos = (nanos + 5_000) / 10_000 * 10_000;
        media.packet_time = i64::try_from(nanos).ok().map(Span::from_nanos);
        if matches!(config.encoding.codec, Payload::L16 | Payload::L24) {
            media.frame_count = Some(config.units);
            media.reference_clock = Some(sdp::ReferenceClock::Other("local".to_owned()));
            media.media_clock = Some(sdp::MediaClock::Sender);
        }
        let session = sdp::Session {
            origin: sdp::Origin {
                user: "-".to_owned(),
                id: self.id.to_string(),
                version: 1,
                address: from.ip().to_string(),
            },
            name: config.name.clone().unwrap_or_else(|| station.name.clone()),
            information: String::new(),
            duplicates: Vec::new(),
            media: vec![media],
            skipped: 0,
        };
        session.to_string()
    }
}

/// What makes payloads of a station's sound, and the bytes that one of a chunk can have.
fn encoder(config: &RtpOut, station: &Station) -> Result<(Box<dyn Encoder>, usize), String> {
    let spec = station.spec;
    let quantum = spec.rate.frames(Span::from_millis(i64::from(station.chunk_ms)));
    let format = match config.encoding.codec {
        Payload::L16 => WireFormat::L16,
        Payload::L24 => WireFormat::L24,
        Payload::Pcmu => WireFormat::G711(Law::Mu),
        Payload::Pcma => WireFormat::G711(Law::A),
        Payload::G722 => WireFormat::G722,
        _ => {
            let opus = encode::make(Codec::Opus, spec, quantum).map_err(|e| e.to_string())?;
            return Ok((opus, opus_room(quantum)));
        }
    };
    let rate = SampleRate::new(config.encoding.sample_rate()).map_err(|e| e.to_string())?;
    let wire = Wire::new(format, spec, quantum, rate, config.encoding.channels.into());
    let room = wire.most_bytes();
    Ok((Box::new(wire), room))
}

/// Twice what the bit rate makes of a chunk, and never less than a packet.
fn opus_room(quantum: Frames) -> usize {
    quantum.as_usize() * Opus::DEFAULT_BITRATE as usize / 8 / 48_000 * 2 + 1_500
}

/// Chunks between a station and the shared thread, which comes by every 5 ms.
const RING_CHUNKS: usize = 16;
const IN_FLIGHT: usize = 4;
