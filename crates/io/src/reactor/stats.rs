//! The counters of a reactor.

use aulos_proto::snap::session::CloseReason;

use super::SessionEndCause;
use super::connection::SendCounts;

/// Counters of a reactor.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorStats {
    /// Snapcast sessions that have sent their Hello.
    pub sessions: u64,
    /// Web listeners.
    pub listeners: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections that could not be accepted (no descriptors left).
    pub accept_errors: u64,
    /// Connections that were closed at once because their address has too many.
    pub refused: u64,
    /// Connections that were closed at once because their address opened them too fast.
    pub refused_too_fast: u64,
    /// Completed TLS handshakes.
    pub tls_sessions: u64,
    /// Sessions cut because of invalid TLS.
    pub tls_failed: u64,
    /// Sessions cut because their TLS handshake did not finish.
    pub tls_unfinished: u64,
    /// Connections that the peer closed, or that were lost, during their TLS handshake.
    pub tls_closed: u64,
    /// Sessions cut because they do not use TLS although it is required.
    pub plain_refused: u64,
    /// Sessions that failed to authenticate.
    pub unauthorized: u64,
    /// Chunks passed to the kernel.
    pub chunks_sent: u64,
    /// Sends that copy into the kernel.
    pub sends: u64,
    /// The bytes of these sends.
    pub bytes: u64,
    /// Sends from the memory of the chunks.
    pub zero_copy_sends: u64,
    /// The bytes of these sends.
    pub zero_copy_bytes: u64,
    /// Completions of these sends for which the kernel copied after all.
    pub zero_copy_copied: u64,
    /// Sends that were copied because the kernel had no memory for the notification.
    pub zero_copy_fallbacks: u64,
    /// Chunks skipped because a session was too slow.
    pub chunks_lagged: u64,
    /// Sessions closed by the peer.
    pub closed: u64,
    /// Sessions that ended by a network failure.
    pub network: u64,
    /// Sessions cut because they did not read.
    pub not_reading: u64,
    /// Sessions cut because they sent no Hello.
    pub no_hello: u64,
    /// Sessions cut because of another protocol violation.
    pub protocol: u64,
}

impl ReactorStats {
    pub(super) const fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.listeners += other.listeners;
        self.accepted += other.accepted;
        self.accept_errors += other.accept_errors;
        self.refused += other.refused;
        self.refused_too_fast += other.refused_too_fast;
        self.tls_sessions += other.tls_sessions;
        self.tls_failed += other.tls_failed;
        self.tls_unfinished += other.tls_unfinished;
        self.tls_closed += other.tls_closed;
        self.plain_refused += other.plain_refused;
        self.unauthorized += other.unauthorized;
        self.chunks_sent += other.chunks_sent;
        self.sends += other.sends;
        self.bytes += other.bytes;
        self.zero_copy_sends += other.zero_copy_sends;
        self.zero_copy_bytes += other.zero_copy_bytes;
        self.zero_copy_copied += other.zero_copy_copied;
        self.zero_copy_fallbacks += other.zero_copy_fallbacks;
        self.chunks_lagged += other.chunks_lagged;
        self.closed += other.closed;
        self.network += other.network;
        self.not_reading += other.not_reading;
        self.no_hello += other.no_hello;
        self.protocol += other.protocol;
    }

    pub(super) const fn add_sends(&mut self, tally: SendCounts) {
        self.sends += tally.sends;
        self.bytes += tally.bytes;
        self.zero_copy_sends += tally.zero_sends;
        self.zero_copy_bytes += tally.zero_bytes;
        self.zero_copy_copied += tally.zero_copied;
        self.zero_copy_fallbacks += tally.zero_fallbacks;
    }

    pub(super) const fn count_session_end(&mut self, cause: SessionEndCause) {
        match cause {
            SessionEndCause::Closed | SessionEndCause::Kicked => self.closed += 1,
            SessionEndCause::Network => self.network += 1,
            SessionEndCause::NotReading => self.not_reading += 1,
            SessionEndCause::TlsFailed => self.tls_failed += 1,
            SessionEndCause::TlsUnfinished => self.tls_unfinished += 1,
            SessionEndCause::PlainRefused => self.plain_refused += 1,
            SessionEndCause::Protocol(CloseReason::Refused) => self.unauthorized += 1,
            SessionEndCause::Protocol(CloseReason::NoHello) => self.no_hello += 1,
            SessionEndCause::Protocol(_) => self.protocol += 1,
        }
    }
}
