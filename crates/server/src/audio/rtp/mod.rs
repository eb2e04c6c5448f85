//! RTP sources and outputs of stations: opens their sockets, and retries those that fail.
//!
//! They all share one thread, separate from the relays' threads: a thousand relayed streams on the
//! same thread would add jitter to what a station sends.

mod input;
mod output;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use aulos_io::udp::{self, UdpContext};
use aulos_session::rtp::RtpSession;

use input::PendingRtpSource;
pub(super) use input::{RtpSourceHandle, open};
pub(super) use output::{StationRtpOutput, change, end, open_outputs, start};

/// The shared RTP thread, and the sources that wait to be opened.
#[derive(Debug, Default)]
pub(super) struct RtpService {
    /// Created by the first source or output.
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
        self.context.as_mut().ok_or_else(|| io::Error::other("the RTP service is missing"))
    }

    /// Ends every session; receivers get a BYE.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
        if let Some(context) = self.context.take() {
            drop(context.stop());
        }
    }

    /// Frees sessions that have ended.
    pub(super) fn tidy(&mut self) {
        if let Some(context) = &mut self.context {
            while context.poll_ended().is_some() {}
        }
    }
}

/// An error text for the status, shared by the retry loop and the status.
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

/// Kernel receive buffer, for packets that arrive while the shared thread is busy.
const SOCKET_BUFFER: usize = 1 << 20;
