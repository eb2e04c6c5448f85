//! An RTP source of a station: packets in, blocks out.

mod packet_decoder;

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use aulos_core::{Block, ChannelLayout, Instant, SampleRate, Span};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_engine::standby::{LinkState, StandbyHandle, StandbyRequest};
use aulos_proto::rtp::jitter::{DelayPolicy, GapCause};
use aulos_proto::rtp::rtcp::{CompoundPacket, RtcpPacket};
use aulos_proto::rtp::{self, Encoding, RtpErrorCounts};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, LatestReader, Pool};

use crate::relay::ingress::{IngressOutput, RtpIngress};
use crate::relay::payload::{IgnoreReason, PayloadKind};
use crate::relay::{RelayStreamConfig, RtpPayloadFormat};
use packet_decoder::PacketDecoder;

/// The configuration of an [`RtpInput`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with new and changed")]
pub struct RtpInputConfig {
    /// The format of the packets.
    pub media: RtpPayloadFormat,
    /// How long a packet waits for an earlier one that is still under way; at most one second.
    pub max_wait: Span,
    /// The longest gap that is concealed. After a longer gap the audio starts anew.
    pub max_concealed: Span,
    /// Only packets from these addresses are accepted; all if it is empty.
    pub allowed_senders: Vec<IpAddr>,
    /// The channel count that Opus is decoded to, 1 or 2: its packets do not contain it.
    pub opus_channels: u8,
    /// The payload type of RED (RFC 2198), if packets are repeated that way.
    pub red_payload_type: Option<u8>,
    /// The playout delay. Without one, packets are decoded as soon as they are in order, and all
    /// buffering is in the station's input.
    pub delay: Option<PlayoutDelay>,
}

/// The adaptive playout delay after the fastest packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the ends of a range")]
pub struct PlayoutDelay {
    /// The lower limit.
    pub min: Span,
    /// The upper limit, [`MAX_PLAYOUT_DELAY`] at most. The delay is fixed if both limits are equal.
    pub max: Span,
}

impl PlayoutDelay {
    /// The jitter buffer's configuration; it starts in the middle of its usual range.
    fn resolve(self) -> DelayPolicy {
        let max = self.max.clamp(Span::ZERO, MAX_PLAYOUT_DELAY);
        let min = self.min.clamp(Span::ZERO, max);
        if min == max {
            return DelayPolicy::Fixed(max);
        }
        let first = FIRST_DELAY.clamp(min, max);
        DelayPolicy::Adaptive { quantile: IN_TIME_RATIO, min, max, first }
    }
}

impl RtpInputConfig {
    /// Waits up to 100 ms for late packets, and conceals 400 ms at most.
    #[must_use]
    pub const fn new(media: RtpPayloadFormat) -> Self {
        Self {
            media,
            max_wait: Span::from_millis(100),
            max_concealed: Span::from_millis(400),
            allowed_senders: Vec::new(),
            opus_channels: 2,
            red_payload_type: None,
            delay: None,
        }
    }
}

/// The counters of an RTP source, over all senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtpInputCounts {
    /// Packets of the source, without duplicates.
    pub received: u64,
    /// Packets known to be lost.
    pub lost: u64,
    /// Lost packets that were recovered from RED.
    pub recovered_red: u64,
    /// Lost packets that were recovered from Opus FEC.
    pub recovered_fec: u64,
    /// Packets that arrived after they had been concealed.
    pub late: u64,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Frames that were concealed.
    pub concealed: u64,
    /// Frames that the sender omitted as silence.
    pub left_out: u64,
    /// Concealed frames that made the playout delay longer.
    pub stretched: u64,
    /// Packets that were skipped because more arrived than could be played in time.
    pub skipped: u64,
    /// Gaps that were too long to be concealed.
    pub gaps: u64,
    /// Packets of this source that are not valid payloads of its codec.
    pub undecodable: u64,
    /// Packets for which the jitter buffer had no room.
    pub no_room: u64,
    /// Frames that the station did not take in time.
    pub overflown: u64,
    /// How often another sender took over, or the same one restarted.
    pub changes: u64,
    /// Datagrams that are not RTP.
    pub refused: u64,
    /// Packets of other payload types.
    pub other_types: u64,
    /// Packets of other senders while the sender is active, and from addresses that are not
    /// allowed.
    pub other_senders: u64,
    /// RTCP that was malformed or not for this source.
    pub other_rtcp: u64,
    /// BYEs after which the sender continued.
    pub forged_byes: u64,
}

/// The status of an RTP source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtpInputStatus {
    /// The address of the sender, while there is one.
    pub from: Option<SocketAddr>,
    /// Its SSRC.
    pub ssrc: Option<u32>,
    /// The counters.
    pub counts: RtpInputCounts,
    /// The interarrival jitter of RFC 3550.
    pub jitter: Span,
    /// The current wait for late packets; with a playout delay, that delay.
    pub wait: Span,
    /// Packets that are queued behind a missing one.
    pub held: usize,
    /// What arrives, while only packets of other payload types do.
    pub unexpected_type: Option<UnexpectedPayloadType>,
}

/// Packets of another payload type arrive in place of the source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a fact")]
pub struct UnexpectedPayloadType {
    /// The payload type that arrives.
    pub arrives: u8,
    /// The source's payload type; `None` for any of the dynamic ones.
    pub expected: Option<u8>,
}

impl fmt::Display for UnexpectedPayloadType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "payload type {} arrives, ", self.arrives)?;
        match self.expected {
            Some(expected) => write!(f, "{expected} is expected"),
            None => f.write_str("one of 96 to 127 is expected"),
        }
    }
}

/// There is no decoder for this encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a fact")]
pub struct UnsupportedEncoding(
    /// The encoding.
    pub Encoding,
);

impl fmt::Display for UnsupportedEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be decoded", self.0)
    }
}

impl core::error::Error for UnsupportedEncoding {}

/// The output of an [`RtpInput`]. It exists before the format of the packets is known.
#[derive(Debug)]
pub struct RtpInputSink {
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    state: LatestPublisher<RtpInputStatus>,
    standby: Option<StandbyHandle>,
}

impl RtpInputSink {
    /// A sink, its consumer for the station (a live source), and a reader of its status.
    #[must_use]
    pub fn new() -> (Self, Consumer<SourceItem>, LatestReader<RtpInputStatus>) {
        let (items, consumer) = ring(RTP_INPUT_BLOCKS + 1);
        let (state, reader) = aulos_rt::latest(RtpInputStatus::default());
        let block =
            || Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let pool = Pool::new(RTP_INPUT_BLOCKS, block);
        (Self { pool, items, state, standby: None }, consumer, reader)
    }

    /// Connects it to the station's stand-by control. While the source is not needed, packets are
    /// put in order and dropped; the port stays open.
    #[must_use]
    pub fn with_standby(mut self, standby: StandbyHandle) -> Self {
        self.standby = Some(standby);
        self
    }

    /// Whether the station is gone, so that nothing will be taken any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.items.is_abandoned()
    }

    /// Reports to the station whether the source could be opened.
    pub fn report_link(&mut self, link: LinkState) {
        if let Some(standby) = &mut self.standby {
            standby.report(link);
        }
    }
}

/// An RTP source without a socket. The caller passes datagrams to it, and calls it when
/// [`RtpInput::poll_timeout`] says so.
pub struct RtpInput {
    config: RtpInputConfig,
    ingress_config: RelayStreamConfig,
    ingress: Option<Box<RtpIngress>>,
    from: Option<SocketAddr>,
    /// When the sender sent a BYE.
    bye_at: Option<Instant>,
    /// The last packet of another sender: its SSRC and the next expected sequence number.
    candidate: Option<(u32, u16)>,
    decoder: PacketDecoder,
    refused: RtpErrorCounts,
    unexpected_type: Option<(Instant, UnexpectedPayloadType)>,
    counts: RtpInputCounts,
    /// The totals of earlier senders.
    previous_counts: RtpInputCounts,
    standby: Option<StandbyHandle>,
    demand: StandbyRequest,
    state: LatestPublisher<RtpInputStatus>,
    next_report: Instant,
}

impl RtpInput {
    /// A source without packets yet. Allocates what its packets need, except for the slots of the
    /// jitter buffer, which are allocated with the first packet of a sender.
    ///
    /// # Errors
    /// [`UnsupportedEncoding`].
    pub fn new(
        config: RtpInputConfig,
        sink: RtpInputSink,
        now: Instant,
    ) -> Result<Self, UnsupportedEncoding> {
        let RtpInputSink { pool, items, state, standby } = sink;
        let mut ingress_config = RelayStreamConfig::new(config.media, config.media);
        ingress_config.reorder_delay = config.max_wait;
        ingress_config.red_in = config.red_payload_type;
        if let Some(delay) = config.delay {
            // With a sender that sends in bursts, packets of twice the delay are waiting.
            let most = delay.max.clamp(Span::ZERO, MAX_PLAYOUT_DELAY);
            ingress_config.reorder_delay = most + most;
        }
        let sound = PacketDecoder::new(&config, pool, items)?;
        Ok(Self {
            config,
            ingress_config,
            ingress: None,
            from: None,
            bye_at: None,
            candidate: None,
            decoder: sound,
            refused: RtpErrorCounts::default(),
            unexpected_type: None,
            counts: RtpInputCounts::default(),
            previous_counts: RtpInputCounts::default(),
            standby,
            demand: StandbyRequest::Play,
            state,
            next_report: now,
        })
    }

    /// Takes a datagram that arrived at `received`. After the last pending one, call
    /// [`RtpInput::flush`].
    ///
    /// # Real-time
    /// Does not wait; allocates only when a sender starts, or for a payload that is longer than all
    /// before it.
    pub fn receive(&mut self, received: Instant, from: SocketAddr, bytes: &[u8]) {
        if !self.config.allowed_senders.is_empty()
            && !self.config.allowed_senders.contains(&from.ip())
        {
            self.counts.other_senders += 1;
            return;
        }
        if rtp::is_rtcp(bytes) {
            return self.receive_rtcp(received, from, bytes);
        }
        let packet = match rtp::RtpPacket::parse(bytes) {
            Ok(packet) => packet,
            Err(why) => return self.refused.count(why),
        };
        let incoming = match self.ingress_config.parse(&packet) {
            Ok(incoming) if incoming.kind == PayloadKind::Audio => incoming,
            Err(IgnoreReason::InvalidRed) => {
                self.counts.undecodable += 1;
                return;
            }
            Ok(_) | Err(IgnoreReason::UnknownPayloadType) => {
                self.counts.other_types += 1;
                let arrives = packet.payload_type();
                let expected = self.config.media.expected_payload_type();
                let unexpected = UnexpectedPayloadType { arrives, expected };
                self.unexpected_type = Some((received, unexpected));
                return;
            }
        };
        if !self.is_accepted(received, from, &packet) {
            self.counts.other_senders += 1;
            return;
        }
        let ssrc = packet.ssrc();
        self.candidate = None;
        self.unexpected_type = None;
        let (ingress_config, delay) = (&self.ingress_config, self.config.delay);
        let begin = || {
            let ingress = match delay {
                Some(delay) => {
                    RtpIngress::with_playout(ingress_config, delay.resolve(), ssrc, received)
                }
                None => RtpIngress::new(ingress_config, ssrc, received),
            };
            Box::new(ingress.drop_late_copies())
        };
        let ingress = self.ingress.get_or_insert_with(begin);
        ingress.receive(&incoming, received);
        if ingress.receiver().is_valid() {
            self.from = Some(from);
        }
        self.play_due(received);
    }

    /// Does what is due at `now`.
    ///
    /// # Real-time
    /// As [`RtpInput::receive`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.poll_standby();
        if let Some(bye) = self.bye_at.filter(|bye| now.since(*bye) >= BYE_GRACE) {
            self.bye_at = None;
            if self
                .ingress
                .as_ref()
                .is_some_and(|ingress| ingress.last_received() > bye + BYE_STRAGGLERS)
            {
                self.counts.forged_byes += 1;
            } else {
                self.end_sender(now);
                self.decoder.close(SourceItem::End);
            }
        }
        self.play_due(now);
        if self
            .ingress
            .as_ref()
            .is_some_and(|ingress| now.since(ingress.last_received()) >= FORGET_AFTER)
        {
            self.end_sender(now);
        }
        self.unexpected_type.take_if(|(at, _)| now.since(*at) >= FORGET_AFTER);
        self.flush();
        if self.next_report <= now {
            self.next_report = now + STATE_INTERVAL;
            self.publish_state();
        }
    }

    /// When to call [`RtpInput::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let ingress = self.ingress.as_ref().and_then(|ingress| ingress.poll_timeout());
        let bye = self.bye_at.map(|bye| bye + BYE_GRACE);
        [ingress, bye].into_iter().flatten().fold(self.next_report, Instant::min)
    }

    /// Hands the blocks so far to the station.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn flush(&mut self) {
        self.decoder.flush();
    }

    /// Whether the station is gone, so that nothing will be taken any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.decoder.is_abandoned()
    }

    /// The status.
    #[must_use]
    pub fn state(&self) -> RtpInputStatus {
        let mut counts = self.counts;
        counts.refused = self.refused.total();
        add(&mut counts, &self.previous_counts);
        let unexpected_type = self.unexpected_type.map(|(_, unexpected)| unexpected);
        let mut state = RtpInputStatus { counts, unexpected_type, ..RtpInputStatus::default() };
        if let Some(ingress) = &self.ingress {
            add(&mut state.counts, &counts_of(ingress));
            let stats = ingress.jitter_stats();
            let waits = if self.config.delay.is_some() { stats.delay } else { stats.target };
            (state.jitter, state.wait, state.held) = (stats.jitter, waits, stats.held);
            (state.ssrc, state.from) = (self.from.map(|_| ingress.ssrc()), self.from);
        }
        state
    }

    /// Whether a packet belongs to the current sender or to its successor. Another sender takes
    /// over with two consecutive packets, when the current one has been silent for longer than a
    /// packet lasts.
    fn is_accepted(&mut self, now: Instant, from: SocketAddr, packet: &rtp::RtpPacket<'_>) -> bool {
        let Some(ingress) = &self.ingress else { return true };
        let moved = self.from.is_some_and(|known| known.ip() != from.ip());
        if ingress.ssrc() == packet.ssrc() && !moved {
            return true;
        }
        if now.since(ingress.last_received()) < RESTART_AFTER && self.bye_at.is_none() {
            return false;
        }
        let next = (packet.ssrc(), packet.sequence());
        if self.candidate != Some(next) {
            self.candidate = Some((next.0, next.1.wrapping_add(1)));
            return false;
        }
        self.end_sender(now);
        self.counts.changes += 1;
        true
    }

    fn receive_rtcp(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let known = self.from.is_some_and(|known| known.ip() == from.ip());
        let ssrc = self.ingress.as_ref().map(|ingress| ingress.ssrc());
        let Ok(compound) = CompoundPacket::parse(bytes) else {
            self.counts.other_rtcp += 1;
            return;
        };
        if !known {
            self.counts.other_rtcp += 1;
            return;
        }
        let leaves = compound.packets().any(|part| match part {
            RtcpPacket::Bye(sources) => sources.iter().any(|gone| Some(gone) == ssrc),
            _ => false,
        });
        if leaves {
            self.bye_at.get_or_insert(now);
        }
    }

    /// Decodes the packets that are in order, or due.
    fn play_due(&mut self, now: Instant) {
        let Some(ingress) = &mut self.ingress else { return };
        let (plays, sound, counts) =
            (self.demand == StandbyRequest::Play, &mut self.decoder, &mut self.counts);
        let plays_out = self.config.delay.is_some();
        if plays_out {
            sound.set_due(now);
        }
        loop {
            let turn = ingress.poll_output(now);
            let grown = ingress.take_growth();
            if plays && grown > Span::ZERO {
                sound.conceal_stretch(grown, counts);
            }
            match turn {
                None => return,
                Some(IngressOutput::Missing(missing)) if plays => match missing.cause {
                    GapCause::Shortened => sound.skip_silence(missing.units),
                    GapCause::Silence => sound.fill_silence(missing.units, counts),
                    _ => sound.conceal_missing(missing.units, ingress.following(), counts),
                },
                Some(IngressOutput::Missing(_)) => {}
                Some(IngressOutput::Packet(ready)) => {
                    if plays && !ready.late {
                        let surplus = if plays_out { ingress.surplus() } else { Span::ZERO };
                        let left_out =
                            sound.decode(&ready, ingress.payload(&ready), surplus, counts);
                        if left_out > Span::ZERO {
                            ingress.shorten(left_out);
                        }
                    }
                    ingress.release(ready);
                }
            }
        }
    }

    /// Decodes what is left of the sender; the next one starts anew.
    fn end_sender(&mut self, now: Instant) {
        if let Some(ingress) = &mut self.ingress {
            ingress.finish();
        }
        self.play_due(now);
        if let Some(ingress) = self.ingress.take() {
            add(&mut self.previous_counts, &counts_of(&ingress));
        }
        (self.from, self.bye_at, self.candidate) = (None, None, None);
        self.decoder.restart();
    }

    fn poll_standby(&mut self) {
        let Some(standby) = &mut self.standby else { return };
        standby.report(LinkState::Open);
        let demand = standby.request();
        if demand == StandbyRequest::Play && self.demand != StandbyRequest::Play {
            self.decoder.restart();
        }
        if demand != StandbyRequest::Play {
            self.decoder.discard();
        }
        self.demand = demand;
    }

    fn publish_state(&mut self) {
        let state = self.state();
        self.state.publish(state);
    }
}

impl fmt::Debug for RtpInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("config", &self.config).finish_non_exhaustive()
    }
}

fn counts_of(ingress: &RtpIngress) -> RtpInputCounts {
    let (source, jitter, copies) =
        (ingress.receiver().stats(), ingress.jitter_stats(), ingress.redundancy_counts());
    // The jitter buffer counts a copy as its packet. These counters describe the network: a packet
    // that arrived after its copy counts as received, and other copied packets count as lost.
    let lost = copies.used.saturating_sub(copies.overtaken);
    let known = copies.overtaken + copies.again;
    RtpInputCounts {
        received: jitter.received.saturating_sub(lost + copies.late),
        lost: jitter.lost + lost + copies.late,
        recovered_red: lost,
        late: jitter.late - copies.late,
        duplicates: (source.duplicates + jitter.duplicates).saturating_sub(known),
        reordered: jitter.reordered,
        no_room: ingress.no_room(),
        ..RtpInputCounts::default()
    }
}

fn add(sum: &mut RtpInputCounts, more: &RtpInputCounts) {
    sum.received += more.received;
    sum.lost += more.lost;
    sum.recovered_red += more.recovered_red;
    sum.late += more.late;
    sum.duplicates += more.duplicates;
    sum.reordered += more.reordered;
    sum.no_room += more.no_room;
}

/// The longest playout delay: with packets of a millisecond, the jitter buffer holds no more than
/// twice as much.
pub const MAX_PLAYOUT_DELAY: Span = Span::from_millis(500);

/// The initial delay, when the network is not known yet.
const FIRST_DELAY: Span = Span::from_millis(40);

/// The target share of packets that arrive in time.
const IN_TIME_RATIO: f32 = 0.995;

/// Blocks between a source and its station: a poll of 5 ms fills one, so a third of a second.
pub const RTP_INPUT_BLOCKS: usize = 64;

/// Longer than any packet: after a silence of this length the sender may have restarted.
const RESTART_AFTER: Span = Span::from_millis(250);

/// A sender is forgotten after a silence of this length. Its station has switched away long before.
const FORGET_AFTER: Span = Span::from_secs(5);

/// Packets shortly after a BYE may have been under way; packets after that show that the BYE was
/// forged.
const BYE_STRAGGLERS: Span = Span::from_millis(60);
const BYE_GRACE: Span = Span::from_millis(150);

/// The interval at which the status is published and the station's demand is polled.
const STATE_INTERVAL: Span = Span::from_millis(100);
