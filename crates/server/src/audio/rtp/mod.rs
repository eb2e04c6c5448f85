//! RTP of stations: sockets for sources and for outputs, opened as far as that is possible now, and
//! tried again where it is not.
//!
//! All of them are on one shared thread, and not on those of relays: a thousand streams in the same
//! turn would be heard in the pace of what a station sends.

mod input;
mod output;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use aulos_io::rtp::RtpSession;
use aulos_io::udp::{self, UdpContext};

use input::PendingRtpSource;
pub(super) use input::{RtpSourceHandle, open};
pub(super) use output::{StationRtpOutput, change, end, open_outputs, start};

/// What is on the shared thread, and what waits to be.
#[derive(Debug, Default)]
pub(super) struct RtpService {
    /// Begun by the first who needs it.
    context: Option<UdpContext<RtpSession>>,
    waiting: Vec<PendingRtpSource>,
}

impl RtpService {
    fn context(&mut self) -> io::Result<&mut UdpContext<RtpSession>> {
        if self.context.is_none() {
            let mut config = udp::UdpConfig::default();
            config.threads = 1;
            self.context = Some(UdpContext::start(&config)?);
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
            while context.poll_ended().is_some() {}
        }
    }
}

/// Why something is not open, for people to read; shared by who tries and who shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedError(Arc<Mutex<Option<String>>>);

impl SharedError {
    pub(super) fn text(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, text: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// What the kernel keeps of packets while the shared thread does something else.
const SOCKET_BUFFER: usize = 1 << 20;
