//! The thread that reads the source, at the source's pace, and measures it.
//!
//! A station would do it all, with reactors, workers and a clock; a meter or a recorder has one source and nobody
//! to be in time for, so one thread drives the house's feeders and decoders by hand. Orders come
//! through the channel on which it sleeps.

use std::thread::JoinHandle;
use std::time::Duration;

use aulos_core::{Block, ChannelLayout, Instant, SampleRate, Span};
use aulos_dsp::meter::MeterHistory;
use aulos_engine::loudness::{Loudness, LoudnessMeter};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::SystemClock;
use aulos_rt::channel::{Receiver, TryRecvError, UnboundedSender, unbounded};
use aulos_server::exit::{Exit, Failure};
use tokio::sync::mpsc::{self, Sender};

use super::source::{OpenSource, ReadResult};

/// What the thread tells.
#[derive(Debug)]
pub(super) enum ReaderEvent {
    /// Sound comes in this shape from now on.
    #[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the screen shows it"))]
    Shape(SampleRate, ChannelLayout),
    /// New figures, once in 100 ms of sound.
    Reading(Loudness),
    /// Nobody sends just now.
    Waiting,
    /// It is over; with the last figures.
    Ended(Loudness, Result<(), Failure>),
}

/// What the thread is told.
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only keys give all of it"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderCommand {
    /// Measure anew.
    Reset,
    /// Stop measuring, or go on.
    Pause(bool),
    /// End.
    Quit,
}

/// Who hears every block besides the meter, on the thread that reads; what it cannot do ends the
/// reading.
pub(super) type BlockSink = Box<dyn FnMut(&Block) -> Result<(), Failure> + Send>;

/// The thread that measures, as the others see it.
pub(super) struct ReaderHandle {
    pub(super) events: mpsc::Receiver<ReaderEvent>,
    commands: UnboundedSender<ReaderCommand>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderHandle {
    /// Starts it under this name; with `dual_mono` one channel counts as two equal ones.
    pub(super) fn start(
        name: &str,
        source: OpenSource,
        paced: bool,
        dual_mono: bool,
        ear: Option<BlockSink>,
    ) -> Result<Self, Failure> {
        let (tell, news) = mpsc::channel(EVENT_QUEUE);
        let (orders, mut ordered) = unbounded();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || read(source, (paced, dual_mono), ear, &mut ordered, &tell))
            .map_err(|error| Failure::new(Exit::Internal, format!("no thread: {error}")))?;
        Ok(Self { events: news, commands: orders, thread: Some(thread) })
    }

    pub(super) fn send(&self, order: ReaderCommand) {
        // A thread that has ended has said so, or will be missed.
        let _ = self.commands.send(order);
    }

    /// Lets the source go, so that a program that was started for it ends before we do.
    pub(super) async fn end(&mut self) {
        self.send(ReaderCommand::Quit);
        self.events.close();
        let drained = async { while self.events.recv().await.is_some() {} };
        let ended = tokio::time::timeout(JOIN_TIMEOUT, drained).await.is_ok();
        if let Some(thread) = self.thread.take_if(|_| ended) {
            // If it panicked it has said so.
            drop(thread.join());
        }
    }
}

/// Reads until the source or the world ends it.
fn read(
    mut source: OpenSource,
    (paced, dual_mono): (bool, bool),
    ear: Option<BlockSink>,
    orders: &mut Receiver<ReaderCommand>,
    news: &Sender<ReaderEvent>,
) {
    let mut reader = SourceReader {
        meter: None,
        dual_mono,
        shape: None,
        paced: paced && source.has_no_clock(),
        due: Instant::ZERO,
        waiting: false,
        sink: ear,
        commands: orders,
        events: news,
    };
    let result = match reader.run(&mut source) {
        Ok(()) | Err(StopReason::Quit) => Ok(()),
        Err(StopReason::Failed(failure)) => Err(failure),
    };
    // Before anything is said: a program that was started ends with its source.
    drop(source);
    let last = reader.meter.as_mut().map_or(Loudness::NONE, LoudnessMeter::finish);
    // Whoever does not listen any more does not want to know.
    drop(news.blocking_send(ReaderEvent::Ended(last, result)));
}

enum StopReason {
    Quit,
    Failed(Failure),
}

struct SourceReader<'a> {
    meter: Option<LoudnessMeter>,
    /// One channel counts as two equal ones.
    dual_mono: bool,
    shape: Option<(SampleRate, ChannelLayout)>,
    paced: bool,
    /// When the next block is over, if the pace is ours.
    due: Instant,
    waiting: bool,
    sink: Option<BlockSink>,
    commands: &'a mut Receiver<ReaderCommand>,
    events: &'a Sender<ReaderEvent>,
}

impl SourceReader<'_> {
    fn run(&mut self, source: &mut OpenSource) -> Result<(), StopReason> {
        let mut block =
            Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
        self.due = SystemClock::now();
        loop {
            match source.next(SystemClock::now(), &mut block).map_err(StopReason::Failed)? {
                ReadResult::Block => {
                    self.pace(&block)?;
                    if let Some(ear) = &mut self.sink {
                        ear(&block).map_err(StopReason::Failed)?;
                    }
                    self.measure(&block)?;
                }
                ReadResult::Pending(pause) => {
                    let gone = core::mem::replace(&mut self.waiting, source.is_waiting());
                    if self.waiting && !gone {
                        self.send(ReaderEvent::Waiting)?;
                    }
                    self.sleep(pause)?;
                }
                ReadResult::End if self.shape.is_none() => {
                    return Err(StopReason::Failed(Failure::new(
                        Exit::NoInput,
                        "no sound came from it",
                    )));
                }
                ReadResult::End => return Ok(()),
            }
        }
    }

    fn pace(&mut self, block: &Block) -> Result<(), StopReason> {
        if !self.paced {
            return self.sleep(Span::ZERO);
        }
        self.due += block.rate().span(block.frames());
        // After a standstill of the machine it goes on; it does not run after the lost time.
        self.due = self.due.max(SystemClock::now() - MAX_CATCH_UP);
        loop {
            let left = self.due - SystemClock::now();
            self.sleep(left)?;
            if left <= Span::ZERO {
                return Ok(());
            }
        }
    }

    fn measure(&mut self, block: &Block) -> Result<(), StopReason> {
        let (rate, layout) = (block.rate(), block.layout());
        if self.shape.replace((rate, layout)) != Some((rate, layout)) {
            if let Some(gauge) = &mut self.meter {
                gauge.set_format(rate, layout);
            }
            self.send(ReaderEvent::Shape(rate, layout))?;
        }
        let make = if self.dual_mono { LoudnessMeter::dual_mono } else { LoudnessMeter::new };
        let mut gauge = self.meter.take().unwrap_or_else(|| make(rate, layout, HISTORY));
        // In pieces that are shorter than 100 ms, so that no figures are passed over.
        let piece = rate.frames(Span::from_millis(50)).as_usize().max(1) * layout.channels();
        for samples in block.samples().chunks(piece) {
            if gauge.push(samples) {
                self.send(ReaderEvent::Reading(gauge.loudness()))?;
            }
        }
        self.meter = Some(gauge);
        Ok(())
    }

    /// Waits, and does what comes in meanwhile.
    fn sleep(&mut self, pause: Span) -> Result<(), StopReason> {
        let pause = Duration::from_nanos(u64::try_from(pause.as_nanos()).unwrap_or(0));
        match self.commands.recv_timeout(pause) {
            Ok(ReaderCommand::Quit) | Err(TryRecvError::Closed) => Err(StopReason::Quit),
            Ok(ReaderCommand::Reset) => {
                if let Some(gauge) = &mut self.meter {
                    gauge.reset();
                    let loudness = gauge.loudness();
                    self.send(ReaderEvent::Reading(loudness))?;
                }
                Ok(())
            }
            Ok(ReaderCommand::Pause(paused)) => {
                if let Some(gauge) = &mut self.meter {
                    gauge.pause(paused);
                }
                Ok(())
            }
            Err(TryRecvError::Empty) => Ok(()),
        }
    }

    fn send(&self, news: ReaderEvent) -> Result<(), StopReason> {
        self.events.blocking_send(news).map_err(|_| StopReason::Quit)
    }
}

/// What the pace makes up for.
const MAX_CATCH_UP: Span = Span::from_secs(1);

/// A day exactly; from then on the last day.
const HISTORY: MeterHistory = MeterHistory::Bounded { ms: 86_400_000 };

/// The thread panicked, and has said why.
pub(super) fn thread_panicked() -> Failure {
    Failure::new(Exit::Internal, "the meter broke down")
}

/// Readings that may wait for a reader of ours that is slow; more, and the source waits.
const EVENT_QUEUE: usize = 64;

/// For a disk that does not answer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
