//! Clients whose connection began as an HTTP request, which others have answered.

use std::net::TcpStream;
use std::os::fd::AsFd as _;

use aulos_core::Instant;
use rustix::event::epoll::EventFlags;

use super::super::peer::Peer;
use super::socket::configure_socket;
use super::{Reactor, ReactorEntity};
use crate::SystemClock;

impl Reactor {
    /// Adds a client. `read` is what it has said right behind its request: its Hello, perhaps.
    pub(super) fn add_upgraded<C>(
        &mut self,
        client: C,
        socket: fn(&C) -> &TcpStream,
        read: &[u8],
        into_peer: fn(C, u16, Instant) -> Peer,
    ) {
        let plain = socket(&client);
        if plain.set_nonblocking(true).and_then(|()| configure_socket(plain.as_fd())).is_err() {
            return;
        }
        self.stats.accepted += 1;
        let phase = self.wheel.next_phase();
        let mut peer = Box::new(into_peer(client, phase, SystemClock::now()));
        let mut events = Vec::new();
        let result = peer.handle_bytes(read, &mut events);
        let token = self.entities.insert_with(|_| ReactorEntity::Peer(peer));
        self.watch(token, EventFlags::IN);
        events.into_iter().for_each(|event| self.handle_peer_event(token, event));
        match result {
            // The kernel does not report bytes that TLS has already decrypted.
            Ok(()) => self.receive(token),
            Err(cause) => self.close(token, cause),
        }
    }
}
