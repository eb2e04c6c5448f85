//! The loop of one shared thread.

mod orders;
mod receive;

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};

use aulos_core::{Instant, Span};
use aulos_rt::Publisher;
use aulos_rt::channel::{FdReceiver, Sender};
use aulos_rt::clock::Urgency;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use super::machine::Machine;
use super::outbox::{Flush, Queue};
use super::shared::Table;
use super::stats::Stats;
use super::stream::Streams;
use super::{Answers, Command, Config, EndCause, Ended};
use crate::clock::timespec;
use crate::slab::Slab;
use crate::wheel::Wheel;
use crate::{SystemClock, sys};
use receive::Intake;

/// What a thread begins with.
pub(super) struct Seed<M: Machine> {
    pub(super) epoll: OwnedFd,
    pub(super) inbox: FdReceiver<Command<M>>,
    /// From which is sent: of IPv4 and of IPv6.
    pub(super) posts: [Option<UdpSocket>; 2],
    pub(super) ended: Sender<Box<Ended<M>>>,
    pub(super) published: Publisher<Stats>,
    /// The number of the first stream that begins here.
    pub(super) first: u64,
}

/// Everything that one thread serves.
pub(super) struct Thread<M: Machine> {
    epoll: OwnedFd,
    inbox: FdReceiver<Command<M>>,
    sockets: Slab<Socket<M>>,
    streams: Streams<M>,
    queue: Queue,
    flush: Flush,
    /// The context's sockets.
    posts: [Option<u64>; 2],
    usual: Intake,
    /// For what comes joined, when there is such a port.
    wide: Option<Intake>,
    events: Vec<Event>,
    due: Vec<u64>,
    /// Nothing that came before this is unread.
    floor: Instant,
    look_began: Instant,
    stamps_ahead: i64,
    /// Whether something may have been left unread at this look.
    unread: bool,
    /// Looks in a row at which nothing was there.
    quiet: u32,
    next_maintenance: Instant,
    ended: Sender<Box<Ended<M>>>,
    /// Those for which there was no room there.
    untold: VecDeque<Box<Ended<M>>>,
    stats: Stats,
    published: Publisher<Stats>,
    wait: Span,
    answers: Answers,
    stopped: bool,
}

/// One socket.
pub(super) struct Socket<M> {
    socket: UdpSocket,
    ipv6: bool,
    kind: Kind<M>,
    /// What the kernel has lost of it.
    lost: u32,
}

enum Kind<M> {
    /// Of this stream.
    Own(u64),
    /// The second one of this stream.
    Second(u64),
    Shared(Box<Table<M>>),
    /// The context's, to which answers come.
    Post,
}

impl<M: Machine> Thread<M> {
    pub(super) fn new(seed: Seed<M>, config: &Config) -> Self {
        let now = SystemClock::now();
        let wheel = Wheel::new(now, config.wait, WHEEL_SLOTS);
        let mut thread = Self {
            epoll: seed.epoll,
            inbox: seed.inbox,
            sockets: Slab::new(),
            streams: Streams::new(wheel, seed.first),
            queue: Queue::new(),
            flush: Flush::new(config.join_sends),
            posts: [None; 2],
            usual: Intake::new(SLOTS, config.largest),
            wide: None,
            events: Vec::with_capacity(MIN_EVENTS),
            due: Vec::new(),
            floor: now,
            look_began: now,
            stamps_ahead: sys::stamps_ahead(),
            unread: false,
            quiet: 0,
            next_maintenance: now,
            ended: seed.ended,
            untold: VecDeque::new(),
            stats: Stats::default(),
            published: seed.published,
            wait: config.wait,
            answers: config.answers,
            stopped: false,
        };
        for (post, socket) in seed.posts.into_iter().enumerate() {
            thread.posts[post] = socket.and_then(|socket| thread.watch(socket, Kind::Post, 0));
        }
        thread
    }

    /// Serves until it is told to stop, and gives back what there was to serve.
    pub(super) fn run(mut self) -> Vec<Ended<M>> {
        // The system's own slack of 50 us would come on top of each sleep. Whether it is granted
        // shows in nothing but the overruns.
        let _ = Urgency::Nice(0).request();
        while !self.stopped {
            self.turn();
        }
        self.finish()
    }

    /// One sleep, and one look.
    fn turn(&mut self) {
        let paced = self.queue.paced.poll_timeout();
        let next = self.streams.wheel.next();
        self.stats.wakes += 1;
        if let Some(paced) = paced.filter(|paced| *paced < next) {
            SystemClock::sleep_until(paced);
            self.stats.paced_wakes += 1;
            return self.send();
        }
        let is_idle = self.quiet >= QUIET_LOOKS && paced.is_none() && self.queue.now.len() == 0;
        if is_idle {
            // Now the first packet wakes it, and the ticks go on from there.
            self.publish();
            let timers = self.streams.wheel.poll_timeout();
            let until = timers.map_or(self.next_maintenance, |at| at.min(self.next_maintenance));
            self.wait_for_events(until.since(SystemClock::now()));
        } else {
            SystemClock::sleep_until(next);
            let late = SystemClock::now().since(next);
            let missed = late.as_nanos() / self.wait.as_nanos().max(1);
            self.stats.overruns += u64::try_from(missed).unwrap_or(0);
            self.wait_for_events(Span::ZERO);
        }
        self.look();
    }

    /// Finds out which sockets have something.
    fn wait_for_events(&mut self, limit: Span) {
        let limit = timespec(u64::try_from(limit.as_nanos()).unwrap_or(0));
        self.look_began = SystemClock::now();
        self.events.clear();
        // Everybody may have something at once; when they are more than ever, this allocates.
        self.events.reserve(usize::try_from(self.stats.sockets).unwrap_or(0) + 1);
        // An interrupted wait is an empty one.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&limit));
    }

    /// Reads all of them, calls whose time has come, and sends.
    fn look(&mut self) {
        self.stamps_ahead = sys::stamps_ahead();
        self.unread = false;
        let events = core::mem::take(&mut self.events);
        self.quiet = if events.is_empty() { self.quiet.saturating_add(1) } else { 0 };
        for event in &events {
            match event.data.u64() {
                INBOX => self.read_inbox(),
                token => self.receive(token),
            }
            if self.queue.now.len() >= FLUSH_AT {
                self.send();
            }
        }
        self.events = events;
        if !self.unread {
            self.floor = self.look_began;
        }
        self.fire_timers();
        self.end_those_who_are_over();
        self.send();
        let now = SystemClock::now();
        if now >= self.next_maintenance {
            self.next_maintenance = now + MAINTENANCE;
            self.maintain(now);
        }
    }

    fn fire_timers(&mut self) {
        let now = SystemClock::now();
        let mut due = core::mem::take(&mut self.due);
        self.streams.wheel.take_due(now, &mut due);
        for token in due.drain(..) {
            self.streams.fire(token, &mut self.queue, now);
            if self.queue.now.len() >= FLUSH_AT {
                self.send();
            }
        }
        self.due = due;
    }

    /// Gives the kernel what is due.
    fn send(&mut self) {
        let Self { queue, flush, sockets, posts, stats, .. } = self;
        queue.paced.release(SystemClock::now(), &mut queue.now);
        stats.send_drops += core::mem::take(&mut queue.drops);
        if queue.now.len() == 0 {
            return;
        }
        let post = |from: Option<u64>, ipv6: bool| {
            let socket = sockets.get(from.or_else(|| posts[usize::from(ipv6)])?)?;
            Some((socket.socket.as_fd(), socket.ipv6))
        };
        flush.flush(&mut queue.now, post, stats);
    }

    /// Once in a while.
    fn maintain(&mut self, now: Instant) {
        for token in self.sockets.tokens() {
            if let Some(Socket { kind: Kind::Shared(table), .. }) = self.sockets.get(token) {
                self.streams.expire(table, now);
            }
        }
        self.end_those_who_are_over();
        self.tell_untold();
        self.publish();
    }

    fn publish(&mut self) {
        self.stats.cpu = SystemClock::thread_time();
        self.stats.streams = self.streams.tokens.len() as u64;
        self.published.publish(self.stats);
    }

    /// Ends those who said that they are over, or have been said to be.
    fn end_those_who_are_over(&mut self) {
        while let Some((token, cause)) = self.streams.over.pop() {
            self.end(token, cause);
        }
    }

    /// Ends a stream. What it has said goes out before its socket is closed.
    fn end(&mut self, token: u64, cause: EndCause) {
        let now = SystemClock::now();
        self.streams.act(token, &mut self.queue, now, |stream, out| {
            stream.machine.finish(now, out);
        });
        self.send();
        let Some(stream) = self.streams.remove(token) else { return };
        self.leave_socket(token, &stream.key, stream.socket);
        self.leave_socket(token, &None, stream.second);
        self.stats.expired += u64::from(cause == EndCause::Silent);
        self.untold.push_back(Box::new(stream.into_ended(cause)));
        self.tell_untold();
    }

    /// Closes a stream's own socket, or takes it out of a shared port's table.
    fn leave_socket(
        &mut self,
        stream: u64,
        key: &Option<super::Key>,
        socket: Option<u64>,
    ) -> Option<Socket<M>> {
        let socket = socket?;
        match (self.sockets.get_mut(socket)?, key) {
            (Socket { kind: Kind::Shared(table), .. }, Some(key)) => {
                // The place may be another's by now, who came when this one had to go.
                if table.streams.get(key) == Some(&stream) {
                    table.streams.remove(key);
                }
                None
            }
            (Socket { kind: Kind::Own(_) | Kind::Second(_), .. }, _) => self.unwatch(socket),
            _ => None,
        }
    }

    fn tell_untold(&mut self) {
        while let Some(ended) = self.untold.pop_front() {
            if let Err(error) = self.ended.try_send(ended) {
                self.untold.push_front(error.into_item());
                break;
            }
        }
        self.streams.untold = !self.untold.is_empty();
    }

    /// Takes a socket in.
    fn watch(&mut self, socket: UdpSocket, kind: Kind<M>, lost: u32) -> Option<u64> {
        let ipv6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        let token = self.sockets.insert_with(|_| Socket { socket, ipv6, kind, lost });
        let socket = self.sockets.get(token)?;
        let added =
            epoll::add(&self.epoll, &socket.socket, EventData::new_u64(token), EventFlags::IN);
        if added.is_err() {
            self.sockets.remove(token);
            return None;
        }
        self.stats.sockets += 1;
        Some(token)
    }

    /// Gives a socket back; it is closed when it is dropped.
    fn unwatch(&mut self, token: u64) -> Option<Socket<M>> {
        let socket = self.sockets.remove(token)?;
        self.stats.sockets -= 1;
        let _ = epoll::delete(&self.epoll, &socket.socket);
        Some(socket)
    }

    /// Lets every stream send what it still has, and sends it.
    fn finish(mut self) -> Vec<Ended<M>> {
        let tokens: Vec<u64> = self.streams.all.tokens().collect();
        let now = SystemClock::now();
        for &token in &tokens {
            self.streams.act(token, &mut self.queue, now, |stream, out| {
                stream.machine.finish(now, out);
            });
            if self.queue.now.len() >= FLUSH_AT {
                self.send();
            }
        }
        let until = now + LAST_WORDS;
        loop {
            self.send();
            let waits = self.queue.now.len() > 0 || self.queue.paced.poll_timeout().is_some();
            if !waits || SystemClock::now() > until {
                break;
            }
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(1));
        }
        self.stats.send_drops += self.queue.now.len() as u64;
        let mut ended: Vec<_> = self.untold.drain(..).map(|ended| *ended).collect();
        let streams = tokens.into_iter().filter_map(|token| self.streams.remove(token));
        ended.extend(streams.map(|stream| stream.into_ended(EndCause::Stopped)));
        self.publish();
        ended
    }
}

/// The inbox's token; tokens of sockets never reach it.
pub(super) const INBOX: u64 = u64::MAX;

/// The wheel's: a timer that is farther away is called once in a turn in vain.
const WHEEL_SLOTS: usize = 256;

/// Datagrams in one call.
const SLOTS: usize = 64;

const MIN_EVENTS: usize = 256;

/// After so many looks at which nothing was there, the thread sleeps until something is.
const QUIET_LOOKS: u32 = 8;

/// What waits to be sent goes out when it is so much: some 40 kB.
const FLUSH_AT: usize = 256;

/// How often figures are published and silent streams are looked for.
const MAINTENANCE: Span = Span::from_millis(250);

/// How long a thread that is stopped tries to send what it still has.
const LAST_WORDS: Span = Span::from_secs(1);
