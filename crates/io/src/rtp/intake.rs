//! Packets in, blocks out: one source of a station.

mod sound;

use core::fmt;
use std::net::{IpAddr, SocketAddr};

use aulos_core::{Block, ChannelLayout, Instant, SampleRate, Span};
use aulos_engine::source::{BLOCK_SAMPLES, Item};
use aulos_engine::standby::{Keeper, Link, Wish};
use aulos_proto::rtp::jitter::{Cause, Delay};
use aulos_proto::rtp::rtcp::{Compound, Part};
use aulos_proto::rtp::{self, Encoding, Refused};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Pool, Publisher, Reader};

use crate::relay::kind::{Kind, Unread};
use crate::relay::leg::{Leg, Turn};
use crate::relay::{Media, Wishes};
use sound::Sound;

/// The wishes of an [`Intake`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with new and changed")]
pub struct IntakeConfig {
    /// What comes.
    pub media: Media,
    /// How long a packet waits for one before it that is still under way; at most a second.
    pub patience: Span,
    /// What is made up at most for what is missing. Behind a longer hole sound begins anew.
    pub most_made_up: Span,
    /// Only packets from these are taken; all when it is empty.
    pub senders: Vec<IpAddr>,
    /// Channels that Opus is decoded to, 1 or 2: its packets do not say.
    pub opus_channels: u8,
    /// The payload type of packets that carry earlier ones again (RED, RFC 2198), if there are any.
    pub red: Option<u8>,
    /// When packets are handed on: absent, as soon as they are in order, and all waiting is in the
    /// station's input.
    pub delay: Option<PlayoutDelay>,
}

/// By how much later than the fastest packets sound is played, as the network needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the ends of a range")]
pub struct PlayoutDelay {
    /// Never less than this.
    pub least: Span,
    /// Never more than this, [`MAX_PLAYOUT_DELAY`] at most. The delay is fixed where both are the same.
    pub most: Span,
}

impl PlayoutDelay {
    /// As the jitter buffer takes it; it begins in the middle of its usual range.
    fn resolve(self) -> Delay {
        let most = self.most.clamp(Span::ZERO, MAX_PLAYOUT_DELAY);
        let least = self.least.clamp(Span::ZERO, most);
        if least == most {
            return Delay::Fixed(most);
        }
        let first = FIRST_DELAY.clamp(least, most);
        Delay::Adaptive { quantile: IN_TIME, least, most, first }
    }
}

impl IntakeConfig {
    /// Waits for what is late up to 100 ms, and makes up 400 ms at most.
    #[must_use]
    pub const fn new(media: Media) -> Self {
        Self {
            media,
            patience: Span::from_millis(100),
            most_made_up: Span::from_millis(400),
            senders: Vec::new(),
            opus_channels: 2,
            red: None,
            delay: None,
        }
    }
}

/// What an intake has counted, over all senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntakeCounts {
    /// Packets of the source, copies not.
    pub received: u64,
    /// Packets that did not come, as far as is known.
    pub lost: u64,
    /// Of the lost packets, those that later packets carried again (RED).
    pub recovered_red: u64,
    /// Of the lost packets, those that were decoded from what Opus repeats of them.
    pub recovered_fec: u64,
    /// Packets that came when they had been made up for.
    pub late: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets that came behind a later one.
    pub reordered: u64,
    /// Frames that were made up for what was missing.
    pub concealed: u64,
    /// Frames that the sender left out, because they were silent.
    pub left_out: u64,
    /// Of the frames that were made up, those that made the play-out delay longer.
    pub stretched: u64,
    /// Packets that were passed over because more came than could be played in time.
    pub skipped: u64,
    /// Holes so long that nothing was made up for them.
    pub gaps: u64,
    /// Packets of this source that were no payload of its codec.
    pub undecodable: u64,
    /// Packets for which there was no place in line.
    pub no_room: u64,
    /// Frames that the station did not take in time.
    pub overflown: u64,
    /// How often another sender took the place of the one before, or the same began anew.
    pub changes: u64,
    /// Datagrams that are no RTP.
    pub refused: u64,
    /// Packets of other payload types.
    pub other_types: u64,
    /// Packets of others, while the sender is there; and from addresses that are not wanted.
    pub other_senders: u64,
    /// RTCP that could not be read, or told nothing to us.
    pub other_rtcp: u64,
    /// BYEs after which the sender went on.
    pub forged_byes: u64,
}

/// How a source does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntakeState {
    /// Who sends, while somebody does.
    pub from: Option<SocketAddr>,
    /// Its number.
    pub ssrc: Option<u32>,
    /// What happened so far.
    pub counts: IntakeCounts,
    /// The interarrival jitter of RFC 3550.
    pub jitter: Span,
    /// How long what is late is waited for now; where packets are played out, their delay.
    pub wait: Span,
    /// Packets that stand in line behind one that is missing.
    pub held: usize,
}

/// There is no decoder for this encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a fact")]
pub struct CannotDecode(
    /// What it is.
    pub Encoding,
);

impl fmt::Display for CannotDecode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be decoded", self.0)
    }
}

impl core::error::Error for CannotDecode {}

/// What an [`Intake`] fills. It is there before anybody knows what comes.
#[derive(Debug)]
pub struct IntakeLine {
    pool: Pool<Block>,
    items: Producer<Item>,
    state: Publisher<IntakeState>,
    keeper: Option<Keeper>,
}

impl IntakeLine {
    /// A line, its end for the station (a live source), and the one for whoever shows how it goes.
    #[must_use]
    pub fn new() -> (Self, Consumer<Item>, Reader<IntakeState>) {
        let (items, consumer) = ring(INTAKE_BLOCKS + 1);
        let (state, reader) = aulos_rt::latest(IntakeState::default());
        let block =
            || Block::with_capacity(SampleRate::STUDIO, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let pool = Pool::new(INTAKE_BLOCKS, block);
        (Self { pool, items, state, keeper: None }, consumer, reader)
    }

    /// Hears from the station whether it is needed. While it is not, packets are put in order and
    /// thrown away: the port stays open.
    #[must_use]
    pub fn kept(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// The station is gone: nobody will ever take anything.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.items.is_abandoned()
    }

    /// Tells the station whether the source could be opened.
    pub fn tell(&mut self, link: Link) {
        if let Some(keeper) = &mut self.keeper {
            keeper.tell(link);
        }
    }
}

/// A source as whoever has its socket sees it. It is given what came, and asked when
/// [`Intake::poll_timeout`] says so.
pub struct Intake {
    config: IntakeConfig,
    wishes: Wishes,
    leg: Option<Box<Leg>>,
    from: Option<SocketAddr>,
    /// When the sender said BYE.
    bye: Option<Instant>,
    /// The last packet of somebody else: his number, and the sequence number that would be next.
    candidate: Option<(u32, u16)>,
    sound: Sound,
    refused: Refused,
    counts: IntakeCounts,
    /// What the senders before came to.
    before: IntakeCounts,
    keeper: Option<Keeper>,
    wish: Wish,
    state: Publisher<IntakeState>,
    next_look: Instant,
}

impl Intake {
    /// A source of which nothing has come yet. This allocates what its packets need, but for the
    /// places in which they stand in line: those are made with the first of a sender.
    ///
    /// # Errors
    /// [`CannotDecode`].
    pub fn new(config: IntakeConfig, line: IntakeLine, now: Instant) -> Result<Self, CannotDecode> {
        let IntakeLine { pool, items, state, keeper } = line;
        let mut wishes = Wishes::new(config.media, config.media);
        wishes.hold = config.patience;
        wishes.red_from = config.red;
        if let Some(delay) = config.delay {
            // A sender that sends in bursts has twice the delay waiting.
            let most = delay.most.clamp(Span::ZERO, MAX_PLAYOUT_DELAY);
            wishes.hold = most + most;
        }
        let sound = Sound::new(&config, pool, items)?;
        Ok(Self {
            config,
            wishes,
            leg: None,
            from: None,
            bye: None,
            candidate: None,
            sound,
            refused: Refused::default(),
            counts: IntakeCounts::default(),
            before: IntakeCounts::default(),
            keeper,
            wish: Wish::Play,
            state,
            next_look: now,
        })
    }

    /// Takes a datagram that came at `received`. Behind the last one that is there, call
    /// [`Intake::flush`].
    ///
    /// # Real-time
    /// Does not wait; allocates only when a sender begins, or for a payload that is longer than all
    /// before it.
    pub fn receive(&mut self, received: Instant, from: SocketAddr, bytes: &[u8]) {
        if !self.config.senders.is_empty() && !self.config.senders.contains(&from.ip()) {
            self.counts.other_senders += 1;
            return;
        }
        if rtp::is_rtcp(bytes) {
            return self.receive_rtcp(received, from, bytes);
        }
        let packet = match rtp::Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(why) => return self.refused.count(why),
        };
        let incoming = match self.wishes.read(&packet) {
            Ok(incoming) if incoming.kind == Kind::Sound => incoming,
            Err(Unread::Red) => {
                self.counts.undecodable += 1;
                return;
            }
            Ok(_) | Err(Unread::Type) => {
                self.counts.other_types += 1;
                return;
            }
        };
        if !self.is_ours(received, from, &packet) {
            self.counts.other_senders += 1;
            return;
        }
        let ssrc = packet.ssrc();
        self.candidate = None;
        let (wishes, delay) = (&self.wishes, self.config.delay);
        let begin = || {
            let leg = match delay {
                Some(delay) => Leg::playing_out(wishes, delay.resolve(), ssrc, received),
                None => Leg::new(wishes, ssrc, received),
            };
            Box::new(leg.dropping_late_copies())
        };
        let leg = self.leg.get_or_insert_with(begin);
        leg.receive(&incoming, received);
        if leg.receiver().is_valid() {
            self.from = Some(from);
        }
        self.play(received);
    }

    /// Does what is due at `now`.
    ///
    /// # Real-time
    /// As [`Intake::receive`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.listen_to_the_station();
        if let Some(bye) = self.bye.filter(|bye| now.since(*bye) >= BYE_GRACE) {
            self.bye = None;
            if self.leg.as_ref().is_some_and(|leg| leg.heard() > bye + BYE_STRAGGLERS) {
                self.counts.forged_byes += 1;
            } else {
                self.end_sender(now);
                self.sound.close(Item::End);
            }
        }
        self.play(now);
        if self.leg.as_ref().is_some_and(|leg| now.since(leg.heard()) >= GONE) {
            self.end_sender(now);
        }
        self.flush();
        if self.next_look <= now {
            self.next_look = now + LOOK;
            self.tell();
        }
    }

    /// When to call [`Intake::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let leg = self.leg.as_ref().and_then(|leg| leg.poll_timeout());
        let bye = self.bye.map(|bye| bye + BYE_GRACE);
        [leg, bye].into_iter().flatten().fold(self.next_look, Instant::min)
    }

    /// Hands over what has come so far.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn flush(&mut self) {
        self.sound.flush();
    }

    /// The station is gone: nobody will ever take anything again.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.sound.is_abandoned()
    }

    /// How it does.
    #[must_use]
    pub fn state(&self) -> IntakeState {
        let mut counts = self.counts;
        counts.refused = self.refused.total();
        add(&mut counts, &self.before);
        let mut state = IntakeState { counts, ..IntakeState::default() };
        if let Some(leg) = &self.leg {
            add(&mut state.counts, &counts_of(leg));
            let line = leg.line();
            let waits = if self.config.delay.is_some() { line.delay } else { line.target };
            (state.jitter, state.wait, state.held) = (line.jitter, waits, line.held);
            (state.ssrc, state.from) = (self.from.map(|_| leg.ssrc()), self.from);
        }
        state
    }

    /// Whether a packet is of the sender who is there, or of one who takes his place. Another one
    /// does when the first has been silent for longer than a packet lasts, and he sends two in a row.
    fn is_ours(&mut self, now: Instant, from: SocketAddr, packet: &rtp::Packet<'_>) -> bool {
        let Some(leg) = &self.leg else { return true };
        let moved = self.from.is_some_and(|known| known.ip() != from.ip());
        if leg.ssrc() == packet.ssrc() && !moved {
            return true;
        }
        if now.since(leg.heard()) < STALE && self.bye.is_none() {
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
        let ssrc = self.leg.as_ref().map(|leg| leg.ssrc());
        let Ok(compound) = Compound::parse(bytes) else {
            self.counts.other_rtcp += 1;
            return;
        };
        if !known {
            self.counts.other_rtcp += 1;
            return;
        }
        let leaves = compound.parts().any(|part| match part {
            Part::Bye(sources) => sources.iter().any(|gone| Some(gone) == ssrc),
            _ => false,
        });
        if leaves {
            self.bye.get_or_insert(now);
        }
    }

    /// Plays what is in order by now, or what is due.
    fn play(&mut self, now: Instant) {
        let Some(leg) = &mut self.leg else { return };
        let (plays, sound, counts) = (self.wish == Wish::Play, &mut self.sound, &mut self.counts);
        let plays_out = self.config.delay.is_some();
        if plays_out {
            sound.due(now);
        }
        loop {
            let turn = leg.turn(now);
            let grown = leg.take_growth();
            if plays && grown > Span::ZERO {
                sound.stretch(grown, counts);
            }
            match turn {
                None => return,
                Some(Turn::Missing(missing)) if plays => match missing.cause {
                    Cause::Shortened => sound.pass_over(missing.units),
                    Cause::Silence => sound.fill_silence(missing.units, counts),
                    _ => sound.miss(missing.units, leg.following(), counts),
                },
                Some(Turn::Missing(_)) => {}
                Some(Turn::Packet(ready)) => {
                    if plays && !ready.late {
                        let surplus = if plays_out { leg.surplus() } else { Span::ZERO };
                        let left_out = sound.play(&ready, leg.payload(&ready), surplus, counts);
                        if left_out > Span::ZERO {
                            leg.shortened(left_out);
                        }
                    }
                    leg.sent(ready);
                }
            }
        }
    }

    /// What is left of the sender is played, and the next one begins anew.
    fn end_sender(&mut self, now: Instant) {
        if let Some(leg) = &mut self.leg {
            leg.finish();
        }
        self.play(now);
        if let Some(leg) = self.leg.take() {
            add(&mut self.before, &counts_of(&leg));
        }
        (self.from, self.bye, self.candidate) = (None, None, None);
        self.sound.restart();
    }

    fn listen_to_the_station(&mut self) {
        let Some(keeper) = &mut self.keeper else { return };
        keeper.tell(Link::Open);
        let wish = keeper.wish();
        if wish == Wish::Play && self.wish != Wish::Play {
            self.sound.restart();
        }
        if wish != Wish::Play {
            self.sound.discard();
        }
        self.wish = wish;
    }

    fn tell(&mut self) {
        let state = self.state();
        self.state.publish(state);
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("config", &self.config).finish_non_exhaustive()
    }
}

fn counts_of(leg: &Leg) -> IntakeCounts {
    let (source, line, copies) = (leg.receiver().tally(), leg.line(), leg.copies());
    // In line a copy counts as its packet. Here it is the network that counts: a packet whose copy
    // came before itself has arrived, and all others that have a copy are lost.
    let lost = copies.used.saturating_sub(copies.overtaken);
    let known = copies.overtaken + copies.again;
    IntakeCounts {
        received: line.received.saturating_sub(lost + copies.late),
        lost: line.lost + lost + copies.late,
        recovered_red: lost,
        late: line.late - copies.late,
        duplicates: (source.duplicates + line.duplicates).saturating_sub(known),
        reordered: line.reordered,
        no_room: leg.no_room(),
        ..IntakeCounts::default()
    }
}

fn add(sum: &mut IntakeCounts, more: &IntakeCounts) {
    sum.received += more.received;
    sum.lost += more.lost;
    sum.recovered_red += more.recovered_red;
    sum.late += more.late;
    sum.duplicates += more.duplicates;
    sum.reordered += more.reordered;
    sum.no_room += more.no_room;
}

/// The longest play-out delay: with packets of a millisecond twice as much is all that has room in
/// line.
pub const MAX_PLAYOUT_DELAY: Span = Span::from_millis(500);

/// The delay to begin with, when nothing is known of the network.
const FIRST_DELAY: Span = Span::from_millis(40);

/// The share of the packets that is to come in time.
const IN_TIME: f32 = 0.995;

/// Blocks between a source and its station: a look of 5 ms fills one, so a third of a second.
pub const INTAKE_BLOCKS: usize = 64;

/// Nobody's packets are so long: a sender who is silent for so long may have begun anew.
const STALE: Span = Span::from_millis(250);

/// A sender of whom nothing came for so long is forgotten. His station has gone elsewhere long before.
const GONE: Span = Span::from_secs(5);

/// What comes behind a BYE may have been on its way; behind that it says that the BYE was not the
/// sender's own.
const BYE_STRAGGLERS: Span = Span::from_millis(60);
const BYE_GRACE: Span = Span::from_millis(150);

/// How often the state is told, and the station asked what it wishes.
const LOOK: Span = Span::from_millis(100);
