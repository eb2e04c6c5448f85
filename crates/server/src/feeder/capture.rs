//! Devices that record, as sources: PulseAudio, PipeWire and ALSA.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Backoff, Instant, Span};
use aulos_engine::standby::StandbyRequest;
use aulos_io::feed::{ByteFeed, DeviceFailure, FeedState, Feeder, NextPoll};
use aulos_player::{CaptureBackend, CaptureConfig, CaptureDevice, CaptureError};

/// Reads a device, and opens it again after a failure.
#[derive(Debug)]
pub(crate) struct CaptureFeeder {
    config: CaptureConfig,
    device: Option<Box<dyn CaptureDevice>>,
    /// Those of the open device that are counted already.
    overruns: u64,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
    /// Overruns of all devices.
    counter: Arc<AtomicU64>,
}

impl CaptureFeeder {
    pub(crate) fn new(config: CaptureConfig, feed: ByteFeed, counter: Arc<AtomicU64>) -> Self {
        let (backoff, scratch) = (Backoff::exact(FIRST_PAUSE, LONGEST_PAUSE), vec![0; READ_BYTES]);
        Self { config, device: None, overruns: 0, backoff, feed, scratch, counter }
    }

    /// Reads what has arrived; whether there was anything.
    fn read(&mut self, now: Instant) -> Result<bool, CaptureError> {
        let device = match &mut self.device {
            Some(device) => device,
            None => {
                self.overruns = 0;
                self.device.insert(self.config.open(now)?)
            }
        };
        self.feed.set_spec(device.spec());
        let mut has_read = false;
        // A device without a clock, such as ALSA's `null`, always has more.
        for _ in 0..MAX_READS {
            let room = self.feed.room().min(self.scratch.len());
            let count = device.read(now, &mut self.scratch[..room])?;
            if count == 0 {
                break;
            }
            has_read = true;
            self.feed.push(now, &self.scratch[..count]);
        }
        self.feed.flush();
        let overruns = device.overruns();
        self.counter.fetch_add(overruns - self.overruns, Ordering::Relaxed);
        self.overruns = overruns;
        Ok(has_read)
    }

    fn fail(&mut self, now: Instant, error: &CaptureError) -> NextPoll {
        self.device = None;
        self.feed.mark_lost();
        self.feed.report(FeedState::DeviceFailed(DeviceFailure::new(&error.to_string())));
        self.backoff.failed(now);
        NextPoll::Later
    }
}

impl Feeder for CaptureFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.feed.is_abandoned() {
            return NextPoll::Never;
        }
        if self.feed.poll_demand() == StandbyRequest::Close {
            self.device = None;
            self.feed.mark_ended();
            self.feed.report(FeedState::Waiting);
            return NextPoll::Later;
        }
        if self.device.is_none() && !self.backoff.is_due(now) {
            return NextPoll::Later;
        }
        match self.read(now) {
            Ok(true) => {
                self.backoff.succeeded(now);
                self.feed.report(FeedState::Running);
            }
            Ok(false) if self.device.as_ref().is_some_and(|device| device.is_suspended()) => {
                self.feed.mark_lost();
                self.feed.report(FeedState::DeviceFailed(DeviceFailure::new(SUSPENDED)));
            }
            Ok(false) => {}
            Err(error) => return self.fail(now, &error),
        }
        NextPoll::Soon
    }

    /// The plug-ins of ALSA's library may wait, as the one with a sound server behind it does.
    fn may_block(&self) -> bool {
        self.config.api == CaptureBackend::Alsa
    }
}

/// Bytes of one read: a fifth of a second of 48000:32:2.
const READ_BYTES: usize = 65_536;

/// Reads of one tick: more than a device delivers in the time between two.
const MAX_READS: usize = 8;

/// Between attempts to open the device, which is in this machine: there is no server to spare.
const FIRST_PAUSE: Span = Span::from_millis(500);
const LONGEST_PAUSE: Span = Span::from_secs(5);

const SUSPENDED: &str = "the sound server has suspended the device; it goes on when it is resumed";
