//! The connection to the server, and what outlives it: the estimate of the server's clock.

use aulos_core::{Instant, Span};
use aulos_proto::snap::SnapcastClient;
use aulos_proto::snap::client::ClientConfig;
use aulos_proto::snap::sync::{OffsetFilter, TimeSync};
use aulos_proto::snap::wire::Hello;

/// The state of the connection.
#[derive(Debug)]
pub(crate) enum Connection {
    /// Not connected: the next attempt is due at this time.
    Waiting { retry_at: Instant, sync: Option<TimeSync> },
    /// The program is connecting.
    Connecting { sync: Option<TimeSync> },
    /// Connected since this time.
    Connected { client: Box<SnapcastClient>, since: Instant },
}

impl Connection {
    pub(crate) const fn new(now: Instant) -> Self {
        Self::Waiting { retry_at: now, sync: None }
    }

    /// Whether to connect now. The answer is true once.
    pub(crate) fn wants_to_connect(&mut self, now: Instant) -> bool {
        match self {
            Self::Waiting { retry_at, sync } if *retry_at <= now => {
                *self = Self::Connecting { sync: sync.take() };
                true
            }
            _ => false,
        }
    }

    /// On a way that loses messages (`is_lossy`), a request without a reply is repeated.
    pub(crate) fn begin(&mut self, hello: Hello, is_lossy: bool, now: Instant) {
        let config = ClientConfig { hello, filter: OffsetFilter::Bounds };
        let client = SnapcastClient::new(config, now);
        let client = match self.take_sync() {
            Some(sync) => client.with_sync(sync, now),
            None => client,
        };
        let client = if is_lossy { client.lossy() } else { client };
        *self = Self::Connected { client: Box::new(client), since: now };
    }

    /// The connection or the attempt has ended; the next attempt is due at `retry_at`.
    pub(crate) fn end(&mut self, retry_at: Instant) {
        if !matches!(self, Self::Waiting { .. }) {
            *self = Self::Waiting { retry_at, sync: self.take_sync() };
        }
    }

    fn take_sync(&mut self) -> Option<TimeSync> {
        let empty = Self::Connecting { sync: None };
        match core::mem::replace(self, empty) {
            Self::Waiting { sync, .. } | Self::Connecting { sync } => sync,
            Self::Connected { client, .. } => Some(client.into_sync()),
        }
    }

    pub(crate) fn client(&mut self) -> Option<&mut SnapcastClient> {
        match self {
            Self::Connected { client, .. } => Some(client),
            Self::Waiting { .. } | Self::Connecting { .. } => None,
        }
    }

    /// The estimate of the server's clock, of this connection or of the one before.
    pub(crate) fn sync(&self) -> Option<&TimeSync> {
        match self {
            Self::Waiting { sync, .. } | Self::Connecting { sync } => sync.as_ref(),
            Self::Connected { client, .. } => Some(client.sync()),
        }
    }

    /// Whether the clock is known well enough to begin: after the first burst of exchanges, or
    /// after a few seconds with a server that answers slowly.
    pub(crate) fn knows_time(&self, now: Instant) -> bool {
        let Self::Connected { client, since } = self else { return false };
        let sync = client.sync();
        sync.is_settled() || (now - *since >= MAX_SETTLING && sync.exchanges() >= MIN_EXCHANGES)
    }

    /// Whether the clock is known to within `error`, perhaps before the first burst is over.
    pub(crate) fn knows_time_within(&self, now: Instant, error: Span) -> bool {
        let Self::Connected { client, .. } = self else { return false };
        let sync = client.sync();
        sync.exchanges() >= MIN_EXCHANGES
            && sync.line_at(now).is_some_and(|line| line.error <= error)
    }

    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    /// Whether the clock is known and nothing is to be measured now.
    pub(crate) fn is_unhurried(&self) -> bool {
        let Self::Connected { client, .. } = self else { return false };
        let sync = client.sync();
        sync.is_settled() && sync.is_precise() && !sync.is_awaiting_reply()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Waiting { retry_at, .. } => Some(*retry_at),
            Self::Connecting { .. } => None,
            // The next exchange can wait for a wake-up of the device.
            Self::Connected { client, .. } if self.is_unhurried() => {
                client.poll_timeout().map(|at| at + MAX_DELAY)
            }
            Self::Connected { client, .. } => client.poll_timeout(),
        }
    }
}

/// A regular exchange may be so much later than it is due: a wake-up costs more than to play what
/// the device takes at once.
const MAX_DELAY: Span = Span::from_millis(60);

/// With this many exchanges after [`MAX_SETTLING`], sound begins although the burst is not over.
const MIN_EXCHANGES: usize = 8;
const MAX_SETTLING: Span = Span::from_secs(3);
