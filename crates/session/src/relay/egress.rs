//! The sending side of a relay.

use core::net::SocketAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::rtcp::ReportBlock;
use aulos_proto::rtp::rtcp_session::RtcpSession;
use aulos_proto::rtp::{Encoding, HEADER_LEN, RtpHeader, sequence};

use super::RelayPlan;
use super::red::RedEncoder;
use super::transcode::Transcoder;
use crate::datagram::{Outbox, Route};
use crate::rtp::receive::ingress::{IngressOutput, ReadyPacket, RtpIngress};
use crate::rtp::receive::payload::{COMFORT_HZ, COMFORT_NOISE, PayloadKind};

/// The sending side.
#[derive(Debug)]
pub(super) struct RtpEgress {
    pub(super) plan: Arc<RelayPlan>,
    pub(super) to: SocketAddr,
    pub(super) ssrc: u32,
    transcoder: Transcoder,
    red: Option<Box<RedEncoder>>,
    /// Units of the sender's clock without a packet.
    missing: u64,
    pub(super) rtcp: Option<Box<RtcpSession>>,
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) undecodable: u64,
    pub(super) too_late: u64,
    pub(super) unsent: u64,
    pub(super) dtmf: u64,
    pub(super) comfort_noise: u64,
    /// Packets recovered from the FEC data of the next one.
    pub(super) recovered: u64,
    pub(super) reported: Option<(ReportBlock, Option<Span>)>,
}

impl RtpEgress {
    pub(super) fn new(plan: Arc<RelayPlan>, to: SocketAddr, ssrc: u32) -> Self {
        let transcoder = plan.transcoder.clone();
        let red = plan.config.red_out.map(|wish| Box::new(RedEncoder::new(wish)));
        Self {
            plan,
            to,
            ssrc,
            transcoder,
            red,
            missing: 0,
            rtcp: None,
            sent: 0,
            sent_bytes: 0,
            undecodable: 0,
            too_late: 0,
            unsent: 0,
            dtmf: 0,
            comfort_noise: 0,
            recovered: 0,
            reported: None,
        }
    }

    /// Sends what is due.
    pub(super) fn send_due(
        &mut self,
        now: Instant,
        ingress: &mut RtpIngress,
        out: &mut Outbox<'_>,
    ) {
        while let Some(turn) = ingress.poll_output(now) {
            match turn {
                // The packet after it may contain a copy.
                IngressOutput::Missing(missing) => {
                    self.missing = self.missing.saturating_add(missing.ticks);
                }
                IngressOutput::Packet(ready) => {
                    self.send(now, &ready, ingress.payload(&ready), out);
                    ingress.release(ready);
                }
            }
        }
    }

    /// Panics of codec libraries.
    pub(super) fn codec_panics(&self) -> u64 {
        self.transcoder.codec_panics()
    }

    /// The next packet does not continue the previous ones.
    pub(super) fn reset(&mut self) {
        self.transcoder.reset();
        self.missing = 0;
    }

    fn send(&mut self, now: Instant, ready: &ReadyPacket, payload: &[u8], out: &mut Outbox<'_>) {
        if ready.begins_run {
            self.reset();
        }
        let config = &self.plan.config;
        let (from, to) = (config.receive.media.encoding, config.to.encoding);
        let mut head = PacketHead {
            sequence: ready.sequence,
            timestamp: ready.timestamp,
            marker: ready.marker,
            payload_type: config.to.outgoing_payload_type(),
        };
        match ready.kind {
            PayloadKind::TelephoneEvent => {
                self.dtmf += 1;
                head.payload_type = config.dtmf_to.unwrap_or(head.payload_type);
                let write =
                    |room: &mut [u8]| write_event(from, to, payload, room).then_some(payload.len());
                self.send_packet(now, &head, payload.len(), out, write);
            }
            PayloadKind::ComfortNoise if to.clock_rate == COMFORT_HZ => {
                self.comfort_noise += 1;
                head.payload_type = COMFORT_NOISE;
                self.send_packet(now, &head, payload.len(), out, |room| {
                    room.get_mut(..payload.len())?.copy_from_slice(payload);
                    Some(payload.len())
                });
            }
            PayloadKind::Audio | PayloadKind::ComfortNoise
                if ready.late && self.transcoder.is_stateful() =>
            {
                self.too_late += 1;
            }
            PayloadKind::ComfortNoise => {
                self.comfort_noise += 1;
                let most = self.transcoder.max_noise_bytes();
                self.send_audio(now, &head, most, out, |transcoder, room| {
                    transcoder.noise(head.timestamp, payload, room)
                });
            }
            PayloadKind::Audio => {
                if !ready.late {
                    self.fill_gap(now, &head, payload, out);
                }
                let most = self.transcoder.max_bytes(payload.len());
                self.send_audio(now, &head, most, out, |transcoder, room| {
                    transcoder.transcode(head.timestamp, payload, room)
                });
            }
        }
    }

    /// Handles missing packets. If the next packet repeats the last of them, that one is sent with
    /// its own sequence number.
    fn fill_gap(&mut self, now: Instant, next: &PacketHead, payload: &[u8], out: &mut Outbox<'_>) {
        let missing = core::mem::take(&mut self.missing);
        if missing == 0 {
            return;
        }
        let repeated = self.transcoder.redundant_ticks(payload).filter(|ticks| *ticks <= missing);
        let Some(ticks) = repeated else { return self.transcoder.skip(missing) };
        self.transcoder.skip(missing - ticks);
        let head = PacketHead {
            sequence: next.sequence.saturating_sub(1),
            timestamp: next.timestamp.saturating_sub(ticks),
            marker: false,
            payload_type: next.payload_type,
        };
        let most = self.transcoder.max_bytes(payload.len());
        let sent = self.send_audio(now, &head, most, out, |transcoder, room| {
            transcoder.recover(ticks, head.timestamp, payload, room)
        });
        self.recovered += u64::from(sent);
    }

    /// Sends audio, with redundant copies if RED is configured.
    fn send_audio(
        &mut self,
        now: Instant,
        head: &PacketHead,
        most: usize,
        out: &mut Outbox<'_>,
        make: impl FnOnce(&mut Transcoder, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let Some(mut repeats) = self.red.take() else {
            let mut transcoder = core::mem::replace(&mut self.transcoder, Transcoder::Passthrough);
            let sent = self.send_packet(now, head, most, out, |room| make(&mut transcoder, room));
            self.transcoder = transcoder;
            return sent;
        };
        let place = (head.sequence, self.scale_timestamp(head.timestamp));
        let made = make(&mut self.transcoder, repeats.payload_buffer(most));
        let most = repeats.max_bytes(made.unwrap_or(0));
        let red = PacketHead { payload_type: repeats.payload_type(), ..*head };
        let sent = self.send_packet(now, &red, most, out, |room| {
            repeats.write(place, head.payload_type, made?, room)
        });
        self.red = Some(repeats);
        sent
    }

    /// Sends a packet with a payload of at most `most` bytes.
    fn send_packet(
        &mut self,
        now: Instant,
        head: &PacketHead,
        most: usize,
        out: &mut Outbox<'_>,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let to = self.plan.config.to.encoding.clock_rate;
        let header = RtpHeader {
            marker: head.marker,
            payload_type: head.payload_type,
            sequence: sequence::low_16(head.sequence),
            timestamp: sequence::low_32(self.scale_timestamp(head.timestamp)),
            ssrc: self.ssrc,
        };
        let mut length = None;
        let sent = out.write(self.route(), HEADER_LEN + most, |room| {
            let Some((front, rest)) = room.split_at_mut_checked(HEADER_LEN) else { return 0 };
            length = fill(rest);
            match length {
                Some(length) if header.write(front).is_some() => HEADER_LEN + length,
                _ => 0,
            }
        });
        match (sent, length) {
            (false, _) => self.unsent += 1,
            (true, None) => self.undecodable += 1,
            (true, Some(length)) => {
                self.sent += 1;
                self.sent_bytes += (HEADER_LEN + length) as u64;
                if let Some(rtcp) = &mut self.rtcp {
                    rtcp.record_sent(now, &header, length, to);
                }
                return true;
            }
        }
        false
    }

    /// Converts a timestamp to the receiver's clock rate.
    fn scale_timestamp(&self, timestamp: u64) -> u64 {
        let config = &self.plan.config;
        let (from, to) = (config.receive.media.encoding.clock_rate, config.to.encoding.clock_rate);
        if from == to {
            return timestamp;
        }
        let scaled = u128::from(timestamp) * u128::from(to) / u128::from(from.max(1));
        u64::try_from(scaled & u128::from(u64::MAX)).unwrap_or(0)
    }

    pub(super) fn route(&self) -> Route {
        let route = Route::to(self.to);
        if self.plan.config.symmetric { route.from_own_socket() } else { route }
    }
}

/// Header fields of a packet, with the timestamp of its sender.
#[derive(Clone, Copy, Debug)]
struct PacketHead {
    sequence: u64,
    timestamp: u64,
    marker: bool,
    payload_type: u8,
}

/// Writes a telephone event for a receiver with another clock rate.
fn write_event(from: Encoding, to: Encoding, payload: &[u8], out: &mut [u8]) -> bool {
    let Some(out) = out.get_mut(..payload.len()) else { return false };
    out.copy_from_slice(payload);
    if let ([_, _, high, low, ..], true) = (out, from.clock_rate != to.clock_rate) {
        let ticks = u64::from(u16::from_be_bytes([*high, *low]));
        let ticks = ticks * u64::from(to.clock_rate) / u64::from(from.clock_rate.max(1));
        [*high, *low] = u16::try_from(ticks).unwrap_or(u16::MAX).to_be_bytes();
    }
    true
}
