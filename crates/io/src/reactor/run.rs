//! The loop of one reactor thread.

mod accept;
mod entity;
mod health;
mod stations;

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::snap::wire::Hello;
use aulos_rt::Publisher;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::connection_limiter::{ConnectionLimiter, Limits};
use super::greeting::{Greeting, Greetings};
use super::peer::{Peer, Said};
use super::stations::{MAINTENANCE, Tap};
use super::stats::ReactorStats;
use super::tls::{Door, MediaSocket};
use super::web::{ListenWish, Listener};
use super::wheel::Wheel;
use super::{Command, Event, EventSink, Inbox, LeaveCause, Mailbox, SessionId};
use crate::SystemClock;
use crate::clock::timespec;
use crate::feed::{Feeder, Next};
use crate::slab::Slab;
use accept::prepare;
use entity::Entity;

/// Everything that one thread serves.
pub(super) struct Reactor {
    index: usize,
    mailboxes: Arc<[Mailbox]>,
    inbox: Inbox,
    events: Arc<dyn EventSink>,
    /// What the other side had no room for: at most two events a session.
    untold: VecDeque<Event>,
    epoll: OwnedFd,
    entities: Slab<Entity>,
    greetings: Greetings,
    connection_limiter: ConnectionLimiter,
    door: Door,
    /// Handshakes that may go on before others are looked at.
    handshakes: usize,
    taps: Vec<Tap>,
    wheel: Wheel,
    feeders: Vec<(Instant, Box<dyn Feeder>)>,
    acceptors_asleep: Option<Instant>,
    next_drain: Instant,
    next_maintenance: Instant,
    next_mailbox: usize,
    /// Who is looked at next, of everybody.
    next_look: usize,
    /// Those who are being brought up to date, in the order of their next slices.
    behind: VecDeque<u64>,
    /// Somebody has come or said hello since the last look.
    fresh: bool,
    scratch: Vec<u8>,
    said: Vec<Said>,
    due: Vec<u64>,
    /// Everybody, while they are looked after.
    tokens: Vec<u64>,
    stats: ReactorStats,
    published: Publisher<ReactorStats>,
    stopped: bool,
}

impl Reactor {
    pub(super) fn new(
        index: usize,
        mailboxes: Arc<[Mailbox]>,
        inbox: Inbox,
        events: Arc<dyn EventSink>,
        published: Publisher<ReactorStats>,
    ) -> io::Result<Self> {
        let now = SystemClock::now();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox, EventData::new_u64(INBOX), EventFlags::IN)?;
        Ok(Self {
            index,
            mailboxes,
            inbox,
            events,
            untold: VecDeque::new(),
            epoll,
            entities: Slab::new(),
            greetings: Greetings::default(),
            connection_limiter: ConnectionLimiter::new(Limits::default()),
            door: Door::default(),
            handshakes: 0,
            taps: Vec::new(),
            wheel: Wheel::new(now),
            feeders: Vec::new(),
            acceptors_asleep: None,
            next_drain: now,
            next_maintenance: now,
            next_mailbox: index,
            next_look: 0,
            behind: VecDeque::new(),
            fresh: false,
            scratch: vec![0; 16 * 1_024],
            said: Vec::new(),
            due: Vec::new(),
            tokens: Vec::new(),
            stats: ReactorStats::default(),
            published,
            stopped: false,
        })
    }

    pub(super) fn run(mut self) {
        while !self.stopped {
            self.look(self.poll_timeout().since(SystemClock::now()));
            self.handle_timeout(SystemClock::now());
        }
    }

    /// Waits for sockets at most this long. Whoever has something to say is heard first, so that
    /// no question of the time waits for a lot of sending; then those who are being brought up to
    /// date get some slices, in turns.
    fn look(&mut self, wait: Span) {
        self.tell_untold();
        let wait = if self.behind.is_empty() { wait } else { Span::ZERO };
        let wait = timespec(u64::try_from(wait.as_nanos()).unwrap_or(0));
        let mut room = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        // An interrupted wait is an empty one.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut room[..], Some(&wait)) else { return };
        self.handshakes = MAX_HANDSHAKES;
        for event in &*ready {
            self.hear_ready(event.data.u64(), event.flags);
        }
        // While others still come, history waits: who has its first chunks has a while to play, and
        // who has none has nothing.
        let slices = if self.fresh { FEW_SLICES } else { MAX_SLICES };
        for _ in 0..slices {
            let Some(token) = self.behind.pop_front() else { break };
            if let Some(queued) = self.entities.get_mut(token).and_then(Entity::queued) {
                *queued = false;
                self.pump(token, SLICE_BYTES, false);
            }
        }
        self.fresh = false;
        self.tell_untold();
    }

    fn poll_timeout(&self) -> Instant {
        let feeders = self.feeders.iter().map(|(at, _)| *at).min();
        let idle = self.next_drain.min(self.next_maintenance);
        [self.wheel.poll_timeout(), feeders, self.acceptors_asleep]
            .into_iter()
            .flatten()
            .fold(idle, Instant::min)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.wheel.take_due(now, &mut self.due);
        if now >= self.next_drain || !self.due.is_empty() {
            self.taps.iter_mut().for_each(Tap::drain);
            self.next_drain = now + DRAIN;
        }
        let mut due = core::mem::take(&mut self.due);
        for (served, token) in due.drain(..).enumerate() {
            if served % IN_ONE_GO == IN_ONE_GO - 1 {
                self.look(Span::ZERO);
            }
            self.pump(token, usize::MAX, true);
        }
        self.due = due;
        self.feeders.retain_mut(|(at, feeder)| {
            if *at > now {
                return true;
            }
            match feeder.tick(now) {
                Next::Soon => *at = now + SOON,
                Next::Later => *at = now + LATER,
                Next::Never => return false,
            }
            true
        });
        if self.acceptors_asleep.is_some_and(|at| at <= now) {
            self.wake_acceptors();
        }
        if now >= self.next_maintenance {
            self.next_maintenance = now + MAINTENANCE;
            self.maintain(now);
        }
    }

    fn hear_ready(&mut self, token: u64, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.queue(token);
        }
        let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        if token == INBOX {
            self.read_inbox();
            return;
        }
        match self.entities.get_mut(token) {
            Some(Entity::Acceptor(_)) => self.accept(token),
            Some(Entity::Peer(peer)) if readable => {
                if flags.contains(EventFlags::ERR) {
                    peer.line.read_completions();
                }
                self.receive(token);
            }
            Some(Entity::Web(listener)) if readable => {
                if let Err(cause) = listener.receive(&mut self.scratch) {
                    self.close(token, cause);
                }
            }
            _ => {}
        }
    }

    fn read_inbox(&mut self) {
        // To its end: only then does the next command wake this thread.
        while let Ok(command) = self.inbox.try_recv() {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        let now = SystemClock::now();
        match command {
            Command::Station(station) => {
                let (channel, chunks) = *station;
                self.taps.push(Tap::new(channel, chunks));
            }
            Command::ReplaceStation(number, station) => {
                let (channel, chunks) = *station;
                self.replace_station(number, channel, chunks);
            }
            Command::RemoveStation(station) => self.remove_station(station),
            Command::FlushStation(station) => {
                if let Some(tap) = self.taps.get_mut(station) {
                    tap.drain();
                    tap.log.clear();
                    self.join_all(station);
                }
            }
            Command::Listen(listener) => {
                // What it accepts inherits these: a call each for every client of a house that
                // comes back at once would be a third of the work of letting it in. Should one of
                // them fail, clients are served a little less promptly.
                drop(prepare(listener.as_fd()));
                let token = self.entities.insert_with(|_| Entity::Acceptor(listener));
                self.watch(token, EventFlags::IN);
            }
            Command::Snapcast(socket, address, permit) => {
                let phase = self.wheel.next_phase();
                let peer = Box::new(Peer::new(socket, address, permit, phase, now));
                let token = self.entities.insert_with(|_| Entity::Peer(peer));
                self.watch(token, EventFlags::IN);
            }
            Command::WebSocket(socket, read) => self.add_web(*socket, &read),
            Command::Web(listener, station) => self.add_listener(*listener, station, now),
            Command::Title(station, title) => {
                if let Some(tap) = self.taps.get_mut(station) {
                    tap.title = title;
                }
            }
            Command::Door(door) => {
                self.connection_limiter.set_limits(door.limits);
                self.door = *door;
            }
            Command::Feeder(feeder) => self.feeders.push((now, feeder)),
            Command::Settings(session, settings) => {
                self.command(session, |peer, _| peer.set(settings));
            }
            Command::Play(session, station) => {
                self.command(session, |peer, taps| {
                    let tap = taps.get_mut(station).ok_or(LeaveCause::Kicked)?;
                    tap.drain();
                    peer.join(station, tap)
                });
                self.pump(session.token(), SLICE_BYTES, false);
            }
            Command::Refuse(session, refusal) => {
                self.command(session, |peer, _| peer.refuse(refusal));
            }
            Command::Kick(session) => self.close(session.token(), LeaveCause::Kicked),
            Command::Greet(client, greeting) => self.greetings.set(client, greeting),
            Command::Stop => self.stopped = true,
        }
    }

    fn add_listener(
        &mut self,
        (socket, wish): (MediaSocket, ListenWish),
        station: usize,
        now: Instant,
    ) {
        let Some(tap) = self.taps.get_mut(station) else { return };
        tap.drain();
        let plain = &socket.socket;
        if plain.set_nonblocking(true).and_then(|()| prepare(plain.as_fd())).is_err() {
            return;
        }
        let phase = self.wheel.next_phase();
        let listener = Box::new(Listener::new(socket, wish, station, tap, phase, now));
        self.stats.listeners += u64::from(!listener.is_pushed());
        let token = self.entities.insert_with(|_| Entity::Web(listener));
        self.watch(token, EventFlags::IN | EventFlags::OUT);
    }

    fn add_web(&mut self, socket: MediaSocket, read: &[u8]) {
        let plain = &socket.socket;
        if plain.set_nonblocking(true).and_then(|()| prepare(plain.as_fd())).is_err() {
            return;
        }
        self.stats.accepted += 1;
        let is_tls = socket.is_tls();
        let phase = self.wheel.next_phase();
        let mut peer = Box::new(Peer::web(socket, phase, SystemClock::now()));
        let mut said = Vec::new();
        // A client may say hello right behind its request.
        let result = peer.take(read, &mut said);
        let token = self.entities.insert_with(|_| Entity::Peer(peer));
        self.watch(token, EventFlags::IN);
        said.into_iter().for_each(|word| self.hear(token, word));
        match result {
            // What TLS has decrypted already, the kernel does not tell of.
            Ok(()) if is_tls => self.receive(token),
            Ok(()) => {}
            Err(cause) => self.close(token, cause),
        }
    }

    fn receive(&mut self, token: u64) {
        // A peer may have more to say than one read holds, but not so much that others wait.
        for _ in 0..MAX_READS {
            let Some(Entity::Peer(peer)) = self.entities.get_mut(token) else { return };
            // A handshake takes a third of a millisecond. While a crowd is at it, the rest of them
            // stays unread until everybody else has had a turn: the kernel tells of them again.
            let handshaking = peer.line.is_handshaking();
            if self.handshakes == 0 && (handshaking || peer.line.is_new()) {
                break;
            }
            let result = peer.receive(&mut self.scratch, &self.door, &mut self.said);
            if handshaking || peer.line.is_handshaking() {
                self.handshakes -= 1;
                self.stats.tls_sessions += u64::from(!peer.line.is_handshaking());
            }
            let mut said = core::mem::take(&mut self.said);
            for word in said.drain(..) {
                self.hear(token, word);
            }
            self.said = said;
            match result {
                Ok(true) => {}
                Ok(false) => break,
                Err(cause) => return self.close(token, cause),
            }
        }
        self.update_interest(token);
    }

    fn hear(&mut self, token: u64, said: Said) {
        let session = SessionId::new(self.index, token);
        let Some(Entity::Peer(peer)) = self.entities.get_mut(token) else { return };
        match said {
            Said::ClientInfo(info) => self.tell(Event::ClientInfo { session, info }),
            Said::Hello(hello) => {
                peer.named = true;
                self.fresh = true;
                self.stats.sessions += 1;
                let (address, vouched) = (peer.address, peer.is_vouched());
                let greeting = self.greeting_for(&hello);
                // Told first: should the answer find the peer gone, its leaving comes after.
                self.tell(Event::Hello { session, hello, address, vouched, answered: greeting });
                if let Some(greeting) = greeting {
                    self.command(session, |peer, taps| match taps.get(greeting.station) {
                        Some(tap) => peer.welcome(&greeting, tap),
                        None => Ok(()),
                    });
                    self.pump(token, FIRST_SLICE_BYTES, false);
                }
            }
        }
    }

    /// What can be said to a client without asking anybody.
    fn greeting_for(&mut self, hello: &Hello) -> Option<Greeting> {
        let greeting = self.greetings.of(&hello.client_id())?;
        self.taps.get_mut(greeting.station)?.drain();
        Some(greeting)
    }

    /// Lets a peer do as it is told, if it is still there.
    fn command(
        &mut self,
        session: SessionId,
        act: impl FnOnce(&mut Peer, &mut [Tap]) -> Result<(), LeaveCause>,
    ) {
        let token = session.token();
        let Some(Entity::Peer(peer)) = self.entities.get_mut(token) else { return };
        match act(peer, &mut self.taps) {
            Ok(()) => self.update_interest(token),
            Err(cause) => self.close(token, cause),
        }
    }

    /// Sends to one peer what it is due; `on_turn` when the wheel has called it.
    fn pump(&mut self, token: u64, limit: usize, on_turn: bool) {
        let now = SystemClock::now();
        let (result, wait, phase, scheduled) = match self.entities.get_mut(token) {
            Some(Entity::Peer(peer)) => {
                let tap = peer.station.and_then(|station| self.taps.get(station));
                let (before, lagged) = (peer.chunks, peer.lagged);
                let result = peer.pump(tap, now, limit);
                self.stats.chunks_sent += peer.chunks - before;
                self.stats.chunks_lagged += peer.lagged - lagged;
                (result, peer.wait_ticks(tap), peer.phase, &mut peer.scheduled)
            }
            Some(Entity::Web(listener)) => {
                let Some(tap) = self.taps.get(listener.station) else { return };
                let before = listener.chunks;
                let result = listener.pump(tap, now, limit);
                self.stats.chunks_sent += listener.chunks - before;
                (result, WEB_WAIT_TICKS, listener.phase, &mut listener.scheduled)
            }
            _ => return,
        };
        *scheduled &= !on_turn;
        match result {
            // Once it has caught up, the wheel calls it.
            Ok(true) if !*scheduled => {
                *scheduled = true;
                self.wheel.add(token, phase, wait);
            }
            Ok(_) => {}
            Err(cause) => return self.close(token, cause),
        }
        self.update_interest(token);
    }

    /// Puts who can take more in the line for slices; for who cannot, asks to be told when it can.
    fn update_interest(&mut self, token: u64) {
        let Some(entity) = self.entities.get_mut(token) else { return };
        let (blocked, more, watches_out) = match entity {
            Entity::Peer(peer) => (peer.blocked, peer.catching_up, &mut peer.watches_out),
            Entity::Web(listener) => (listener.blocked, false, &mut listener.watches_out),
            Entity::Acceptor(_) => return,
        };
        let changed = core::mem::replace(watches_out, blocked) != blocked;
        if more && !blocked {
            self.queue(token);
        }
        if changed {
            let out = if blocked { EventFlags::OUT } else { EventFlags::empty() };
            self.modify(token, EventFlags::IN | out);
        }
    }

    /// Puts somebody in the line for slices, once.
    fn queue(&mut self, token: u64) {
        if let Some(queued) = self.entities.get_mut(token).and_then(Entity::queued)
            && !core::mem::replace(queued, true)
        {
            self.behind.push_back(token);
        }
    }

    /// What is told goes out when the look is over: waking the other side for each of a crowd would
    /// take the core that the crowd is answered on.
    fn tell(&mut self, event: Event) {
        self.untold.push_back(event);
    }

    fn tell_untold(&mut self) {
        while let Some(event) = self.untold.pop_front() {
            if let Err(event) = self.events.event(event) {
                self.untold.push_front(event);
                return;
            }
        }
    }

    fn maintain(&mut self, now: Instant) {
        self.tell_untold();
        let mut tokens = core::mem::take(&mut self.tokens);
        tokens.extend(self.entities.tokens());
        for &token in &tokens {
            let result = match self.entities.get_mut(token) {
                Some(Entity::Peer(peer)) => {
                    self.stats.tally(peer.line.take_tally());
                    let tap = peer.station.and_then(|station| self.taps.get(station));
                    peer.maintain(tap, now)
                }
                Some(Entity::Web(listener)) => {
                    self.stats.tally(listener.take_tally());
                    listener.maintain(now)
                }
                _ => Ok(()),
            };
            if let Err(cause) = result {
                self.close(token, cause);
            }
        }
        self.look_at_some(&tokens, now);
        tokens.clear();
        self.tokens = tokens;
        self.published.publish(self.stats);
    }

    fn close(&mut self, token: u64, cause: LeaveCause) {
        let Some(mut entity) = self.entities.remove(token) else { return };
        self.stats.tally(entity.take_tally());
        self.stats.count(cause);
        match entity {
            Entity::Peer(peer) if peer.named => {
                self.stats.sessions -= 1;
                let session = SessionId::new(self.index, token);
                self.tell(Event::Left { session, cause });
            }
            Entity::Web(listener) => {
                self.stats.listeners -= u64::from(!listener.is_pushed());
                listener.end(cause);
            }
            _ => {}
        }
        self.published.publish(self.stats);
    }

    fn watch(&mut self, token: u64, flags: EventFlags) {
        let Some(entity) = self.entities.get_mut(token) else { return };
        if epoll::add(&self.epoll, entity.fd(), EventData::new_u64(token), flags).is_err() {
            self.close(token, LeaveCause::Network);
        }
    }

    fn modify(&mut self, token: u64, flags: EventFlags) {
        let Some(entity) = self.entities.get_mut(token) else { return };
        // The descriptor is in there, so this cannot fail; a peer that were lost here would be
        // found by its time-out.
        let _ = epoll::modify(&self.epoll, entity.fd(), EventData::new_u64(token), flags);
    }
}

/// The inbox's token; tokens of entities never reach it.
const INBOX: u64 = u64::MAX;
const MAX_EVENTS: usize = 256;
const MAX_READS: usize = 4;

/// How often chunks are taken from the rings when nobody is due: the rings hold much more.
const DRAIN: Span = Span::from_millis(200);

/// How often feeders are looked at while sound flows, and while none does.
const SOON: Span = Span::from_millis(10);
const LATER: Span = Span::from_millis(50);

/// History goes out in slices of about this size, the next when the kernel has sent the last; the
/// first one is short, so that a crowd that comes at once is quickly answered.
const SLICE_BYTES: usize = 16 * 1_024;
const FIRST_SLICE_BYTES: usize = 2 * 1_024;

/// Slices between two looks at who has something to say, and while a crowd comes in.
const MAX_SLICES: usize = 16;
const FEW_SLICES: usize = 1;

/// Sessions that are sent to between two such looks: some 100 us.
pub(super) const IN_ONE_GO: usize = 8;

/// Steps of handshakes between two looks: some two milliseconds.
const MAX_HANDSHAKES: usize = 8;

/// Browsers buffer for themselves: ten times a second is plenty.
const WEB_WAIT_TICKS: usize = 20;
