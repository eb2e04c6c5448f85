//! The event loop of one UDP thread.

mod buffers;
mod commands;
mod receive;

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};

use aulos_core::{Instant, Span};
use aulos_rt::LatestPublisher;
use aulos_rt::channel::{FdReceiver, Sender};
use aulos_rt::clock::ThreadPriority;
use aulos_session::datagram::{Machine, SendQueue, StreamKey};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use super::command::ThreadCommand;
use super::flush::BatchSender;
use super::shared::StreamTable;
use super::stats::UdpStats;
use super::stream::Streams;
use super::{AnswerKeyFn, EndedStream, StreamEndCause, UdpConfig};
use crate::clock::timespec;
use crate::slab::Slab;
use crate::wheel::Wheel;
use crate::{SystemClock, sys};
use buffers::ReceiveBuffers;

/// The initial state of a thread.
pub(super) struct ThreadInit<M: Machine> {
    pub(super) epoll: OwnedFd,
    pub(super) inbox: FdReceiver<ThreadCommand<M>>,
    /// The sockets to send from: IPv4 and IPv6.
    pub(super) send_sockets: [Option<UdpSocket>; 2],
    pub(super) ended: Sender<Box<EndedStream<M>>>,
    pub(super) published: LatestPublisher<UdpStats>,
    /// The id of the first stream that is created here.
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
    /// The context's own sockets.
    send_sockets: [Option<u64>; 2],
    normal_buffers: ReceiveBuffers,
    /// For joined datagrams, if there is such a port.
    joined_buffers: Option<ReceiveBuffers>,
    events: Vec<Event>,
    due: Vec<u64>,
    /// Everything that arrived before this has been read.
    earliest_unread: Instant,
    poll_began: Instant,
    timestamp_clock_offset_nanos: i64,
    /// Whether this poll may have left packets unread.
    unread: bool,
    /// Consecutive polls without a packet.
    idle_polls: u32,
    next_maintenance: Instant,
    ended: Sender<Box<EndedStream<M>>>,
    /// Ended streams for which the channel had no room.
    unreported_ends: VecDeque<Box<EndedStream<M>>>,
    stats: UdpStats,
    published: LatestPublisher<UdpStats>,
    wait: Span,
    answer_key: AnswerKeyFn,
    stopped: bool,
}

/// A watched socket.
pub(super) struct WatchedSocket<M> {
    socket: UdpSocket,
    ipv6: bool,
    kind: SocketRole<M>,
    /// Datagrams that the kernel has dropped so far.
    lost: u32,
}

enum SocketRole<M> {
    /// The only or first socket of this stream.
    Own(u64),
    /// The second socket of this stream.
    Second(u64),
    Shared(Box<StreamTable<M>>),
    /// The context's own socket, at which answers arrive.
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
            timestamp_clock_offset_nanos: sys::timestamp_clock_offset_nanos(),
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

    /// Serves until it is stopped, and returns the remaining streams.
    pub(super) fn run(mut self) -> Vec<EndedStream<M>> {
        // The default timer slack of 50 us would be added to each sleep. A failure shows only in
        // the overruns.
        let _ = ThreadPriority::Nice(0).request();
        while !self.stopped {
            self.run_once();
        }
        self.finish()
    }

    /// One sleep and one poll.
    fn run_once(&mut self) {
        let paced = self.queue.poll_timeout();
        let next = self.streams.wheel.next_tick_at();
        self.stats.wakes += 1;
        if let Some(paced) = paced.filter(|paced| *paced < next) {
            SystemClock::sleep_until(paced);
            self.stats.paced_wakes += 1;
            return self.send();
        }
        let is_idle = self.idle_polls >= IDLE_POLLS_BEFORE_SLEEP
            && paced.is_none()
            && self.queue.ready_count() == 0;
        if is_idle {
            // The first packet wakes the thread, and the ticks continue from there.
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

    /// Finds out which sockets are readable.
    fn wait_for_events(&mut self, limit: Span) {
        let limit = timespec(u64::try_from(limit.as_nanos()).unwrap_or(0));
        self.poll_began = SystemClock::now();
        self.events.clear();
        // All sockets may be readable at once; growing for more sockets than ever allocates.
        self.events.reserve(usize::try_from(self.stats.sockets).unwrap_or(0) + 1);
        // An interrupted wait counts as an empty one.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&limit));
    }

    /// Reads all sockets, fires timers, and sends.
    fn poll(&mut self) {
        self.timestamp_clock_offset_nanos = sys::timestamp_clock_offset_nanos();
        self.unread = false;
        let events = core::mem::take(&mut self.events);
        self.idle_polls = if events.is_empty() { self.idle_polls.saturating_add(1) } else { 0 };
        for event in &events {
            match event.data.u64() {
                INBOX => self.read_inbox(),
                token => self.receive(token),
            }
            if self.queue.ready_count() >= FLUSH_AT {
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
            if self.queue.ready_count() >= FLUSH_AT {
                self.send();
            }
        }
        self.due = due;
    }

    /// Passes the datagrams that are due to the kernel.
    fn send(&mut self) {
        let Self { queue, flush, sockets, send_sockets: posts, stats, .. } = self;
        queue.handle_timeout(SystemClock::now());
        stats.send_drops += queue.take_dropped();
        if queue.ready_count() == 0 {
            return;
        }
        let post = |from: Option<u64>, ipv6: bool| {
            let socket = sockets.get(from.or_else(|| posts[usize::from(ipv6)])?)?;
            Some((socket.socket.as_fd(), socket.ipv6))
        };
        flush.flush(queue, post, stats);
    }

    /// Periodic maintenance.
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

    /// Ends the streams that were marked as ending.
    fn end_finished_streams(&mut self) {
        while let Some((token, cause)) = self.streams.ending.pop() {
            self.end(token, cause);
        }
    }

    /// Ends a stream. Its datagrams are sent before its socket is closed.
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

    /// Closes a stream's own socket, or removes it from the table of a shared port.
    fn detach_socket(
        &mut self,
        stream: u64,
        key: &Option<StreamKey>,
        socket: Option<u64>,
    ) -> Option<WatchedSocket<M>> {
        let socket = socket?;
        match (self.sockets.get_mut(socket)?, key) {
            (WatchedSocket { kind: SocketRole::Shared(table), .. }, Some(key)) => {
                // The key may already belong to the stream that replaced this one.
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

    /// Starts to watch a socket.
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

    /// Stops watching a socket; dropping it closes it.
    fn unwatch(&mut self, token: u64) -> Option<WatchedSocket<M>> {
        let socket = self.sockets.remove(token)?;
        self.stats.sockets -= 1;
        let _ = epoll::delete(&self.epoll, &socket.socket);
        Some(socket)
    }

    /// Lets every stream write what is left, and sends it.
    fn finish(mut self) -> Vec<EndedStream<M>> {
        let tokens: Vec<u64> = self.streams.all.tokens().collect();
        let now = SystemClock::now();
        for &token in &tokens {
            self.streams.with_stream(token, &mut self.queue, now, |stream, out| {
                stream.machine.finish(now, out);
            });
            if self.queue.ready_count() >= FLUSH_AT {
                self.send();
            }
        }
        let until = now + FINISH_TIMEOUT;
        loop {
            self.send();
            let waits = self.queue.ready_count() > 0 || self.queue.poll_timeout().is_some();
            if !waits || SystemClock::now() > until {
                break;
            }
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(1));
        }
        self.stats.send_drops += self.queue.ready_count() as u64;
        let mut ended: Vec<_> = self.unreported_ends.drain(..).map(|ended| *ended).collect();
        let streams = tokens.into_iter().filter_map(|token| self.streams.remove(token));
        ended.extend(streams.map(|stream| stream.into_ended(StreamEndCause::Stopped)));
        self.publish();
        ended
    }
}

/// The token of the inbox; tokens of sockets never reach it.
pub(super) const INBOX: u64 = u64::MAX;

/// Slots of the wheel. A timer beyond its span fires once per turn without effect.
const WHEEL_SLOTS: usize = 256;

/// Datagrams per call.
const SLOTS: usize = 64;

const MIN_EVENTS: usize = 256;

/// After this many polls without a packet, the thread sleeps until one arrives.
const IDLE_POLLS_BEFORE_SLEEP: u32 = 8;

/// Sends as soon as this much is queued: about 40 kB.
const FLUSH_AT: usize = 256;

/// The interval at which counters are published and silent streams expire.
const MAINTENANCE: Span = Span::from_millis(250);

/// How long a stopped thread tries to send what is left.
const FINISH_TIMEOUT: Span = Span::from_secs(1);
