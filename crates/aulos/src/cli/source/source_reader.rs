//! The thread that reads a source at the source's pace and measures it.
//!
//! A station would bring reactors, workers and a clock; a meter or a recorder has one source and no
//! deadline, so a single thread drives the feeder and the decoder. It sleeps on a channel that is
//! closed to end it.

use std::convert::Infallible;
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

use crate::cli::source::{OpenSource, ReadResult};

/// Events of the thread.
#[derive(Debug)]
pub(crate) enum ReaderEvent {
    /// A new reading, every 100 ms of audio.
    Reading(Loudness),
    /// The source sends nothing at the moment.
    Waiting,
    /// The thread has ended; with the final reading.
    Ended(Loudness, Result<(), Failure>),
}

/// What a sink gets.
pub(crate) enum SinkInput<'a> {
    /// The next block.
    Block {
        /// It is only lent.
        block: &'a Block,
        /// The source was interrupted before it.
        resumes: bool,
    },
    /// The source waits for its sender or its server; repeated while it does.
    Interrupted,
}

/// Gets every block on the reading thread, before the meter; an error ends the reading.
pub(crate) type BlockSink = Box<dyn FnMut(SinkInput<'_>) -> Result<(), Failure> + Send>;

/// Handle to the thread.
pub(crate) struct ReaderHandle {
    pub(crate) events: mpsc::Receiver<ReaderEvent>,
    /// Dropped to end the thread.
    running: Option<UnboundedSender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderHandle {
    /// Starts the thread under this name; with `dual_mono` one channel counts as two equal ones.
    pub(crate) fn start(
        name: &str,
        source: OpenSource,
        paced: bool,
        dual_mono: bool,
        sink: Option<BlockSink>,
    ) -> Result<Self, Failure> {
        let (event_sender, events) = mpsc::channel(EVENT_QUEUE);
        let (running, mut quit) = unbounded();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                read(source, (paced, dual_mono), sink, &mut quit, &event_sender);
            })
            .map_err(|error| {
                Failure::new(Exit::Internal, format!("cannot start a thread: {error}"))
            })?;
        Ok(Self { events, running: Some(running), thread: Some(thread) })
    }

    /// Makes the thread end; its last event is still received.
    pub(crate) fn quit(&mut self) {
        self.running = None;
    }

    /// Ends the thread and closes the source, so that a child process ends before this one.
    pub(crate) async fn end(&mut self) {
        self.quit();
        self.events.close();
        let drained = async { while self.events.recv().await.is_some() {} };
        let ended = tokio::time::timeout(JOIN_TIMEOUT, drained).await.is_ok();
        if let Some(thread) = self.thread.take_if(|_| ended) {
            // A panic has been reported already.
            drop(thread.join());
        }
    }
}

/// Reads until the source ends or the handle asks for the end.
fn read(
    mut source: OpenSource,
    (paced, dual_mono): (bool, bool),
    sink: Option<BlockSink>,
    quit: &mut Receiver<Infallible>,
    events: &Sender<ReaderEvent>,
) {
    let mut reader = SourceReader {
        meter: None,
        dual_mono,
        shape: None,
        paced: paced && source.has_no_clock(),
        due: Instant::ZERO,
        waiting: false,
        sink,
        quit,
        events,
    };
    let result = match reader.run(&mut source) {
        Ok(()) | Err(StopReason::Quit) => Ok(()),
        Err(StopReason::Failed(failure)) => Err(failure),
    };
    // Closed before the last event is sent: a child process ends with its source.
    drop(source);
    let last = reader.meter.as_mut().map_or(Loudness::NONE, LoudnessMeter::finish);
    // The receiver may be closed already.
    drop(events.blocking_send(ReaderEvent::Ended(last, result)));
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
    /// When the next block is due, if the thread sets the pace.
    due: Instant,
    waiting: bool,
    sink: Option<BlockSink>,
    quit: &'a mut Receiver<Infallible>,
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
                    let resumes = source.take_interruption();
                    self.sink(SinkInput::Block { block: &block, resumes })?;
                    self.measure(&block)?;
                }
                ReadResult::Pending(pause) => {
                    let was_waiting = core::mem::replace(&mut self.waiting, source.is_waiting());
                    if self.waiting && !was_waiting {
                        self.send(ReaderEvent::Waiting)?;
                    }
                    if self.waiting {
                        self.sink(SinkInput::Interrupted)?;
                    }
                    self.sleep(pause)?;
                }
                ReadResult::End if self.shape.is_none() => {
                    return Err(StopReason::Failed(Failure::new(
                        Exit::NoInput,
                        "the source ended without any audio",
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
        // After the machine was suspended, reading continues at its pace and does not catch up.
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
        if self.shape.replace((rate, layout)) != Some((rate, layout))
            && let Some(meter) = &mut self.meter
        {
            meter.set_format(rate, layout);
        }
        let make = if self.dual_mono { LoudnessMeter::dual_mono } else { LoudnessMeter::new };
        let mut meter = self.meter.take().unwrap_or_else(|| make(rate, layout, HISTORY));
        // In pieces shorter than 100 ms, so that every reading is seen.
        let piece = rate.frames(Span::from_millis(50)).as_usize().max(1) * layout.channels();
        for samples in block.samples().chunks(piece) {
            if meter.push(samples) {
                self.send(ReaderEvent::Reading(meter.loudness()))?;
            }
        }
        self.meter = Some(meter);
        Ok(())
    }

    fn sleep(&mut self, pause: Span) -> Result<(), StopReason> {
        match self.quit.recv_timeout(Duration::from(pause)) {
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Closed) => Err(StopReason::Quit),
            Ok(never) => match never {},
        }
    }

    fn sink(&mut self, input: SinkInput<'_>) -> Result<(), StopReason> {
        self.sink.as_mut().map_or(Ok(()), |sink| sink(input)).map_err(StopReason::Failed)
    }

    fn send(&self, event: ReaderEvent) -> Result<(), StopReason> {
        self.events.blocking_send(event).map_err(|_| StopReason::Quit)
    }
}

/// Longest delay that is caught up.
const MAX_CATCH_UP: Span = Span::from_secs(1);

/// Exactly one day; after that the last day.
const HISTORY: MeterHistory = MeterHistory::Bounded { ms: 86_400_000 };

/// The failure for a panicked thread, which has already reported the reason.
pub(crate) fn thread_panicked() -> Failure {
    Failure::new(Exit::Internal, "internal error: the reader thread has panicked")
}

/// Events that may wait for a slow receiver; after that the source waits.
const EVENT_QUEUE: usize = 64;

/// Time limit for the thread's end, in case a disk hangs.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
