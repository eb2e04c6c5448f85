//! A source over SRT: payloads on their way to a decoder on the codec pool.

use aulos_core::Instant;
use aulos_engine::standby::{StandbyHandle, StandbyRequest};
use aulos_proto::packets::FormatHint;
use aulos_rt::{LatestPublisher, LatestReader};
use aulos_session::srt::SrtCloseReason;

use super::link::{SrtLink, SrtLinkEvent, SrtLinkStatus};
use crate::feed::{Feeder, NextPoll, RadioStreamInfo, StreamState, StreamWriter};

/// Polls a link, and passes on what it receives.
#[derive(Debug)]
pub struct SrtFeeder {
    link: SrtLink,
    writer: StreamWriter,
    stream: LatestReader<StreamState>,
    state: LatestPublisher<SrtFeederState>,
    /// The stand-by control of the station; without one the source is always needed.
    standby: Option<StandbyHandle>,
    body: Body,
    /// Bodies so far, as the decoder counts them.
    bodies: u64,
    overflown: u64,
}

/// The state of the stream that the decoder gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// There is none.
    None,
    /// The decoder has not started it yet.
    Begins,
    /// The decoder gets it.
    Flows,
    /// The decoder has not got the end mark yet.
    Ends,
}

/// The status of a source over SRT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "status")]
pub struct SrtFeederState {
    /// The connection.
    pub link: SrtLinkStatus,
    /// The format of the stream, once it is known.
    pub info: Option<RadioStreamInfo>,
    /// Payloads for which the decoder had no room.
    pub overflown: u64,
}

impl SrtFeeder {
    /// A feeder for a reactor, and a reader of its status.
    #[must_use]
    pub fn new(
        link: SrtLink,
        writer: StreamWriter,
        stream: LatestReader<StreamState>,
    ) -> (Self, LatestReader<SrtFeederState>) {
        let (publisher, state) = aulos_rt::latest(SrtFeederState::default());
        let feeder = Self {
            link,
            writer,
            stream,
            state: publisher,
            standby: None,
            body: Body::None,
            bodies: 0,
            overflown: 0,
        };
        (feeder, state)
    }

    /// Connects it to the station's stand-by control. A caller that is not needed hangs up; a
    /// listener stays open, because its caller cannot be summoned.
    #[must_use]
    pub fn with_standby(mut self, standby: StandbyHandle) -> Self {
        self.standby = Some(standby);
        self
    }

    fn poll_link(&mut self, now: Instant) {
        let Self { link, writer, body, bodies, overflown, .. } = self;
        begin(writer, body, bodies);
        link.poll(now, |event| match event {
            SrtLinkEvent::Connected => {
                *body = Body::Begins;
                begin(writer, body, bodies);
            }
            // Only whole payloads: a piece of one would tear a packet of the transport stream.
            SrtLinkEvent::Payload(payload) => {
                if *body == Body::Flows && writer.room() >= payload.len() {
                    writer.write(&payload);
                } else {
                    *overflown += 1;
                }
            }
            SrtLinkEvent::Ended(SrtCloseReason::Closed) if *body == Body::Flows => {
                *body = Body::Ends;
            }
            // A stream that breaks off goes on with the next connection.
            SrtLinkEvent::Ended(_) => *body = Body::None,
        });
        if *body == Body::Ends && writer.end() {
            *body = Body::None;
        }
    }
}

/// Tells the decoder of a new body, as soon as it has room for that.
fn begin(writer: &mut StreamWriter, body: &mut Body, bodies: &mut u64) {
    if *body == Body::Begins && writer.begin(FormatHint::None) {
        *body = Body::Flows;
        *bodies += 1;
    }
}

impl Feeder for SrtFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.writer.is_abandoned() {
            self.link.close(now);
            return NextPoll::Never;
        }
        let request = self.standby.as_mut().map_or(StandbyRequest::Play, StandbyHandle::request);
        self.writer.set_parse_only(request != StandbyRequest::Play);
        if request == StandbyRequest::Close && self.link.is_caller() {
            if self.link.is_open() {
                self.link.close(now);
                self.body = Body::None;
            }
        } else {
            self.poll_link(now);
        }
        let stream = *self.stream.read();
        let is_current = self.body == Body::Flows && stream.body == self.bodies;
        if let Some(error) = stream.error.filter(|_| is_current) {
            self.link.refuse(error, now);
            self.body = Body::None;
        }
        let info = stream.info.filter(|_| is_current);
        let overflown = self.overflown;
        self.state.publish(SrtFeederState { link: self.link.status(), info, overflown });
        if self.link.is_open() && (self.link.is_caller() || self.link.is_connected()) {
            NextPoll::Soon
        } else {
            NextPoll::Later
        }
    }
}
