//! The connections of a source, and which of them has it.
//!
//! A player is played by one server. Another one that is let in takes its place if it wants at least
//! as much (`connection.md` of the specification); of two that want nothing, the first stays.

use std::sync::Arc;

use aulos_core::Instant;
use aulos_proto::sendspin::{
    ClientIdentity, PlayerDelays, PlayerHello, SendspinClient, SendspinClientError, ServerActivity,
};

/// The connections of a source.
#[derive(Debug)]
pub(super) struct Peers {
    identity: Arc<ClientIdentity>,
    hello: Arc<PlayerHello>,
    delays: PlayerDelays,
    all: Vec<Peer>,
    /// The connection that has the source.
    admitted: Option<u32>,
}

/// A connection, known by a number of its driver.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) number: u32,
    pub(super) client: SendspinClient,
    /// The server's name for people.
    pub(super) name: String,
    /// What was counted of its malformed messages.
    pub(super) malformed: u64,
}

/// What becomes of a connection that is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It has the source already.
    Same,
    /// It has the source, which nobody had.
    First,
    /// It has the source, and this one has lost it.
    InPlaceOf(u32),
    /// Another one keeps the source.
    No,
}

impl Peers {
    pub(super) const fn new(
        identity: Arc<ClientIdentity>,
        hello: Arc<PlayerHello>,
        delays: PlayerDelays,
    ) -> Self {
        Self { identity, hello, delays, all: Vec::new(), admitted: None }
    }

    /// Adds a connection; false if there are too many.
    pub(super) fn add(&mut self, number: u32, seed: [u8; 32], now: Instant) -> bool {
        if self.all.len() >= MAX_PEERS {
            return false;
        }
        let (identity, hello) = (Arc::clone(&self.identity), Arc::clone(&self.hello));
        let client = SendspinClient::new(identity, hello, self.delays, (seed, now));
        self.all.push(Peer { number, client, name: String::new(), malformed: 0 });
        true
    }

    /// Sets what all servers are told of the delay.
    pub(super) fn set_delays(&mut self, now: Instant, delays: PlayerDelays) {
        self.delays = delays;
        self.all.iter_mut().for_each(|peer| peer.client.set_delays(now, delays));
    }

    /// A connection that is over keeps the source no longer; true if it had it.
    pub(super) fn release(&mut self, number: u32) -> bool {
        self.admitted.take_if(|admitted| *admitted == number).is_some()
    }

    /// Removes a connection to which nothing more is sent.
    pub(super) fn remove(&mut self, number: u32) {
        self.release(number);
        self.all.retain(|peer| peer.number != number);
    }

    /// A server uses the source, or wants to: decides whether it may.
    pub(super) fn admit(&mut self, number: u32) -> Admitted {
        let Some(has) = self.admitted else {
            self.admitted = Some(number);
            return Admitted::First;
        };
        if has == number {
            return Admitted::Same;
        }
        let wants = |number| self.get(number).map(|peer| peer.client.activity());
        let (old, new) = (wants(has), wants(number));
        if new < old || new <= Some(ServerActivity::None) {
            return Admitted::No;
        }
        self.admitted = Some(number);
        Admitted::InPlaceOf(has)
    }

    /// The connection that has the source.
    pub(super) fn admitted(&self) -> Option<&Peer> {
        self.get(self.admitted?)
    }

    pub(super) fn admitted_mut(&mut self) -> Option<&mut Peer> {
        self.get_mut(self.admitted?)
    }

    pub(super) fn is_admitted(&self, number: u32) -> bool {
        self.admitted == Some(number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Peer> {
        self.all.iter_mut().find(|peer| peer.number == number)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let mut numbers = [None; MAX_PEERS];
        for (slot, peer) in numbers.iter_mut().zip(&self.all) {
            *slot = Some(peer.number);
        }
        numbers.into_iter().flatten()
    }

    pub(super) const fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Ends a connection with a goodbye, where the reason has one.
    pub(super) fn close(&mut self, number: u32, why: SendspinClientError) {
        if let Some(peer) = self.get_mut(number) {
            peer.client.close(why);
        }
    }

    fn get(&self, number: u32) -> Option<&Peer> {
        self.all.iter().find(|peer| peer.number == number)
    }
}

/// Connections at once: the one that plays, one that takes its place, one that pairs, and a stranger.
pub const MAX_PEERS: usize = 4;
