//! How ready a source is kept while another one plays, and the line on which that is told.
//!
//! The switch knows who is needed; who opens sockets and starts programs is another thread, that of
//! a feeder or a decoder. Between them is one cell each way: what the station wishes, and what is
//! known of the other end. A feeder that never looks is simply always open.

use aulos_rt::{LatestPublisher, LatestReader, latest};

/// How ready a source is kept while it is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standby {
    /// Open, decoded and buffered: it can be on air within a quantum.
    #[default]
    Hot,
    /// Open, and what comes is thrown away: it can be on air when its buffer is filled.
    Warm,
    /// Closed: it can be on air when it has been opened.
    Cold,
}

/// What a station wishes of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandbyRequest {
    /// Sound.
    #[default]
    Play,
    /// That it stays open, and hands nothing over.
    StayOpen,
    /// That it is closed, as far as it was we who opened it.
    Close,
}

/// What is known of the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// Nothing is wrong with it.
    #[default]
    Open,
    /// It could not be opened or broke, and is opened again after a pause.
    Broken,
}

/// The station's end and the feeder's, for a source that is not needed yet.
#[must_use]
pub fn standby_channel(standby: Standby) -> (StandbyControl, StandbyHandle) {
    let last = standby.idle_request();
    let (wish, wished) = latest(last);
    let (told, link) = latest(LinkState::default());
    (
        StandbyControl { request: wish, last, link },
        StandbyHandle { requested: wished, link: told, last: LinkState::default() },
    )
}

impl Standby {
    /// What is wished of a source that is not needed.
    #[must_use]
    pub const fn idle_request(self) -> StandbyRequest {
        match self {
            Self::Hot => StandbyRequest::Play,
            Self::Warm => StandbyRequest::StayOpen,
            Self::Cold => StandbyRequest::Close,
        }
    }
}

/// The station's end.
#[derive(Debug)]
pub struct StandbyControl {
    request: LatestPublisher<StandbyRequest>,
    last: StandbyRequest,
    link: LatestReader<LinkState>,
}

impl StandbyControl {
    /// Says what is wished from now on; true when that is something else than before.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn set_request(&mut self, wish: StandbyRequest) -> bool {
        let differs = wish != self.last;
        if differs {
            self.last = wish;
            self.request.publish(wish);
        }
        differs
    }

    /// What was told last.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn link(&mut self) -> LinkState {
        *self.link.read()
    }
}

/// The end of whoever opens and closes.
#[derive(Debug)]
pub struct StandbyHandle {
    requested: LatestReader<StandbyRequest>,
    link: LatestPublisher<LinkState>,
    last: LinkState,
}

impl StandbyHandle {
    /// What is wished now.
    pub fn request(&mut self) -> StandbyRequest {
        *self.requested.read()
    }

    /// Tells of the other end.
    pub fn report(&mut self, link: LinkState) {
        if link != self.last {
            self.last = link;
            self.link.publish(link);
        }
    }
}
