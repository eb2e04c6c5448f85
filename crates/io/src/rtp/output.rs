//! Chunks in, packets out: one place that a station's sound goes to.
//!
//! A station makes a chunk of 20 ms at once. A receiver of AES67 has room for three milliseconds, so
//! what is in a chunk goes out packet by packet, each at its own moment: the moment of its first frame
//! on the station's clock, and [`OutputConfig::lead`] more, which is what a late worker may be late.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use aulos_core::{HEADROOM, Instant, MediaTime, SampleRate, Span};
use aulos_engine::fanout::TimedChunk;
use aulos_proto::rtp::rtcp::{NtpTime, ReportBlock};
use aulos_proto::rtp::rtcp_session::{RtcpConfig, RtcpEvent, RtcpSession};
use aulos_proto::rtp::{self, Encoding, HEADER_LEN, RtpCodec, RtpHeader, sequence};
use aulos_proto::sap::{Announcer, AnnouncerConfig};
use aulos_rt::LatestPublisher;
use aulos_rt::ring::Consumer;

/// The wishes of an [`Output`].
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, all of which have to be said")]
pub struct RtpOutputConfig {
    /// Where to.
    pub dest: SocketAddr,
    /// What the chunks are made of.
    pub encoding: Encoding,
    /// The payload type, 0 to 127.
    pub payload_type: u8,
    /// Units of the encoding's clock in a packet. Of Opus a chunk is a packet, whatever this says.
    pub units: u32,
    /// The rate of the station, whose chunks count its frames.
    pub rate: SampleRate,
    /// How much later than its chunk is made a packet goes out.
    pub lead: Span,
    /// Our number, which nobody else there may have.
    pub ssrc: u32,
    /// Our name in RTCP; absent, none is sent.
    pub cname: Option<Arc<str>>,
    /// A moment, and the time of day that it was, for reports.
    pub clock: (Instant, NtpTime),
    /// What is announced; absent, nothing is.
    pub announcement: Option<SapAnnouncement>,
    /// Anything that no other output has: first numbers and the moments of reports come from it.
    pub seed: u64,
}

impl RtpOutputConfig {
    /// What is enough for a worker and a shared thread that come when they should, and 10 ms more.
    pub const LEAD: Span = Span::from_millis(20);
}

/// What is announced by SAP.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what an announcement needs")]
pub struct SapAnnouncement {
    /// The group that is told.
    pub to: SocketAddr,
    /// Our own address.
    pub origin: IpAddr,
    /// The description.
    pub sdp: String,
}

/// A datagram that is to be sent.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what a datagram has")]
pub struct OutgoingDatagram<'a> {
    /// Where to.
    pub to: SocketAddr,
    /// Not before this.
    pub due: Option<Instant>,
    /// What is in it.
    pub bytes: &'a [u8],
}

/// How an output does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtpOutputStatus {
    /// Packets, and the bytes of their payloads.
    pub packets: u64,
    /// Those bytes.
    pub bytes: u64,
    /// Packets that went out behind their moment, because their chunk came too late.
    pub late: u64,
    /// Packets that were so late that they were left out.
    pub skipped: u64,
    /// Holes in the station's sound: chunks that it could not make.
    pub gaps: u64,
    /// Packets that could not go because too much waited to be sent.
    pub unsent: u64,
    /// RTCP that came and told nothing to us, and whatever else did.
    pub foreign: u64,
    /// What a receiver said last that he receives.
    pub receiver_report: Option<ReportBlock>,
    /// The way to him and back.
    pub round_trip: Option<Span>,
}

/// One place that a station's sound goes to.
pub struct RtpOutput {
    config: RtpOutputConfig,
    chunks: Consumer<TimedChunk>,
    /// The chunk whose payload is being sent, and how much of it has been taken.
    open: Option<(TimedChunk, usize)>,
    /// The packet that is being filled, behind its header.
    packet: Vec<u8>,
    /// The timestamps of its first unit and of the next one that comes in, since the beginning.
    begins: u64,
    position: u64,
    /// The moment of a position.
    anchor: (u64, Instant),
    /// The media time that comes next, when every chunk does.
    next: Option<MediaTime>,
    sequence: u16,
    first_timestamp: u32,
    rtcp: Option<Box<RtcpSession>>,
    announcer: Option<Announcer>,
    /// For what is written at once.
    scratch: Box<[u8]>,
    counts: RtpOutputStatus,
    state: LatestPublisher<RtpOutputStatus>,
    next_poll: Instant,
    next_publish: Instant,
}

impl RtpOutput {
    /// An output of what comes through `chunks`, a rendition of [`aulos_engine::encode::Wire`] or of
    /// Opus. This allocates all that it needs.
    #[must_use]
    pub fn new(
        config: RtpOutputConfig,
        chunks: Consumer<TimedChunk>,
        state: LatestPublisher<RtpOutputStatus>,
        now: Instant,
    ) -> Self {
        let mut chance = aulos_core::Rng::new(config.seed);
        let (one, other) = (chance.next_u64(), chance.next_u64());
        let [a, b, c, d, e, f, ..] = one.to_le_bytes();
        let bits = rate_in_bits(&config);
        let rtcp = config.cname.as_ref().map(|cname| {
            let wishes = RtcpConfig {
                ssrc: config.ssrc,
                cname: Arc::clone(cname),
                bandwidth: (bits / 8 / 20).max(RtcpConfig::default().bandwidth),
                max_members: MAX_RTCP_MEMBERS,
                seed: other,
                ..RtcpConfig::default()
            };
            let mut rtcp = RtcpSession::new(wishes, now);
            rtcp.set_clock(config.clock.0, config.clock.1);
            Box::new(rtcp)
        });
        let announcer = config.announcement.as_ref().map(|announced| {
            let wishes = AnnouncerConfig { seed: other, ..AnnouncerConfig::default() };
            let mut announcer = Announcer::new(wishes, announced.origin, now);
            announcer.set(now, &announced.sdp);
            announcer
        });
        let longest = config.encoding.payload_bytes(config.units).unwrap_or(LONGEST_OPUS);
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

    /// Sends what is due within the next moments, with the moment of each; `send` says whether there
    /// was room.
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

    /// When to call [`Output::handle_timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.next_poll
    }

    /// Takes a datagram that came to its socket: reports of who receives.
    ///
    /// # Real-time
    /// Neither waits nor allocates.
    pub fn receive(&mut self, now: Instant, _from: SocketAddr, bytes: &[u8]) {
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

    /// Says that it is over: BYE, and the end of what was announced.
    pub fn finish(&mut self, now: Instant, send: &mut impl FnMut(OutgoingDatagram<'_>) -> bool) {
        if let Some(rtcp) = &mut self.rtcp {
            rtcp.leave(now);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.withdraw();
        }
        self.send_reports(now, send);
    }

    /// The station is gone, and all that it had has been sent.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.chunks.is_abandoned() && self.chunks.is_empty()
    }

    /// What happened so far.
    #[must_use]
    pub const fn state(&self) -> RtpOutputStatus {
        self.counts
    }

    /// Fills the packet; says when it is due, or nothing while there is not enough for it.
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
            let wanted = match self.config.encoding.payload_bytes(self.config.units) {
                Some(bytes) => (HEADER_LEN + bytes).saturating_sub(self.packet.len()),
                None => payload.len(),
            };
            let piece = &payload[..wanted.min(payload.len())];
            self.packet.extend_from_slice(piece);
            *taken += piece.len();
            let units = self.config.encoding.ticks(piece).unwrap_or(0);
            self.position += u64::from(units);
        }
    }

    fn is_full(&self) -> Option<Instant> {
        let sound = self.packet.len().checked_sub(HEADER_LEN).filter(|sound| *sound > 0)?;
        let is_full = match self.config.encoding.payload_bytes(self.config.units) {
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

    /// Opens the next chunk.
    fn take_chunk(&mut self) -> Option<()> {
        let stamped = self.chunks.pop()?;
        let chunk = &stamped.chunk;
        let rate = self.config.rate;
        if let Some(next) = self.next.filter(|next| *next != chunk.pts) {
            // What stood in line before the hole is not a whole packet any more.
            self.counts.gaps += 1;
            self.packet.clear();
            let frames = chunk.pts.0.saturating_sub(next.0);
            let units = u128::from(frames) * u128::from(self.config.encoding.clock_rate)
                / u128::from(rate.hz().max(1));
            self.position += u64::try_from(units).unwrap_or(0);
        }
        self.next = Some(chunk.pts + chunk.duration);
        // It was made when its last frame was there.
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

    /// Reports say which timestamp belongs to which time of day: the one of now, on the line on which
    /// the packets go out.
    fn record_sent(&mut self, now: Instant, due: Instant, header: &RtpHeader, payload: usize) {
        let Some(rtcp) = &mut self.rtcp else { return };
        let clock = self.config.encoding.clock_rate;
        let ticks = i128::from((due - now).as_nanos()) * i128::from(clock) / 1_000_000_000;
        let ticks = u32::try_from(ticks & i128::from(u32::MAX)).unwrap_or(0);
        let timestamp = header.timestamp.wrapping_sub(ticks);
        rtcp.record_sent(now, &RtpHeader { timestamp, ..*header }, payload, clock);
    }

    /// RTCP and SAP, as far as they are due.
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

/// What goes over the wire in a second, about.
fn rate_in_bits(config: &RtpOutputConfig) -> u32 {
    let encoding = config.encoding;
    match (encoding.codec, encoding.payload_bytes(encoding.clock_rate)) {
        (RtpCodec::Opus, _) | (_, None) => 200_000,
        (_, Some(bytes)) => u32::try_from(bytes * 8).unwrap_or(u32::MAX),
    }
}

/// How often it is looked what is due, and how far ahead: a tick that is late by as much as another
/// one is noticed by nobody.
const POLL_INTERVAL: Span = Span::from_millis(5);
const SEND_AHEAD: Span = Span::from_millis(12);

/// A packet that is later than this helps no receiver: all of them would come at once.
const TOO_LATE: Span = Span::from_millis(200);

/// How often the state is told.
const STATE_INTERVAL: Span = Span::from_millis(100);

/// Receivers whose reports are kept apart.
const MAX_RTCP_MEMBERS: usize = 64;

/// 510 kbit/s for 60 ms.
const LONGEST_OPUS: usize = 4_000;

/// A description that is announced, with its header.
const SCRATCH: usize = 4_096;
