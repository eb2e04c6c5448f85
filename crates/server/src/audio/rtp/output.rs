//! RTP outputs.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use aulos_config::{RtpOutputSettings, StationSettings};
use aulos_core::{Backoff, Codec, Frames, HEADROOM, SampleRate, Span};
use aulos_dsp::g711::G711Law;
use aulos_engine::encode::{self, Encoder, OpusPacketEncoder, RtpPayloadCodec, RtpPayloadEncoder};
use aulos_engine::rendition::Rendition;
use aulos_io::SystemClock;
use aulos_io::udp::{InterfaceTable, SocketOptions, bind_socket};
use aulos_proto::rtp::RtpCodec as Payload;
use aulos_proto::rtp::payload::OpusParameters;
use aulos_proto::{sap, sdp};
use aulos_rt::Pool;
use aulos_rt::ring::ring;
use aulos_session::rtp::{
    RtpOutput, RtpOutputConfig, RtpOutputStatus, RtpSession, SapAnnouncement,
};

use super::handles::{OpenRtpOutput, SharedError, StationRtpOutput};
use super::missing_interface;
use super::service::RtpService;
use crate::audio::state::{AudioState, RunningStation, take_matching};
use crate::relay::wall_clock;

/// The outputs of a new station; [`open_outputs`] opens them.
pub(in crate::audio) fn start(
    station: &StationSettings,
    inner: &mut AudioState,
) -> Vec<StationRtpOutput> {
    station.rtp.iter().map(|config| StationRtpOutput::new(config, inner)).collect()
}

/// Replaces the outputs of a running station; unchanged ones continue.
pub(in crate::audio) fn change(
    inner: &mut AudioState,
    number: usize,
    wanted: &[RtpOutputSettings],
) {
    let Some(running) = inner.station(number) else { return };
    running.config.rtp = wanted.to_vec();
    let mut old = std::mem::take(&mut running.rtp);
    let mut all = Vec::new();
    for config in wanted {
        let existing = take_matching(&mut old, |one| one.config == *config);
        all.push(existing.unwrap_or_else(|| StationRtpOutput::new(config, inner)));
    }
    let Some(running) = inner.stations.get_mut(number).and_then(Option::as_mut) else { return };
    for removed in old.into_iter().filter_map(|one| one.open_output) {
        running.handle.remove_output(removed.output_id);
        if let Some(context) = &mut inner.rtp.context {
            context.remove(removed.stream);
        }
    }
    running.rtp = all;
    open_outputs(inner);
}

/// Ends the outputs of a station at once, so that receivers get their BYE before the station is
/// freed.
pub(in crate::audio) fn end(running: &RunningStation, inner: &mut AudioState) {
    let Some(context) = &mut inner.rtp.context else { return };
    for removed in running.rtp.iter().filter_map(|one| one.open_output.as_ref()) {
        context.remove(removed.stream);
    }
}

/// Opens every output whose retry time has come.
pub(in crate::audio) fn open_outputs(inner: &mut AudioState) {
    let now = SystemClock::now();
    let AudioState { stations, rtp, .. } = inner;
    for running in stations.iter_mut().flatten() {
        let mut all = std::mem::take(&mut running.rtp);
        for one in all.iter_mut().filter(|one| one.open_output.is_none() && one.backoff.is_due(now))
        {
            match one.open(running, rtp) {
                Ok(sending) => {
                    one.open_output = Some(sending);
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

impl StationRtpOutput {
    fn new(config: &RtpOutputSettings, inner: &mut AudioState) -> Self {
        // Random, so that it does not collide and cannot be guessed (RFC 3550, 8).
        let seed = RandomState::new().hash_one(inner.seeds.next_u64());
        Self {
            config: config.clone(),
            open_output: None,
            problem: SharedError::default(),
            backoff: Backoff::new(seed),
            ssrc: u32::try_from(seed & u64::from(u32::MAX)).unwrap_or(1),
            id: seed >> 32,
        }
    }

    fn open(
        &self,
        running: &mut RunningStation,
        rtp: &mut RtpService,
    ) -> Result<OpenRtpOutput, String> {
        let config = &self.config;
        let fail = |error: io::Error| format!("rtp://{}: {error}", config.dest);
        let mut options = SocketOptions {
            dscp: config.dscp,
            multicast_hops: config.ttl,
            // Receivers on this machine get the packets too.
            multicast_loop: true,
            ..SocketOptions::default()
        };
        let wanted = config.interface.as_deref();
        let table = InterfaceTable::read().map_err(fail)?;
        let interface = table.find_for(wanted, config.dest);
        let interface = interface.map_err(|_| missing_interface(wanted, config.dest))?;
        if wanted.is_some() {
            options.multicast_interface = interface.index;
        }
        let own = interface.address;
        let from = if own.is_ipv4() == config.dest.is_ipv4() {
            SocketAddr::new(own, 0)
        } else {
            return Err(format!("{} cannot be reached from the local address {own}", config.dest));
        };
        let socket = bind_socket(from, &options).map_err(fail)?;
        let description = self.describe(&running.config, from);
        let (encoder, room) = encoder(config, &running.config)?;
        let (output, chunks) = ring(RING_CHUNKS);
        let pool = Pool::new(RING_CHUNKS + IN_FLIGHT, || Vec::with_capacity(HEADROOM + room));
        let rendition = Rendition::new(encoder, pool, vec![output], |_, _, _, _| 0);
        let announced = config.sap.then(|| SapAnnouncement {
            to: SocketAddr::new(sap::SITE.into(), sap::PORT),
            origin: own,
            sdp: description.clone(),
        });
        let output_config = RtpOutputConfig {
            dest: config.dest,
            encoding: config.encoding,
            payload_type: config.payload_type,
            packet_ticks: config.packet_ticks,
            rate: running.config.spec.rate,
            lead: RtpOutputConfig::LEAD,
            ssrc: self.ssrc,
            cname: Some(Arc::from(format!("aulos@{own}"))),
            clock: wall_clock(),
            announcement: announced,
            seed: RandomState::new().hash_one(self.ssrc),
        };
        let (published, state) = aulos_rt::latest(RtpOutputStatus::default());
        let output = RtpOutput::new(output_config, chunks, published, SystemClock::now());
        let context = rtp.context().map_err(fail)?;
        let output_id = running.handle.add_output(rendition).map_err(|full| full.to_string())?;
        let session = RtpSession::Output(Box::new(output));
        let stream = context.add(Some(socket), session).map_err(|error| {
            running.handle.remove_output(output_id);
            fail(error)
        })?;
        Ok(OpenRtpOutput { stream, output_id, interface, state, sdp: description })
    }

    /// The description (SDP) of AES67, except for the reference clock: this server does not follow
    /// PTP.
    fn describe(&self, station: &StationSettings, from: SocketAddr) -> String {
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
        let format = sdp::PayloadFormat {
            payload_type: config.payload_type,
            encoding: config.encoding,
            parameters,
        };
        let mut media = sdp::MediaDescription::new(connection, config.dest.port(), format);
        media.direction = sdp::Direction::ReceiveOnly;
        let clock = u64::from(config.encoding.clock_rate.max(1));
        let nanos = u64::from(config.packet_ticks) * 1_000_000_000 / clock;
        // Rounded to 0.01 ms, as AES67 writes 1.09.
        let nanos = (nanos + 5_000) / 10_000 * 10_000;
        media.packet_time = i64::try_from(nanos).ok().map(Span::from_nanos);
        if matches!(config.encoding.codec, Payload::L16 | Payload::L24) {
            media.frame_count = Some(config.packet_ticks);
            media.reference_clock = Some(sdp::ReferenceClock::Other("local".to_owned()));
            media.media_clock = Some(sdp::MediaClock::Sender);
        }
        let session = sdp::SessionDescription {
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

/// The encoder of an output, and the largest payload of one chunk in bytes.
fn encoder(
    config: &RtpOutputSettings,
    station: &StationSettings,
) -> Result<(Box<dyn Encoder>, usize), String> {
    let spec = station.spec;
    let quantum = spec.rate.frames(Span::from_millis(i64::from(station.chunk_ms)));
    let format = match config.encoding.codec {
        Payload::L16 => RtpPayloadCodec::L16,
        Payload::L24 => RtpPayloadCodec::L24,
        Payload::Pcmu => RtpPayloadCodec::G711(G711Law::Mu),
        Payload::Pcma => RtpPayloadCodec::G711(G711Law::A),
        Payload::G722 => RtpPayloadCodec::G722,
        _ => {
            let settings = station.codec_settings(Codec::Opus);
            let opus = encode::make_encoder(settings, spec, quantum).map_err(|e| e.to_string())?;
            return Ok((opus, max_opus_bytes(quantum)));
        }
    };
    let rate = SampleRate::new(config.encoding.sample_rate()).map_err(|e| e.to_string())?;
    let wire = RtpPayloadEncoder::new(format, spec, quantum, rate, config.encoding.channels.into());
    let room = wire.max_payload_bytes();
    Ok((Box::new(wire), room))
}

/// More than the longest packet of a chunk: twice one at the default bit rate, plus a packet.
fn max_opus_bytes(quantum: Frames) -> usize {
    quantum.as_usize() * OpusPacketEncoder::DEFAULT_BITRATE as usize / 8 / 48_000 * 2 + 1_500
}

/// Chunks between a station and the shared thread, which polls every 5 ms.
const RING_CHUNKS: usize = 16;
const IN_FLIGHT: usize = 4;
