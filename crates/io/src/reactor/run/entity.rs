//! What a reactor has a descriptor of.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};

use super::super::line::Tally;
use super::super::peer::Peer;
use super::super::web::Listener;

pub(super) enum Entity {
    Acceptor(TcpListener),
    Peer(Box<Peer>),
    Web(Box<Listener>),
}

impl Entity {
    /// Whether it is in the line for slices.
    pub(super) fn queued(&mut self) -> Option<&mut bool> {
        match self {
            Self::Acceptor(_) => None,
            Self::Peer(peer) => Some(&mut peer.queued),
            Self::Web(listener) => Some(&mut listener.queued),
        }
    }

    pub(super) fn take_tally(&mut self) -> Tally {
        match self {
            Self::Acceptor(_) => Tally::default(),
            Self::Peer(peer) => peer.line.take_tally(),
            Self::Web(listener) => listener.take_tally(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Acceptor(listener) => listener.as_fd(),
            Self::Peer(peer) => peer.line.as_fd(),
            Self::Web(listener) => listener.line.as_fd(),
        }
    }
}
