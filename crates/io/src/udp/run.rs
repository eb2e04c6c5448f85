//! The loop of one shared thread.

mod commands;
mod receive;

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};

use aulos_core::{Instant, Span};
use aulos_rt::LatestPublisher;
use aulos_rt::channel::{FdReceiver, Sender};
use aulos_rt::clock::ThreadPriority;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use super::machine::Machine;
use super::outbox::{BatchSender, SendQueue};
use super::shared::StreamTable;
use super::stats::UdpStats;
use super::stream::Streams;
use super::{AnswerKeyFn, EndedStream, StreamEndCause, ThreadCommand, UdpConfig};
use crate::clock::timespec;
use crate::slab::Slab;
use crate::wheel::Wheel;
use crate::{SystemClock, sys};
use receive::ReceiveBuffers;

/// What a thread begins with.
pub(super) struct ThreadInit<M: Machine> {
    pub(super) epoll: OwnedFd,
    pub(super) inbox: FdReceiver<ThreadCommand<M>>,
    /// From which is sent: of IPv4 and of IPv6.
    pub(super) send_sockets: [Option<UdpSocket>; 2],
    pub(super) ended: Sender<Box<EndedStream<M>>>,
    pub(super) published: LatestPublisher<UdpStats>,
    /// The number of the first stream that begins here.
    pub(super) first_stream_id: u64,
}

/// Everything that one thread serves.
pub(super) struct UdpThread<M: Machine> {
    epoll: OwnedFd,
    inbox: FdReceiver<ThreadCommand<M>>,
    sockets: Slab<WatchedSocket<M>>,
    streams: Streams<M>,
    queue: SendQueue,
    flush: BatchSender,
    /// The context's sockets.
    send_sockets: [Option<u64>; 2],
    normal_buffers: ReceiveBuffers,
    /// For what comes joined, when there is such a port.
    joined_buffers: Option<ReceiveBuffers>,
    events: Vec<Event>,
    due: Vec<u64>,
    /// Nothing that came before this is unread.
    earliest_unread: Instant,
    poll_began: Instant,
    stamps_ahead: i64,
    /// Whether something may have been left unread at this look.
    unread: bool,
    /// Looks in a row at which nothing was there.
    idle_polls: u32,
    next_maintenance: Instant,
    ended: Sender<Box<EndedStream<M>>>,
    /// Those for which there was no room there.
    unreported_ends: VecDeque<Box<EndedStream<M>>>,
    stats: UdpStats,
    published: LatestPublisher<UdpStats>,
    wait: Span,
    answer_key: AnswerKeyFn,
    stopped: bool,
}

/// One socket.
pub(super) struct WatchedSocket<M> {
    socket: UdpSocket,
    ipv6: bool,
    kind: SocketRole<M>,
    /// What the kernel has lost of it.
    lost: u32,
}

enum SocketRole<M> {
    /// Of this stream.
    Own(u64),
    /// The second one of this stream.
    Second(u64),
    Shared(Box<StreamTable<M>>),
    /// The context's, to which answers come.
    Sending,
}

impl<M: Machine> UdpThread<M> {
    pub(super) fn new(seed: ThreadInit<M>, config: &UdpConfig) -> Self {
        let now = SystemClock::now();
        let wheel = Wheel::new(now, config.wait, WHEEL_SLOTS);
        let mut thread = Self {
            epoll: seed.epoll,
            inbox: seed.inbox,
            sockets: Slab::new(),
            streams: Streams::new(wheel, seed.first_stream_id),
            queue: SendQueue::new(),
            flush: BatchSender::new(config.join_sends),
            send_sockets: [None; 2],
            normal_buffers: ReceiveBuffers::new(SLOTS, config.max_datagram),
            joined_buffers: None,
            events: Vec::with_capacity(MIN_EVENTS),
            due: Vec::new(),
            earliest_unread: now,
            poll_began: now,
            stamps_ahead: sys::stamps_ahead(),
            unread: false,
            idle_polls: 0,
            next_maintenance: now,
            ended: seed.ended,
            unreported_ends: VecDeque::new(),
            stats: UdpStats::default(),
            published: seed.published,
            wait: config.wait,
            answer_key: config.answer_key,
            stopped: false,
        };
        for (post, socket) in seed.send_sockets.into_iter().enumerate() {
            thread.send_sockets[post] =
                socket.and_then(|socket| thread.watch(socket, SocketRole::Sending, 0));
        }
        thread
    }

    /// Serves until it is told to stop, and gives back what there was to serve.
    pub(super) fn run(mut self) -> Vec<EndedStream<M>> {
        // The system's own slack of 50 us would come on top of each sleep. Whether it is granted
        // shows in nothing but the overruns.
        let _ = ThreadPriority::Nice(0).request();
        while !self.stopped {
            self.run_once();
        }
        self.finish()
    }

    /// One sleep, and one look.
    fn run_once(&mut self) {
        let paced = self.queue.paced.poll_timeout();
        let next = self.streams.wheel.next_tick_at();
        self.stats.wakes += 1;
        if let Some(paced) = paced.filter(|paced| *paced < next) {
            SystemClock::sleep_until(paced);
            self.stats.paced_wakes += 1;
            return self.send();
        }
        let is_idle = self.idle_polls >= IDLE_POLLS_BEFORE_SLEEP
            && paced.is_none()
            && self.queue.ready.len() == 0;
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
        self.poll();
    }

    /// Finds out which sockets have something.
    fn wait_for_events(&mut self, limit: Span) {
        let limit = timespec(u64::try_from(limit.as_nanos()).unwrap_or(0));
        self.poll_began = SystemClock::now();
        self.events.clear();
        // Everybody may have something at once; when they are more than ever, this allocates.
        self.events.reserve(usize::try_from(self.stats.sockets).unwrap_or(0) + 1);
        // An interrupted wait is an empty one.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&limit));
    }

    /// Reads all of them, calls whose time has come, and sends.
    fn poll(&mut self) {
        self.stamps_ahead = sys::stamps_ahead();
        self.unread = false;
        let events = core::mem::take(&mut self.events);
        self.idle_polls = if events.is_empty() { self.idle_polls.saturating_add(1) } else { 0 };
        for event in &events {
            match event.data.u64() {
                INBOX => self.read_inbox(),
                token => self.receive(token),
            }
            if self.queue.ready.len() >= FLUSH_AT {
                self.send();
            }
        }
        self.events = events;
        if !self.unread {
            self.earliest_unread = self.poll_began;
        }
        self.fire_timers();
        self.end_finished_streams();
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
            self.streams.fire_timer(token, &mut self.queue, now);
            if self.queue.ready.len() >= FLUSH_AT {
                self.send();
            }
        }
        self.due = due;
    }

    /// Gives the kernel what is due.
    fn send(&mut self) {
        let Self { queue, flush, sockets, send_sockets: posts, stats, .. } = self;
        queue.paced.release(SystemClock::now(), &mut queue.ready);
        stats.send_drops += core::mem::take(&mut queue.dropped);
        if queue.ready.len() == 0 {
            return;
        }
        let post = |from: Option<u64>, ipv6: bool| {
            let socket = sockets.get(from.or_else(|| posts[usize::from(ipv6)])?)?;
            Some((socket.socket.as_fd(), socket.ipv6))
        };
        flush.flush(&mut queue.ready, post, stats);
    }

    /// Once in a while.
    fn maintain(&mut self, now: Instant) {
        for token in self.sockets.tokens() {
            if let Some(WatchedSocket { kind: SocketRole::Shared(table), .. }) =
                self.sockets.get(token)
            {
                self.streams.expire(table, now);
            }
        }
        self.end_finished_streams();
        self.flush_ended();
        self.publish();
    }

    fn publish(&mut self) {
        self.stats.cpu = SystemClock::thread_time();
        self.stats.streams = self.streams.tokens.len() as u64;
        self.published.publish(self.stats);
    }

    /// Ends those who said that they are over, or have been said to be.
    fn end_finished_streams(&mut self) {
        while let Some((token, cause)) = self.streams.ending.pop() {
            self.end(token, cause);
        }
    }

    /// Ends a stream. What it has said goes out before its socket is closed.
    fn end(&mut self, token: u64, cause: StreamEndCause) {
        let now = SystemClock::now();
        self.streams.with_stream(token, &mut self.queue, now, |stream, out| {
            stream.machine.finish(now, out);
        });
        self.send();
        let Some(stream) = self.streams.remove(token) else { return };
        self.detach_socket(token, &stream.key, stream.socket);
        self.detach_socket(token, &None, stream.second);
        self.stats.expired += u64::from(cause == StreamEndCause::Silent);
        self.unreported_ends.push_back(Box::new(stream.into_ended(cause)));
        self.flush_ended();
    }

    /// Closes a stream's own socket, or takes it out of a shared port's table.
    fn detach_socket(
        &mut self,
        stream: u64,
        key: &Option<super::StreamKey>,
        socket: Option<u64>,
    ) -> Option<WatchedSocket<M>> {
        let socket = socket?;
        match (self.sockets.get_mut(socket)?, key) {
            (WatchedSocket { kind: SocketRole::Shared(table), .. }, Some(key)) => {
                // The place may be another's by now, who came when this one had to go.
                if table.streams.get(key) == Some(&stream) {
                    table.streams.remove(key);
                }
                None
            }
            (WatchedSocket { kind: SocketRole::Own(_) | SocketRole::Second(_), .. }, _) => {
                self.unwatch(socket)
            }
            _ => None,
        }
    }

    fn flush_ended(&mut self) {
        while let Some(ended) = self.unreported_ends.pop_front() {
            if let Err(error) = self.ended.try_send(ended) {
                self.unreported_ends.push_front(error.into_item());
                break;
            }
        }
        self.streams.has_unreported_ends = !self.unreported_ends.is_empty();
    }

    /// Takes a socket in.
    fn watch(&mut self, socket: UdpSocket, kind: SocketRole<M>, lost: u32) -> Option<u64> {
        let ipv6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        let token = self.sockets.insert_with(|_| WatchedSocket { socket, ipv6, kind, lost });
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
    fn unwatch(&mut self, token: u64) -> Option<WatchedSocket<M>> {
        let socket = self.sockets.remove(token)?;
        self.stats.sockets -= 1;
        let _ = epoll::delete(&self.epoll, &socket.socket);
        Some(socket)
    }

    /// Lets every stream send what it still has, and sends it.
    fn finish(mut self) -> Vec<EndedStream<M>> {
        let tokens: Vec<u64> = self.streams.all.tokens().collect();
        let now = SystemClock::now();
        for &token in &tokens {
            self.streams.with_stream(token, &mut self.queue, now, |stream, out| {
                stream.machine.finish(now, out);
            });
            if self.queue.ready.len() >= FLUSH_AT {
                self.send();
            }
        }
        let until = now + FINISH_TIMEOUT;
        loop {
            self.send();
            let waits = self.queue.ready.len() > 0 || self.queue.paced.poll_timeout().is_some();
            if !waits || SystemClock::now() > until {
                break;
            }
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(1));
        }
        self.stats.send_drops += self.queue.ready.len() as u64;
        let mut ended: Vec<_> = self.unreported_ends.drain(..).map(|ended| *ended).collect();
        let streams = tokens.into_iter().filter_map(|token| self.streams.remove(token));
        ended.extend(streams.map(|stream| stream.into_ended(StreamEndCause::Stopped)));
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
const IDLE_POLLS_BEFORE_SLEEP: u32 = 8;

/// What waits to be sent goes out when it is so much: some 40 kB.
const FLUSH_AT: usize = 256;

/// How often figures are published and silent streams are looked for.
const MAINTENANCE: Span = Span::from_millis(250);

/// How long a thread that is stopped tries to send what it still has.
const FINISH_TIMEOUT: Span = Span::from_secs(1);
