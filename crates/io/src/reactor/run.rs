//! The event loop of one reactor thread.

mod accept;
mod entity;
mod health;
mod moves;
mod socket;
mod stations;
mod upgraded;

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::snap::wire::Hello;
use aulos_rt::LatestPublisher;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::connection_limiter::{AddressLimits, AddressPermit, ConnectionLimiter};
use super::greeting::{Greeting, GreetingTable};
use super::mailbox::{Inbox, Mailbox, ReactorCommand};
use super::moves::Continuation;
use super::peer::{Peer, PeerEvent};
use super::send_wheel::SendWheel;
use super::srt_push::SrtPush;
use super::stations::{MAINTENANCE, ReactorStation};
use super::stats::ReactorStats;
use super::tls::{ListenPolicy, MediaSocket};
use super::web::{ListenerOptions, WebListener};
use super::{EventSink, ReactorEvent, SessionEndCause, SessionId};
use crate::SystemClock;
use crate::clock::timespec;
use crate::feed::{Feeder, NextPoll};
use crate::slab::Slab;
use entity::ReactorEntity;
use socket::configure_socket;

/// Everything that one thread serves.
pub(super) struct Reactor {
    index: usize,
    mailboxes: Arc<[Mailbox]>,
    inbox: Inbox,
    events: Arc<dyn EventSink>,
    /// Events for which the sink had no room: at most two per session.
    pending_events: VecDeque<ReactorEvent>,
    epoll: OwnedFd,
    entities: Slab<ReactorEntity>,
    greetings: GreetingTable,
    connection_limiter: ConnectionLimiter,
    listen_policy: ListenPolicy,
    /// Handshake steps left in this poll.
    handshakes: usize,
    stations: Vec<ReactorStation>,
    wheel: SendWheel,
    feeders: Vec<(Instant, Box<dyn Feeder>)>,
    srt_pushes: Vec<SrtPush>,
    acceptors_paused_until: Option<Instant>,
    next_drain: Instant,
    next_maintenance: Instant,
    next_mailbox: usize,
    /// The position of the next health check among all sessions.
    next_health_check: usize,
    /// Sessions that receive history, in the order of their next slices.
    catch_up_queue: VecDeque<u64>,
    /// Peers that continue on another rendition, and until when they are looked after between their
    /// turns.
    moving: Vec<(u64, Instant)>,
    next_move: Instant,
    /// A peer has connected or sent its Hello since the last poll.
    has_new_peers: bool,
    scratch: Vec<u8>,
    peer_events: Vec<PeerEvent>,
    due: Vec<u64>,
    /// All tokens, during maintenance.
    tokens: Vec<u64>,
    stats: ReactorStats,
    published: LatestPublisher<ReactorStats>,
    stopped: bool,
}

impl Reactor {
    pub(super) fn new(
        index: usize,
        mailboxes: Arc<[Mailbox]>,
        inbox: Inbox,
        events: Arc<dyn EventSink>,
        published: LatestPublisher<ReactorStats>,
    ) -> io::Result<Self> {
        let now = SystemClock::now();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox, EventData::new_u64(INBOX), EventFlags::IN)?;
        Ok(Self {
            index,
            mailboxes,
            inbox,
            events,
            pending_events: VecDeque::new(),
            epoll,
            entities: Slab::new(),
            greetings: GreetingTable::default(),
            connection_limiter: ConnectionLimiter::new(AddressLimits::default()),
            listen_policy: ListenPolicy::default(),
            handshakes: 0,
            stations: Vec::new(),
            wheel: SendWheel::new(now),
            feeders: Vec::new(),
            srt_pushes: Vec::new(),
            acceptors_paused_until: None,
            next_drain: now,
            next_maintenance: now,
            next_mailbox: index,
            next_health_check: 0,
            catch_up_queue: VecDeque::new(),
            moving: Vec::new(),
            next_move: now,
            has_new_peers: false,
            scratch: vec![0; 16 * 1_024],
            peer_events: Vec::new(),
            due: Vec::new(),
            tokens: Vec::new(),
            stats: ReactorStats::default(),
            published,
            stopped: false,
        })
    }

    pub(super) fn run(mut self) {
        while !self.stopped {
            self.poll(self.poll_timeout().since(SystemClock::now()));
            self.handle_timeout(SystemClock::now());
        }
    }

    /// Waits for sockets for at most `wait`. Readable sockets are served first, so that no Time
    /// request waits for a long run of sends; then sessions that are catching up get some slices,
    /// in turn.
    fn poll(&mut self, wait: Span) {
        self.flush_events();
        let wait = if self.catch_up_queue.is_empty() { wait } else { Span::ZERO };
        let wait = timespec(u64::try_from(wait.as_nanos()).unwrap_or(0));
        let mut room = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        // An interrupted wait counts as an empty one.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut room[..], Some(&wait)) else { return };
        self.handshakes = MAX_HANDSHAKES;
        for event in &*ready {
            self.handle_ready(event.data.u64(), event.flags);
        }
        // While clients are still connecting, history waits: a client with its first chunks can
        // play for a while, and a client without chunks cannot.
        let slices = if self.has_new_peers { SLICES_WITH_NEW_PEERS } else { MAX_SLICES };
        for _ in 0..slices {
            let Some(token) = self.catch_up_queue.pop_front() else { break };
            if let Some(queued) = self.entities.get_mut(token).and_then(ReactorEntity::queued) {
                *queued = false;
                self.pump(token, SLICE_BYTES, false);
            }
        }
        self.has_new_peers = false;
        self.flush_events();
    }

    fn poll_timeout(&self) -> Instant {
        let feeders = self.feeders.iter().map(|(at, _)| *at).min();
        let pushes = self.srt_pushes.iter().map(|push| push.due).min();
        let idle = self.next_drain.min(self.next_maintenance);
        let moves = (!self.moving.is_empty()).then_some(self.next_move);
        [self.wheel.poll_timeout(), feeders, pushes, self.acceptors_paused_until, moves]
            .into_iter()
            .flatten()
            .fold(idle, Instant::min)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.wheel.take_due(now, &mut self.due);
        if now >= self.next_drain || !self.due.is_empty() {
            self.stations.iter_mut().for_each(ReactorStation::drain);
            self.next_drain = now + DRAIN_INTERVAL;
        }
        let mut due = core::mem::take(&mut self.due);
        for (served, token) in due.drain(..).enumerate() {
            if served % SENDS_PER_POLL == SENDS_PER_POLL - 1 {
                self.poll(Span::ZERO);
            }
            self.pump(token, usize::MAX, true);
        }
        self.due = due;
        if !self.moving.is_empty() && self.next_move <= now {
            self.hurry_moves(now);
        }
        self.feeders.retain_mut(|(at, feeder)| {
            if *at > now {
                return true;
            }
            match feeder.tick(now) {
                NextPoll::Soon => *at = now + ACTIVE_FEEDER_INTERVAL,
                NextPoll::Later => *at = now + IDLE_FEEDER_INTERVAL,
                NextPoll::Never => return false,
            }
            true
        });
        let stations = &self.stations;
        self.srt_pushes
            .retain_mut(|push| push.due > now || push.tick(now, stations.get(push.station)));
        if self.acceptors_paused_until.is_some_and(|at| at <= now) {
            self.resume_acceptors();
        }
        if now >= self.next_maintenance {
            self.next_maintenance = now + MAINTENANCE;
            self.maintain(now);
        }
    }

    fn handle_ready(&mut self, token: u64, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.queue(token);
        }
        let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        if token == INBOX {
            self.read_inbox();
            return;
        }
        match self.entities.get_mut(token) {
            Some(ReactorEntity::Acceptor(_)) => self.accept(token),
            Some(ReactorEntity::Peer(peer)) if readable => {
                if flags.contains(EventFlags::ERR) {
                    peer.connection.read_completions();
                }
                self.receive(token);
            }
            Some(ReactorEntity::Listener(listener)) if readable => {
                if let Err(cause) = listener.receive(&mut self.scratch) {
                    self.close(token, cause);
                }
            }
            _ => {}
        }
    }

    fn read_inbox(&mut self) {
        // Reads until the inbox is empty: only then does the next command wake this thread.
        while let Ok(command) = self.inbox.try_recv() {
            self.handle_command(command);
        }
    }

    fn add_snapcast_client(
        &mut self,
        socket: TcpStream,
        address: SocketAddr,
        permit: AddressPermit,
    ) {
        let phase = self.wheel.next_phase();
        let peer = Peer::new(socket, address, permit, phase, SystemClock::now());
        let token = self.entities.insert_with(|_| ReactorEntity::Peer(Box::new(peer)));
        self.watch(token, EventFlags::IN);
    }

    fn handle_command(&mut self, command: ReactorCommand) {
        let now = SystemClock::now();
        match command {
            ReactorCommand::AddStation(station) => {
                self.stations.push(ReactorStation::new(station.0, station.1));
            }
            ReactorCommand::ReplaceStation(number, station) => {
                self.replace_station(number, station.0, station.1);
            }
            ReactorCommand::RemoveStation(station) => self.remove_station(station),
            ReactorCommand::FlushStation(station) => self.flush_station(station),
            ReactorCommand::AddAcceptor(listener) => {
                // Accepted sockets inherit these options. Setting them on each would be a third of
                // the work of accepting when all clients return at once. If one fails, clients are
                // served with slightly more delay.
                drop(configure_socket(listener.as_fd()));
                let token = self.entities.insert_with(|_| ReactorEntity::Acceptor(listener));
                self.watch(token, EventFlags::IN);
            }
            ReactorCommand::AddSnapcastClient(socket, address, permit) => {
                self.add_snapcast_client(socket, address, permit);
            }
            ReactorCommand::AddWebSocketClient(socket, read) => {
                self.add_upgraded(*socket, |it| &it.socket, &read, Peer::from_websocket);
            }
            ReactorCommand::AddSendspinClient(mut client) => {
                let read = core::mem::take(&mut client.unread);
                self.add_upgraded(*client, |it| &it.socket.socket, &read, Peer::from_sendspin);
            }
            ReactorCommand::SetRoom(session, room) => {
                self.tell_peer(session, |peer| peer.set_room(room));
            }
            ReactorCommand::SetArtwork(session, update) => {
                self.tell_peer(session, |peer| peer.set_artwork(&update));
            }
            ReactorCommand::AddWebListener(listener, station) => {
                self.add_listener(*listener, station, now);
            }
            ReactorCommand::MoveListeners { from, to } => self.move_listeners(from, to),
            ReactorCommand::SetTitle(station, title) => {
                if let Some(tap) = self.stations.get_mut(station) {
                    tap.title = title;
                }
            }
            ReactorCommand::SetListenPolicy(policy) => {
                self.connection_limiter.set_limits(policy.limits);
                self.listen_policy = *policy;
            }
            ReactorCommand::AddFeeder(feeder) => self.feeders.push((now, feeder)),
            ReactorCommand::AddSrtPush(push) => self.srt_pushes.push(*push),
            ReactorCommand::SetSettings(session, settings) => {
                self.with_peer(session, |peer, _| peer.set_settings(settings));
            }
            ReactorCommand::SetStation(session, station) => self.join_station(session, station),
            ReactorCommand::ContinueOn { session, from, to, pending } => {
                self.continue_session(session, from, Continuation::new(to, pending), now);
            }
            ReactorCommand::Refuse(session, refusal) => {
                self.with_peer(session, |peer, _| peer.refuse(refusal));
            }
            ReactorCommand::Kick(session) => self.close(session.token(), SessionEndCause::Kicked),
            ReactorCommand::SetGreeting(client, greeting) => self.greetings.set(client, greeting),
            ReactorCommand::Stop => self.stopped = true,
        }
    }

    fn add_listener(
        &mut self,
        (socket, options): (MediaSocket, ListenerOptions),
        station: usize,
        now: Instant,
    ) {
        let Some(tap) = self.stations.get_mut(station) else { return };
        tap.drain();
        tap.descriptor.demand.renew(now);
        let plain = &socket.socket;
        if plain.set_nonblocking(true).and_then(|()| configure_socket(plain.as_fd())).is_err() {
            return;
        }
        let phase = self.wheel.next_phase();
        let listener = Box::new(WebListener::new(socket, options, station, tap, phase, now));
        self.stats.listeners += u64::from(!listener.is_pushed());
        let token = self.entities.insert_with(|_| ReactorEntity::Listener(listener));
        self.watch(token, EventFlags::IN | EventFlags::OUT);
    }

    fn receive(&mut self, token: u64) {
        // A peer may have more data than one read returns; the number of reads is limited so that
        // other peers need not wait.
        for _ in 0..MAX_READS {
            let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token) else { return };
            // A handshake takes a third of a millisecond. Beyond the limit the others stay unread
            // until the next poll, where the kernel reports them again.
            let handshaking = peer.connection.is_handshaking();
            if self.handshakes == 0 && (handshaking || peer.connection.is_protocol_unknown()) {
                break;
            }
            let result =
                peer.receive(&mut self.scratch, &self.listen_policy, &mut self.peer_events);
            if handshaking || peer.connection.is_handshaking() {
                self.handshakes -= 1;
                self.stats.tls_sessions += u64::from(!peer.connection.is_handshaking());
            }
            let mut events = core::mem::take(&mut self.peer_events);
            for event in events.drain(..) {
                self.handle_peer_event(token, event);
            }
            self.peer_events = events;
            match result {
                Ok(true) => {}
                Ok(false) => break,
                Err(cause) => return self.close(token, cause),
            }
        }
        self.update_interest(token);
    }

    fn handle_peer_event(&mut self, token: u64, event: PeerEvent) {
        let session = SessionId::new(self.index, token);
        let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token) else { return };
        match event {
            PeerEvent::ClientInfo(info) => self.report(ReactorEvent::ClientInfo { session, info }),
            PeerEvent::Command(command) => self.report(ReactorEvent::Command { session, command }),
            PeerEvent::Artwork(request) => self.report(ReactorEvent::Artwork { session, request }),
            PeerEvent::Hello(hello, volume) => {
                peer.has_said_hello = true;
                self.has_new_peers = true;
                self.stats.sessions += 1;
                let (address, vouched) = (peer.address, peer.is_authorized());
                // Which rendition a Sendspin client plays, the audio side decides.
                let formats = peer.is_sendspin().then(|| peer.formats());
                let greeting = if formats.is_none() { self.greeting_for(&hello) } else { None };
                if let Some(formats) = formats {
                    self.report(ReactorEvent::SendspinClient { session, formats });
                }
                // Reported first: if the answer finds that the peer is gone, its end is reported
                // after the Hello.
                self.report(ReactorEvent::Hello {
                    session,
                    hello,
                    address,
                    authorized: vouched,
                    answered: greeting,
                    volume,
                });
                if let Some(greeting) = greeting {
                    self.with_peer(session, |peer, taps| match taps.get(greeting.station) {
                        Some(tap) => peer.send_greeting(&greeting, tap),
                        None => Ok(()),
                    });
                    self.pump(token, FIRST_SLICE_BYTES, false);
                }
            }
        }
    }

    /// The answer to a client that needs no decision by the registry. One with credentials does: if
    /// they are wrong, the refusal is all that it gets.
    fn greeting_for(&mut self, hello: &Hello) -> Option<Greeting> {
        if hello.auth.is_some() {
            return None;
        }
        let greeting = self.greetings.for_client(&hello.client_id())?;
        self.stations.get_mut(greeting.station)?.drain();
        Some(greeting)
    }

    /// Calls `act` with a peer if it is still there.
    fn with_peer(
        &mut self,
        session: SessionId,
        act: impl FnOnce(&mut Peer, &mut [ReactorStation]) -> Result<(), SessionEndCause>,
    ) {
        let token = session.token();
        let Some(ReactorEntity::Peer(peer)) = self.entities.get_mut(token) else { return };
        match act(peer, &mut self.stations) {
            Ok(()) => self.update_interest(token),
            Err(cause) => self.close(token, cause),
        }
    }

    /// Calls `act` with a peer if it is still there, and sends what is due.
    fn tell_peer(
        &mut self,
        session: SessionId,
        act: impl FnOnce(&mut Peer) -> Result<(), SessionEndCause>,
    ) {
        self.with_peer(session, |peer, _| act(peer));
        self.pump(session.token(), SLICE_BYTES, false);
    }

    /// Sends one peer what is due; `on_turn` when the wheel has called it.
    fn pump(&mut self, token: u64, limit: usize, on_turn: bool) {
        let now = SystemClock::now();
        self.continue_pending(token);
        let (result, wait, phase, scheduled) = match self.entities.get_mut(token) {
            Some(ReactorEntity::Peer(peer)) => {
                let tap = peer.station.and_then(|station| self.stations.get(station));
                let (before, lagged) = (peer.chunks, peer.lagged);
                // The chunk after it may be the first one of the rendition on which it continues.
                let limit = if peer.continues_on.is_some() { ONE_CHUNK } else { limit };
                let result = peer.pump(tap, now, limit);
                self.stats.chunks_sent += peer.chunks - before;
                self.stats.chunks_lagged += peer.lagged - lagged;
                (result, peer.wait_ticks(tap), peer.phase, &mut peer.scheduled)
            }
            Some(ReactorEntity::Listener(listener)) => {
                let Some(tap) = self.stations.get(listener.station) else { return };
                let before = listener.chunks;
                let result = listener.pump(tap, now, limit);
                self.stats.chunks_sent += listener.chunks - before;
                (result, listener.wait_ticks, listener.phase, &mut listener.scheduled)
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
        self.continue_pending(token);
    }

    /// Queues an entity that can send more for a slice; for a blocked one, watches for it to become
    /// writable.
    fn update_interest(&mut self, token: u64) {
        let Some(entity) = self.entities.get_mut(token) else { return };
        let (blocked, more, watches_out) = match entity {
            ReactorEntity::Peer(peer) => (peer.blocked, peer.catching_up, &mut peer.watches_out),
            ReactorEntity::Listener(listener) => {
                (listener.blocked, false, &mut listener.watches_out)
            }
            ReactorEntity::Acceptor(_) => return,
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

    /// Queues an entity for a slice, once.
    fn queue(&mut self, token: u64) {
        if let Some(queued) = self.entities.get_mut(token).and_then(ReactorEntity::queued)
            && !core::mem::replace(queued, true)
        {
            self.catch_up_queue.push_back(token);
        }
    }

    /// Events are delivered at the end of the poll: waking the receiver for each of many clients
    /// would take the CPU time that is needed to answer them.
    fn report(&mut self, event: ReactorEvent) {
        self.pending_events.push_back(event);
    }

    fn flush_events(&mut self) {
        while let Some(event) = self.pending_events.pop_front() {
            if let Err(event) = self.events.push(event) {
                self.pending_events.push_front(event);
                return;
            }
        }
    }

    fn maintain(&mut self, now: Instant) {
        self.flush_events();
        let mut tokens = core::mem::take(&mut self.tokens);
        tokens.extend(self.entities.tokens());
        for &token in &tokens {
            let result = match self.entities.get_mut(token) {
                Some(ReactorEntity::Peer(peer)) => {
                    self.stats.add_sends(peer.connection.take_counts());
                    let tap = peer.station.and_then(|station| self.stations.get(station));
                    if let Some(tap) = tap {
                        tap.descriptor.demand.renew(now);
                    }
                    peer.maintain(tap, now, &mut self.peer_events)
                }
                Some(ReactorEntity::Listener(listener)) => {
                    self.stats.add_sends(listener.take_counts());
                    if let Some(tap) = self.stations.get(listener.station) {
                        tap.descriptor.demand.renew(now);
                    }
                    listener.maintain(now)
                }
                _ => Ok(()),
            };
            let mut events = core::mem::take(&mut self.peer_events);
            for event in events.drain(..) {
                self.handle_peer_event(token, event);
            }
            self.peer_events = events;
            if let Err(cause) = result {
                self.close(token, cause);
            }
        }
        self.report_health(&tokens, now);
        tokens.clear();
        self.tokens = tokens;
        self.published.publish(self.stats);
    }

    fn close(&mut self, token: u64, cause: SessionEndCause) {
        let Some(mut entity) = self.entities.remove(token) else { return };
        self.stats.add_sends(entity.take_counts());
        self.stats.count_session_end(cause);
        let is_lost = matches!(cause, SessionEndCause::Closed | SessionEndCause::Network);
        self.stats.tls_closed += u64::from(is_lost && entity.is_handshaking());
        match entity {
            ReactorEntity::Peer(peer) if peer.has_said_hello => {
                self.stats.sessions -= 1;
                let session = SessionId::new(self.index, token);
                self.report(ReactorEvent::SessionEnded { session, cause });
            }
            ReactorEntity::Listener(listener) => {
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
            self.close(token, SessionEndCause::Network);
        }
    }

    fn modify(&mut self, token: u64, flags: EventFlags) {
        let Some(entity) = self.entities.get_mut(token) else { return };
        // The descriptor is registered, so this cannot fail; a peer lost here would be found by its
        // time-out.
        let _ = epoll::modify(&self.epoll, entity.fd(), EventData::new_u64(token), flags);
    }
}

/// The token of the inbox; tokens of entities never reach it.
const INBOX: u64 = u64::MAX;
const MAX_EVENTS: usize = 256;
const MAX_READS: usize = 4;

/// How often chunks are taken from the rings when no session is due. The rings hold much more.
const DRAIN_INTERVAL: Span = Span::from_millis(200);

/// How often feeders run while audio flows, and while none does.
const ACTIVE_FEEDER_INTERVAL: Span = Span::from_millis(10);
const IDLE_FEEDER_INTERVAL: Span = Span::from_millis(50);

/// History goes out in slices of about this size; the next follows when the kernel has sent the
/// last. The first one is short, so that many new clients are answered quickly.
const SLICE_BYTES: usize = 16 * 1_024;
/// No slice is smaller than a chunk.
const ONE_CHUNK: usize = 1;
const FIRST_SLICE_BYTES: usize = 2 * 1_024;

/// Slices per poll, usually and while clients are connecting.
const MAX_SLICES: usize = 16;
const SLICES_WITH_NEW_PEERS: usize = 1;

/// Sessions that are sent to between two polls: about 100 us.
pub(super) const SENDS_PER_POLL: usize = 8;

/// Handshake steps per poll: about two milliseconds.
const MAX_HANDSHAKES: usize = 8;
