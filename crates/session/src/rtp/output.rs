//! An RTP output of a station: chunks in, packets out.
//!
//! A station makes a chunk of 20 ms at once. An AES67 receiver buffers three milliseconds, so the
//! packets of a chunk are sent one by one, each at its own time: the time of its first frame on the
//! station's clock, plus [`RtpOutputConfig::lead`], which covers the lateness of the worker.

use core::net::{IpAddr, SocketAddr};
use std::fmt;
use std::sync::Arc;

use aulos_core::{HEADROOM, Instant, MediaTime, SampleRate, Span};
use aulos_engine::fanout::TimedChunk;
use aulos_proto::rtp::rtcp::{NtpTime, ReportBlock};
use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpEvent, RtcpSession};
use aulos_proto::rtp::{self, Encoding, HEADER_LEN, RtpCodec, RtpHeader, sequence};
use aulos_proto::sap::{AnnouncerConfig, SapAnnouncer};
use aulos_rt::LatestPublisher;
use aulos_rt::ring::Consumer;

/// The configuration of an [`RtpOutput`].
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, all of which have to be said")]
pub struct RtpOutputConfig {
    /// The destination.
    pub dest: SocketAddr,
    /// The encoding of the chunks.
    pub encoding: Encoding,
    /// The payload type, 0 to 127.
    pub payload_type: u8,
    /// Units of the encoding's clock per packet. An Opus chunk is always one packet.
    pub packet_ticks: u32,
    /// The sample rate of the station, in whose frames chunks are timed.
    pub rate: SampleRate,
    /// From the creation of a chunk to the sending of its packets.
    pub lead: Span,
    /// The SSRC, which must be unique at the destination.
    pub ssrc: u32,
    /// The RTCP CNAME; without one no RTCP is sent.
    pub cname: Option<Arc<str>>,
    /// A moment and its wall clock time, for RTCP.
    pub clock: (Instant, NtpTime),
    /// The SAP announcement, if any.
    pub announcement: Option<SapAnnouncement>,
    /// A value that differs between outputs, for initial numbers and the times of reports.
    pub seed: u64,
}

impl RtpOutputConfig {
    /// Enough for a worker and a UDP thread that are on time, plus 10 ms.
    pub const LEAD: Span = Span::from_millis(20);
}

/// A SAP announcement.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what an announcement needs")]
pub struct SapAnnouncement {
    /// The multicast group for announcements.
    pub to: SocketAddr,
    /// The originating address.
    pub origin: IpAddr,
    /// The session description.
    pub sdp: String,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what a datagram has")]
pub struct OutgoingDatagram<'a> {
    /// The destination.
    pub to: SocketAddr,
    /// The earliest send time.
    pub due: Option<Instant>,
    /// The payload.
    pub bytes: &'a [u8],
}

/// The status of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtpOutputStatus {
    /// Packets sent.
    pub packets: u64,
    /// The bytes of their payloads.
    pub bytes: u64,
    /// Packets that were sent late because their chunk was late.
    pub late: u64,
    /// Packets that were dropped because they were too late.
    pub skipped: u64,
    /// Gaps in the station's audio: chunks that it could not make.
    pub gaps: u64,
    /// Packets dropped because the send queue was full.
    pub unsent: u64,
    /// RTCP that was not for this output, and other datagrams.
    pub foreign: u64,
    /// The last report block of a receiver.
    pub receiver_report: Option<ReportBlock>,
    /// The round-trip time to it.
    pub round_trip: Option<Span>,
}

/// One RTP destination of a station's audio.
pub struct RtpOutput {
    config: RtpOutputConfig,
    chunks: Consumer<TimedChunk>,
    /// The chunk that is being sent, and how many of its bytes have been taken.
    open: Option<(TimedChunk, usize)>,
    /// The packet that is being filled, after its header.
    packet: Vec<u8>,
    /// The positions of its first unit and of the next unit to be added, counted from the
    /// beginning.
    begins: u64,
    position: u64,
    /// The send time of a position.
    anchor: (u64, Instant),
    /// The media time of the next chunk if none is missing.
    next: Option<MediaTime>,
    sequence: u16,
    first_timestamp: u32,
    rtcp: Option<Box<RtcpSession>>,
    announcer: Option<SapAnnouncer>,
    /// A buffer for reports and announcements.
    scratch: Box<[u8]>,
    counts: RtpOutputStatus,
    state: LatestPublisher<RtpOutputStatus>,
    next_poll: Instant,
    next_publish: Instant,
}

impl RtpOutput {
    /// An output of the chunks from `chunks`, a rendition of
    /// [`aulos_engine::encode::RtpPayloadEncoder`] or of Opus. Allocates all that it needs.
    #[must_use]
    pub fn new(
        config: RtpOutputConfig,
        chunks: Consumer<TimedChunk>,
        state: LatestPublisher<RtpOutputStatus>,
        now: Instant,
    ) -> Self {
        let mut rng = aulos_core::Rng::new(config.seed);
        let (one, other) = (rng.next_u64(), rng.next_u64());
        let [a, b, c, d, e, f, ..] = one.to_le_bytes();
        let bits = rate_in_bits(&config);
        let rtcp = config.cname.as_ref().map(|cname| {
            let rtcp_config = RtcpConfig {
                ssrc: config.ssrc,
                cname: Arc::clone(cname),
                bandwidth: (bits / 8 / 20).max(RtcpConfig::default().bandwidth),
                max_members: MAX_RTCP_MEMBERS,
                seed: other,
                ..RtcpConfig::default()
            };
            let mut rtcp = RtcpSession::new(rtcp_config, now);
            rtcp.set_clock(config.clock.0, config.clock.1);
            Box::new(rtcp)
        });
        let announcer = config.announcement.as_ref().map(|announced| {
            let announcer_config = AnnouncerConfig { seed: other, ..AnnouncerConfig::default() };
            let mut announcer = SapAnnouncer::new(announcer_config, announced.origin, now);
            announcer.set(now, &announced.sdp);
            announcer
        });
        let longest = config.encoding.payload_bytes(config.packet_ticks).unwrap_or(LONGEST_OPUS);
        Self {
            config,
            chunks,
            open: None,
            packet: Vec::with_capacity(HEADER_LEN + longest),
            begins: 0,
            position: 0,
            anchor: (0, now),
            next: None,
            sequence: u16::from_le_bytes([a, b]),
            first_timestamp: u32::from_le_bytes([c, d, e, f]),
            rtcp,
            announcer,
            scratch: vec![0; SCRATCH].into(),
            counts: RtpOutputStatus::default(),
            state,
            next_poll: now,
            next_publish: now,
        }
    }

    /// Sends what is due shortly, each packet with its send time; `send` returns whether there was
    /// room.
    ///
    /// # Real-time
    /// Neither waits nor allocates.
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        send: &mut impl FnMut(OutgoingDatagram<'_>) -> bool,
    ) {
        self.next_poll = now + POLL_INTERVAL;
        while let Some(due) = self.fill() {
            if due > now + SEND_AHEAD {
                break;
            }
            self.emit(now, due, send);
        }
        self.send_reports(now, send);
        if self.next_publish <= now {
            self.next_publish = now + STATE_INTERVAL;
            self.state.publish(self.counts);
        }
    }

    /// When to call [`RtpOutput::handle_timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.next_poll
    }

    /// Handles a datagram from its socket: reports of receivers.
    ///
    /// # Real-time
    /// Neither waits nor allocates.
    pub fn handle_packet(&mut self, now: Instant, _from: SocketAddr, bytes: &[u8]) {
        let (ssrc, counts) = (self.config.ssrc, &mut self.counts);
        let read = self.rtcp.as_mut().filter(|_| rtp::is_rtcp(bytes)).map(|rtcp| {
            rtcp.handle_input(now, bytes, |event| {
                if let RtcpEvent::ReceptionReport { block, round_trip, .. } = event
                    && block.ssrc == ssrc
                {
                    (counts.receiver_report, counts.round_trip) = (Some(block), round_trip);
                }
            })
        });
        counts.foreign += u64::from(!matches!(read, Some(Ok(()))));
    }

    /// Sends a BYE, and deletes the announcement.
    pub fn finish(&mut self, now: Instant, send: &mut impl FnMut(OutgoingDatagram<'_>) -> bool) {
        if let Some(rtcp) = &mut self.rtcp {
            rtcp.leave(now);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.withdraw();
        }
        self.send_reports(now, send);
    }

    /// Whether the station is gone and all of its chunks have been sent.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.chunks.is_abandoned() && self.chunks.is_empty()
    }

    /// The status.
    #[must_use]
    pub const fn state(&self) -> RtpOutputStatus {
        self.counts
    }

    /// Fills the packet; returns its send time, or `None` while there is not enough data.
    fn fill(&mut self) -> Option<Instant> {
        loop {
            if let Some(due) = self.is_full() {
                return Some(due);
            }
            let Some((stamped, taken)) = &mut self.open else {
                self.take_chunk()?;
                continue;
            };
            let payload = stamped.chunk.bytes.get(HEADROOM + *taken..).unwrap_or_default();
            if payload.is_empty() {
                self.open = None;
                continue;
            }
            let wanted = match self.config.encoding.payload_bytes(self.config.packet_ticks) {
                Some(bytes) => (HEADER_LEN + bytes).saturating_sub(self.packet.len()),
                None => payload.len(),
            };
            let piece = &payload[..wanted.min(payload.len())];
            self.packet.extend_from_slice(piece);
            *taken += piece.len();
            let ticks = self.config.encoding.ticks(piece).unwrap_or(0);
            self.position += u64::from(ticks);
        }
    }

    fn is_full(&self) -> Option<Instant> {
        let sound = self.packet.len().checked_sub(HEADER_LEN).filter(|sound| *sound > 0)?;
        let is_full = match self.config.encoding.payload_bytes(self.config.packet_ticks) {
            Some(bytes) => sound >= bytes,
            None => true,
        };
        is_full.then(|| self.due_time(self.begins))
    }

    fn due_time(&self, position: u64) -> Instant {
        let (at, moment) = self.anchor;
        let since = i128::from(position) - i128::from(at);
        let nanos = since * 1_000_000_000 / i128::from(self.config.encoding.clock_rate.max(1));
        moment + Span::from_nanos(i64::try_from(nanos).unwrap_or(0))
    }

    /// Takes the next chunk.
    fn take_chunk(&mut self) -> Option<()> {
        let stamped = self.chunks.pop()?;
        let chunk = &stamped.chunk;
        let rate = self.config.rate;
        if let Some(next) = self.next.filter(|next| *next != chunk.pts) {
            // Data before a gap no longer makes a whole packet.
            self.counts.gaps += 1;
            self.packet.clear();
            let frames = chunk.pts.0.saturating_sub(next.0);
            let ticks = u128::from(frames) * u128::from(self.config.encoding.clock_rate)
                / u128::from(rate.hz().max(1));
            self.position += u64::try_from(ticks).unwrap_or(0);
        }
        self.next = Some(chunk.pts + chunk.duration);
        // A chunk is made when its last frame is there.
        let moment = stamped.timestamp + rate.span(chunk.duration) + self.config.lead;
        self.anchor = (self.position, moment);
        if self.packet.len() <= HEADER_LEN {
            self.packet.clear();
            self.packet.resize(HEADER_LEN, 0);
            self.begins = self.position;
        }
        self.open = Some((stamped, 0));
        Some(())
    }

    fn emit(
        &mut self,
        now: Instant,
        due: Instant,
        send: &mut impl FnMut(OutgoingDatagram<'_>) -> bool,
    ) {
        let payload = self.packet.len() - HEADER_LEN;
        let header = RtpHeader {
            marker: false,
            payload_type: self.config.payload_type,
            sequence: self.sequence,
            timestamp: self.first_timestamp.wrapping_add(sequence::low_32(self.begins)),
            ssrc: self.config.ssrc,
        };
        let written = header.write(&mut self.packet).is_some();
        self.sequence = self.sequence.wrapping_add(1);
        if now.since(due) > TOO_LATE {
            self.counts.skipped += 1;
        } else if written {
            self.counts.late += u64::from(due < now);
            let part =
                OutgoingDatagram { to: self.config.dest, due: Some(due), bytes: &self.packet };
            if send(part) {
                self.counts.packets += 1;
                self.counts.bytes += payload as u64;
                self.record_sent(now, due, &header, payload);
            } else {
                self.counts.unsent += 1;
            }
        }
        self.packet.truncate(HEADER_LEN);
        self.begins = self.position;
    }

    /// Records the pair of timestamp and wall clock time for sender reports: those of now, on the
    /// line of the packets' send times.
    fn record_sent(&mut self, now: Instant, due: Instant, header: &RtpHeader, payload: usize) {
        let Some(rtcp) = &mut self.rtcp else { return };
        let clock = self.config.encoding.clock_rate;
        let ticks = i128::from((due - now).as_nanos()) * i128::from(clock) / 1_000_000_000;
        let ticks = u32::try_from(ticks & i128::from(u32::MAX)).unwrap_or(0);
        let timestamp = header.timestamp.wrapping_sub(ticks);
        rtcp.record_sent(now, &RtpHeader { timestamp, ..*header }, payload, clock);
    }

    /// Sends RTCP and SAP as far as they are due.
    fn send_reports(&mut self, now: Instant, send: &mut impl FnMut(OutgoingDatagram<'_>) -> bool) {
        if let Some(rtcp) = &mut self.rtcp {
            rtcp.handle_timeout(now, |_| ());
            while let Some(length) = rtcp.poll_output(now, &mut self.scratch, core::iter::empty()) {
                let mut to = self.config.dest;
                to.set_port(to.port().saturating_add(1));
                send(OutgoingDatagram { to, due: None, bytes: &self.scratch[..length] });
            }
        }
        if let (Some(announcer), Some(announced)) = (&mut self.announcer, &self.config.announcement)
        {
            announcer.handle_timeout(now);
            while let Some(length) = announcer.poll_output(&mut self.scratch) {
                send(OutgoingDatagram {
                    to: announced.to,
                    due: None,
                    bytes: &self.scratch[..length],
                });
            }
        }
    }
}

impl fmt::Debug for RtpOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("dest", &self.config.dest).finish_non_exhaustive()
    }
}

/// The approximate bit rate of the stream.
fn rate_in_bits(config: &RtpOutputConfig) -> u32 {
    let encoding = config.encoding;
    match (encoding.codec, encoding.payload_bytes(encoding.clock_rate)) {
        (RtpCodec::Opus, _) | (_, None) => 200_000,
        (_, Some(bytes)) => u32::try_from(bytes * 8).unwrap_or(u32::MAX),
    }
}

/// The polling interval and how far ahead packets are sent: one late tick has no effect.
const POLL_INTERVAL: Span = Span::from_millis(5);
const SEND_AHEAD: Span = Span::from_millis(12);

/// Packets later than this are dropped: all of them would be sent at once, which helps no receiver.
const TOO_LATE: Span = Span::from_millis(200);

/// The interval at which the status is published.
const STATE_INTERVAL: Span = Span::from_millis(100);

/// Receivers whose reports are tracked separately.
const MAX_RTCP_MEMBERS: usize = 64;

/// 510 kbit/s for 60 ms.
const LONGEST_OPUS: usize = 4_000;

/// An announcement with its header.
const SCRATCH: usize = 4_096;
