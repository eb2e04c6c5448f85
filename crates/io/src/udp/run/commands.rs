//! Commands from control to a thread, handled between two batches.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;

use aulos_core::Span;
use aulos_rt::channel::TryRecvError;
use aulos_session::datagram::Machine;

use super::super::shared::{PortId, StreamTable};
use super::super::stream::HandedOverStream;
use super::super::{StreamEndCause, StreamId, StreamReport, ThreadCommand};
use super::buffers::ReceiveBuffers;
use super::{SocketRole, UdpThread, WatchedSocket};
use crate::SystemClock;

impl<M: Machine> UdpThread<M> {
    pub(super) fn read_inbox(&mut self) {
        // Reads until the inbox is empty: only then does the next command wake this thread.
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.handle_command(command),
                Err(TryRecvError::Empty) => return,
                // The sending side is gone.
                Err(TryRecvError::Closed) => {
                    self.stopped = true;
                    return;
                }
            }
        }
    }

    fn handle_command(&mut self, command: ThreadCommand<M>) {
        match command {
            ThreadCommand::Add(stream) => self.add(*stream),
            ThreadCommand::OpenPort(port) => self.open(port.0, port.1),
            ThreadCommand::ClosePort(port) => self.close(port),
            ThreadCommand::ToStream(stream, command) => {
                let Some(&token) = self.streams.tokens.get(&stream) else { return };
                let now = SystemClock::now();
                self.streams.with_stream(token, &mut self.queue, now, |stream, out| {
                    stream.machine.handle_command(now, command, out);
                });
            }
            ThreadCommand::Remove(stream) => {
                if let Some(&token) = self.streams.tokens.get(&stream) {
                    self.end(token, StreamEndCause::Removed);
                }
            }
            ThreadCommand::ReplaceSocket(stream, socket) => self.replace_socket(stream, socket),
            // The caller waits for the answer. If it is gone, the answer is dropped, and with it
            // the stream ends.
            ThreadCommand::Detach(stream, reply) => drop(reply.try_send(self.detach(stream))),
            ThreadCommand::Report(mut list, reply) => {
                let streams = &self.streams;
                list.extend(streams.tokens.values().filter_map(|token| {
                    let stream = streams.all.get(*token)?;
                    let report = stream.machine.report();
                    Some(StreamReport { id: stream.id, stats: stream.stats, report })
                }));
                drop(reply.try_send(list));
            }
            ThreadCommand::Stop => self.stopped = true,
        }
    }

    fn add(&mut self, moving: HandedOverStream<M>) {
        let HandedOverStream { id, machine, socket, lost, second, claim, stats } = moving;
        let now = SystemClock::now();
        // Its socket may hold packets that arrived before the move; they are read at the next poll.
        self.earliest_unread = self.earliest_unread.min(now - MAX_SOCKET_BACKLOG);
        self.unread = true;
        // The socket is watched for a stream whose token is known only after it was added.
        let had_socket = socket.is_some();
        let socket = socket.and_then(|socket| self.watch(socket, SocketRole::Sending, lost));
        let token = self.streams.add((id, machine, stats), socket, None, now);
        if let Some(key) = claim {
            self.streams.claim(token, key);
        }
        match socket.and_then(|socket| self.sockets.get_mut(socket)) {
            Some(socket) => socket.kind = SocketRole::Own(token),
            None if had_socket => return self.end(token, StreamEndCause::WatchFailed),
            None => {}
        }
        let Some((socket, lost)) = second else { return };
        match (self.watch(socket, SocketRole::Second(token), lost), self.streams.all.get_mut(token))
        {
            (Some(socket), Some(stream)) => stream.second = Some(socket),
            _ => self.end(token, StreamEndCause::WatchFailed),
        }
    }

    /// A socket that cannot be watched changes nothing.
    fn replace_socket(&mut self, id: StreamId, socket: UdpSocket) {
        let Some(&token) = self.streams.tokens.get(&id) else { return };
        // What is queued leaves by the socket for which it was meant.
        self.send();
        let Some(new) = self.watch(socket, SocketRole::Own(token), 0) else { return };
        let Some(stream) = self.streams.all.get_mut(token) else { return };
        let old = stream.socket.replace(new);
        drop(self.detach_socket(token, &None, old));
    }

    fn detach(&mut self, id: StreamId) -> Option<Box<HandedOverStream<M>>> {
        let token = *self.streams.tokens.get(&id)?;
        // Streams of a shared port stay where the kernel delivers their packets.
        if self.streams.all.get(token)?.key.is_some() {
            return None;
        }
        self.send();
        let stream = self.streams.remove(token)?;
        let socket = self.detach_socket(token, &None, stream.socket);
        let second = self.detach_socket(token, &None, stream.second);
        let second = second.map(|socket| (socket.socket, socket.lost));
        let (socket, lost) = socket.map_or((None, 0), |socket| (Some(socket.socket), socket.lost));
        let (machine, claim, stats) = (stream.machine, stream.claim, stream.stats);
        Some(Box::new(HandedOverStream { id, machine, socket, lost, second, claim, stats }))
    }

    fn open(&mut self, socket: UdpSocket, table: StreamTable<M>) {
        if table.joined {
            // Where this is unsupported, datagrams arrive one by one.
            drop(crate::sys::receive_joined(socket.as_fd()));
            self.joined_buffers.get_or_insert_with(ReceiveBuffers::for_joined);
        }
        let _ = self.watch(socket, SocketRole::Shared(Box::new(table)), 0);
    }

    fn close(&mut self, port: PortId) {
        let is_it = |socket: &WatchedSocket<M>| matches!(&socket.kind, SocketRole::Shared(table) if table.port == port);
        let Some(token) =
            self.sockets.tokens().find(|token| self.sockets.get(*token).is_some_and(is_it))
        else {
            return;
        };
        let Some(SocketRole::Shared(table)) = self.sockets.get(token).map(|socket| &socket.kind)
        else {
            return;
        };
        let streams: Vec<u64> = table.streams.values().copied().collect();
        for stream in streams {
            self.end(stream, StreamEndCause::Removed);
        }
        self.unwatch(token);
    }
}

/// The greatest age of packets in a socket that is added.
const MAX_SOCKET_BACKLOG: Span = Span::from_secs(1);
