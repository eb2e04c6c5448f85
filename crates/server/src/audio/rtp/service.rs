//! The thread that all RTP sources and outputs share, and the sources that wait for their socket.

use std::io;

use aulos_config::SourceConfig;
use aulos_config::source::RtpSource;
use aulos_core::{Backoff, Instant, Span};
use aulos_io::udp::{self, Interface, InterfaceTable, StreamId, UdpContext};
use aulos_session::rtp::{RtpInputSink, RtpSession};

use super::handles::SharedError;

/// The shared RTP thread, and the sources that wait to be opened.
#[derive(Debug)]
pub(in crate::audio) struct RtpService {
    /// Created by the first source or output.
    pub(super) context: Option<UdpContext<RtpSession>>,
    pub(super) waiting: Vec<PendingRtpSource>,
    /// Sources that are open.
    pub(super) receiving: Vec<OpenRtpSource>,
    /// When to look at the network interfaces again, and what the last look has shown.
    pub(super) look_at: Instant,
    pub(super) interfaces: Option<InterfaceTable>,
}

impl Default for RtpService {
    fn default() -> Self {
        let (waiting, receiving) = (Vec::new(), Vec::new());
        Self { context: None, waiting, receiving, look_at: Instant::ZERO, interfaces: None }
    }
}

impl RtpService {
    pub(super) fn context(&mut self) -> io::Result<&mut UdpContext<RtpSession>> {
        if self.context.is_none() {
            let mut config = udp::UdpConfig::default();
            config.threads = 1;
            self.context = Some(UdpContext::start(&config)?);
        }
        self.context.as_mut().ok_or_else(|| io::Error::other("the RTP service is missing"))
    }

    /// Ends every session; receivers get a BYE.
    pub(in crate::audio) fn stop(&mut self) {
        self.waiting.clear();
        if let Some(context) = self.context.take() {
            drop(context.stop());
        }
    }

    /// Frees sessions that have ended.
    pub(in crate::audio) fn free_ended_sessions(&mut self) {
        if let Some(context) = &mut self.context {
            while let Some(ended) = context.poll_ended() {
                self.receiving.retain(|one| one.stream != ended.id);
            }
        }
    }
}

/// An RTP source that is not open yet.
#[derive(Debug)]
pub(super) struct PendingRtpSource {
    pub(super) config: SourceConfig,
    pub(super) buffer: Span,
    /// None once it is open.
    pub(super) intake: Option<RtpInputSink>,
    pub(super) problem: SharedError,
    pub(super) backoff: Backoff,
}

/// An RTP source that is open.
#[derive(Debug)]
pub(super) struct OpenRtpSource {
    pub(super) stream: StreamId,
    pub(super) source: RtpSource,
    /// The interface on which it has joined its group; none for unicast.
    pub(super) interface: Option<Interface>,
    /// The interface is gone.
    pub(super) is_unreachable: bool,
    pub(super) problem: SharedError,
}
