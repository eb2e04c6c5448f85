//! Stand-by: how ready a source is kept while another one plays, and the channel that controls it.
//!
//! The switch decides which sources are needed; another thread, that of a feeder or a decoder,
//! opens sockets and starts programs. One cell in each direction connects them: the station's
//! request and the state of the link. A feeder that never reads its cell stays open.

use aulos_rt::{LatestPublisher, LatestReader, latest};

/// How ready a source is kept while it is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standby {
    /// Open, decoded and buffered: ready to go on air within a quantum.
    #[default]
    Hot,
    /// Open, but its data is discarded: ready to go on air when its buffer is filled.
    Warm,
    /// Closed: ready to go on air after it has been opened.
    Cold,
}

/// What a station requests of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandbyRequest {
    /// Open it and deliver audio.
    #[default]
    Play,
    /// Keep it open and deliver nothing.
    StayOpen,
    /// Close it, if this process opened it.
    Close,
}

/// State of the connection to the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// No fault is known.
    #[default]
    Healthy,
    /// It failed to open or broke, and is opened again after a pause.
    Broken,
}

/// Creates both ends, for a source that is not needed yet.
#[must_use]
pub fn standby_channel(standby: Standby) -> (StandbyControl, StandbyHandle) {
    let last = standby.idle_request();
    let (request, requested) = latest(last);
    let (report, link) = latest(LinkState::default());
    (
        StandbyControl { request, last, link },
        StandbyHandle { requested, link: report, last: LinkState::default() },
    )
}

impl Standby {
    /// The request for a source that is not needed.
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
    /// Sets the request; returns whether it changed.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn set_request(&mut self, request: StandbyRequest) -> bool {
        let differs = request != self.last;
        if differs {
            self.last = request;
            self.request.publish(request);
        }
        differs
    }

    /// The last reported state of the link.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn link(&mut self) -> LinkState {
        *self.link.read()
    }
}

/// The end of the thread that opens and closes the source.
#[derive(Debug)]
pub struct StandbyHandle {
    requested: LatestReader<StandbyRequest>,
    link: LatestPublisher<LinkState>,
    last: LinkState,
}

impl StandbyHandle {
    /// The current request.
    pub fn request(&mut self) -> StandbyRequest {
        *self.requested.read()
    }

    /// Reports the state of the link.
    pub fn report(&mut self, link: LinkState) {
        if link != self.last {
            self.last = link;
            self.link.publish(link);
        }
    }
}
