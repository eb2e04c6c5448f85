//! The kinds of descriptors that a reactor watches.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};

use super::super::connection::SendCounts;
use super::super::peer::Peer;
use super::super::web::WebListener;

pub(super) enum ReactorEntity {
    Acceptor(TcpListener),
    Peer(Box<Peer>),
    Listener(Box<WebListener>),
}

impl ReactorEntity {
    /// Set while it is queued for a slice.
    pub(super) fn queued(&mut self) -> Option<&mut bool> {
        match self {
            Self::Acceptor(_) => None,
            Self::Peer(peer) => Some(&mut peer.queued),
            Self::Listener(listener) => Some(&mut listener.queued),
        }
    }

    /// Whether its TLS handshake is not complete yet.
    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Peer(peer) if peer.connection.is_handshaking())
    }

    /// Whether it is on its way to another rendition.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self, Self::Peer(peer) if peer.continues_on.is_some())
    }

    pub(super) fn take_counts(&mut self) -> SendCounts {
        match self {
            Self::Acceptor(_) => SendCounts::default(),
            Self::Peer(peer) => peer.connection.take_counts(),
            Self::Listener(listener) => listener.take_counts(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Acceptor(listener) => listener.as_fd(),
            Self::Peer(peer) => peer.connection.as_fd(),
            Self::Listener(listener) => listener.connection.as_fd(),
        }
    }
}
