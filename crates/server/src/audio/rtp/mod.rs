//! RTP of stations: sockets for sources and for outputs, opened as far as that is possible now, and
//! tried again where it is not.
//!
//! All of them are on one shared thread, and not on those of relays: a thousand streams in the same
//! turn would be heard in the pace of what a station sends.

mod inward;
mod outward;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use aulos_io::rtp::Session;
use aulos_io::udp::{self, Context};

use inward::Waiting;
pub(super) use inward::{Received, open};
pub(super) use outward::{Sent, change, end, look_at_outputs, start};

/// What is on the shared thread, and what waits to be.
#[derive(Debug, Default)]
pub(super) struct Rtp {
    /// Begun by the first who needs it.
    context: Option<Context<Session>>,
    waiting: Vec<Waiting>,
}

impl Rtp {
    fn context(&mut self) -> io::Result<&mut Context<Session>> {
        if self.context.is_none() {
            let mut config = udp::Config::default();
            config.threads = 1;
            self.context = Some(Context::start(&config)?);
        }
        self.context.as_mut().ok_or_else(|| io::Error::other("it has just been made"))
    }

    /// Ends everything: who listens is told.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
        if let Some(context) = self.context.take() {
            drop(context.stop());
        }
    }

    /// Frees what has ended.
    pub(super) fn tidy(&mut self) {
        if let Some(context) = &mut self.context {
            while context.ended().is_some() {}
        }
    }
}

/// Why something is not open, for people to read; shared by who tries and who shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Problem(Arc<Mutex<Option<String>>>);

impl Problem {
    pub(super) fn text(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, text: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// What the kernel keeps of packets while the shared thread does something else.
const SOCKET_BUFFER: usize = 1 << 20;
