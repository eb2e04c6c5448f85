//! An RTP source of a station: packets in, blocks out.

mod config;
mod packet_decoder;
mod status;
mod successor;

use core::fmt;
use core::net::SocketAddr;

use aulos_core::{Block, ChannelLayout, Instant, SampleRate, Span};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_engine::standby::{LinkState, StandbyHandle, StandbyRequest};
use aulos_proto::rtp::jitter::GapCause;
use aulos_proto::rtp::rtcp::{CompoundPacket, RtcpPacket};
use aulos_proto::rtp::{self, RtpErrorCounts};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, LatestReader, Pool};

pub use config::{MAX_PLAYOUT_DELAY, PlayoutDelay, RtpInputConfig};
pub use packet_decoder::UnsupportedEncoding;
pub use status::{RtpInputCounts, RtpInputStatus, UnexpectedPayloadType};

use super::receive::RtpReceiveConfig;
use super::receive::ingress::{IngressOutput, RtpIngress};
use super::receive::payload::{IgnoreReason, PayloadKind};
use packet_decoder::PacketDecoder;
use successor::SuccessorQueue;

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
    receive_config: RtpReceiveConfig,
    ingress: Option<Box<RtpIngress>>,
    from: Option<SocketAddr>,
    /// When the sender sent a BYE.
    bye_at: Option<Instant>,
    /// What another sender has sent since the last packet of the current one.
    successor: SuccessorQueue,
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
        let mut receive_config = RtpReceiveConfig::new(config.media, config.max_wait);
        receive_config.red_type = config.red_payload_type;
        if let Some(delay) = config.delay {
            // With a sender that sends in bursts, packets of twice the delay are waiting.
            let most = delay.max.clamp(Span::ZERO, MAX_PLAYOUT_DELAY);
            receive_config.reorder_delay = most + most;
        }
        let sound = PacketDecoder::new(&config, pool, items)?;
        Ok(Self {
            config,
            receive_config,
            ingress: None,
            from: None,
            bye_at: None,
            successor: SuccessorQueue::default(),
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
    /// Does not wait; allocates only when a sender starts, or for a payload or another sender's
    /// packet that is longer than all before it.
    pub fn handle_packet(&mut self, received: Instant, from: SocketAddr, bytes: &[u8]) {
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
        let incoming = match self.receive_config.parse(&packet) {
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
            let (ssrc, sequence) = (packet.ssrc(), packet.sequence());
            self.counts.other_senders += self.successor.hold(ssrc, sequence, received, bytes);
            return;
        }
        let ssrc = packet.ssrc();
        self.counts.other_senders += self.successor.clear();
        self.unexpected_type = None;
        let (receive_config, delay) = (&self.receive_config, self.config.delay);
        let begin = || {
            let ingress = match delay {
                Some(delay) => {
                    RtpIngress::with_playout(receive_config, delay.resolve(), ssrc, received)
                }
                None => RtpIngress::new(receive_config, ssrc, received),
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
    /// As [`RtpInput::handle_packet`].
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
        counts.codec_panics = self.decoder.codec_panics();
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
    /// packet lasts: for longer than its own packets if the other one sends from its socket.
    fn is_accepted(&mut self, now: Instant, from: SocketAddr, packet: &rtp::RtpPacket<'_>) -> bool {
        let Some(ingress) = &self.ingress else { return true };
        let moved = self.from.is_some_and(|known| known.ip() != from.ip());
        if ingress.ssrc() == packet.ssrc() && !moved {
            return true;
        }
        let pause = match self.from == Some(from) {
            true => (ingress.packet_span() * 3 / 2).clamp(MIN_RESTART_PAUSE, RESTART_AFTER),
            false => RESTART_AFTER,
        };
        let is_silent = now.since(ingress.last_received()) >= pause || self.bye_at.is_some();
        if !is_silent || !self.successor.is_continued_by(packet.ssrc(), packet.sequence()) {
            return false;
        }
        let mut successor = core::mem::take(&mut self.successor);
        self.end_sender(now);
        self.counts.changes += 1;
        for (received, bytes) in successor.packets() {
            self.handle_packet(received, from, bytes);
        }
        // Its memory is used again.
        successor.clear();
        self.successor = successor;
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
                    GapCause::Shortened => sound.skip_silence(missing.ticks),
                    GapCause::Silence => sound.fill_silence(missing.ticks, counts),
                    _ => sound.conceal_missing(missing.ticks, ingress.following(), counts),
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
        (self.from, self.bye_at) = (None, None);
        self.counts.other_senders += self.successor.clear();
        self.decoder.restart();
    }

    fn poll_standby(&mut self) {
        let Some(standby) = &mut self.standby else { return };
        standby.report(LinkState::Healthy);
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

/// Blocks between a source and its station: a poll of 5 ms fills one, so a third of a second.
pub const RTP_INPUT_BLOCKS: usize = 64;

/// Longer than any packet: after a silence of this length the sender may have restarted.
const RESTART_AFTER: Span = Span::from_millis(250);

/// Longer than usual jitter: packets of a sender and of its successor may change places.
const MIN_RESTART_PAUSE: Span = Span::from_millis(30);

/// A sender is forgotten after a silence of this length. Its station has switched away long before.
const FORGET_AFTER: Span = Span::from_secs(5);

/// Packets shortly after a BYE may have been under way; packets after that show that the BYE was
/// forged.
const BYE_STRAGGLERS: Span = Span::from_millis(60);
const BYE_GRACE: Span = Span::from_millis(150);

/// The interval at which the status is published and the station's demand is polled.
const STATE_INTERVAL: Span = Span::from_millis(100);
