//! The thread that reads the source, at the source's pace, and measures it.
//!
//! A station would do it all, with reactors, workers and a clock; a meter or a recorder has one source and nobody
//! to be in time for, so one thread drives the house's feeders and decoders by hand. Orders come
//! through the channel on which it sleeps.

use std::thread::JoinHandle;
use std::time::Duration;

use aulos_core::{Block, ChannelLayout, Instant, SampleRate, Span};
use aulos_dsp::meter::History;
use aulos_engine::loudness::{Gauge, Loudness};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::SystemClock;
use aulos_rt::channel::{Receiver, TryRecvError, UnboundedSender, unbounded};
use aulos_server::exit::{Exit, Failure};
use tokio::sync::mpsc::{self, Sender};

use super::source::{Got, Opened};

/// What the thread tells.
#[derive(Debug)]
pub(super) enum News {
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
pub(super) enum Order {
    /// Measure anew.
    Reset,
    /// Stop measuring, or go on.
    Pause(bool),
    /// End.
    Quit,
}

/// Who hears every block besides the meter, on the thread that reads; what it cannot do ends the
/// reading.
pub(super) type Ear = Box<dyn FnMut(&Block) -> Result<(), Failure> + Send>;

/// The thread that measures, as the others see it.
pub(super) struct Running {
    pub(super) news: mpsc::Receiver<News>,
    orders: UnboundedSender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it under this name; with `dual_mono` one channel counts as two equal ones.
    pub(super) fn start(
        name: &str,
        source: Opened,
        paced: bool,
        dual_mono: bool,
        ear: Option<Ear>,
    ) -> Result<Self, Failure> {
        let (tell, news) = mpsc::channel(NEWS);
        let (orders, mut ordered) = unbounded();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || read(source, (paced, dual_mono), ear, &mut ordered, &tell))
            .map_err(|error| Failure::new(Exit::Internal, format!("no thread: {error}")))?;
        Ok(Self { news, orders, thread: Some(thread) })
    }

    pub(super) fn order(&self, order: Order) {
        // A thread that has ended has said so, or will be missed.
        let _ = self.orders.send(order);
    }

    /// Lets the source go, so that a program that was started for it ends before we do.
    pub(super) async fn end(&mut self) {
        self.order(Order::Quit);
        self.news.close();
        let drained = async { while self.news.recv().await.is_some() {} };
        let ended = tokio::time::timeout(PATIENCE, drained).await.is_ok();
        if let Some(thread) = self.thread.take_if(|_| ended) {
            // If it panicked it has said so.
            drop(thread.join());
        }
    }
}

/// Reads until the source or the world ends it.
fn read(
    mut source: Opened,
    (paced, dual_mono): (bool, bool),
    ear: Option<Ear>,
    orders: &mut Receiver<Order>,
    news: &Sender<News>,
) {
    let mut reader = Reader {
        gauge: None,
        dual_mono,
        shape: None,
        paced: paced && source.has_no_clock(),
        due: Instant::ZERO,
        waiting: false,
        ear,
        orders,
        news,
    };
    let result = match reader.run(&mut source) {
        Ok(()) | Err(Stop::Quit) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
    };
    // Before anything is said: a program that was started ends with its source.
    drop(source);
    let last = reader.gauge.as_mut().map_or(Loudness::NONE, Gauge::conclude);
    // Whoever does not listen any more does not want to know.
    drop(news.blocking_send(News::Ended(last, result)));
}

enum Stop {
    Quit,
    Failed(Failure),
}

struct Reader<'a> {
    gauge: Option<Gauge>,
    /// One channel counts as two equal ones.
    dual_mono: bool,
    shape: Option<(SampleRate, ChannelLayout)>,
    paced: bool,
    /// When the next block is over, if the pace is ours.
    due: Instant,
    waiting: bool,
    ear: Option<Ear>,
    orders: &'a mut Receiver<Order>,
    news: &'a Sender<News>,
}

impl Reader<'_> {
    fn run(&mut self, source: &mut Opened) -> Result<(), Stop> {
        let mut block =
            Block::with_capacity(SampleRate::STUDIO, ChannelLayout::STEREO, BLOCK_SAMPLES);
        self.due = SystemClock::now();
        loop {
            match source.next(SystemClock::now(), &mut block).map_err(Stop::Failed)? {
                Got::Block => {
                    self.pace(&block)?;
                    if let Some(ear) = &mut self.ear {
                        ear(&block).map_err(Stop::Failed)?;
                    }
                    self.measure(&block)?;
                }
                Got::Nothing(pause) => {
                    let gone = core::mem::replace(&mut self.waiting, source.is_waiting());
                    if self.waiting && !gone {
                        self.tell(News::Waiting)?;
                    }
                    self.sleep(pause)?;
                }
                Got::End if self.shape.is_none() => {
                    return Err(Stop::Failed(Failure::new(Exit::NoInput, "no sound came from it")));
                }
                Got::End => return Ok(()),
            }
        }
    }

    fn pace(&mut self, block: &Block) -> Result<(), Stop> {
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

    fn measure(&mut self, block: &Block) -> Result<(), Stop> {
        let (rate, layout) = (block.rate(), block.layout());
        if self.shape.replace((rate, layout)) != Some((rate, layout)) {
            if let Some(gauge) = &mut self.gauge {
                gauge.change(rate, layout);
            }
            self.tell(News::Shape(rate, layout))?;
        }
        let make = if self.dual_mono { Gauge::dual_mono } else { Gauge::new };
        let mut gauge = self.gauge.take().unwrap_or_else(|| make(rate, layout, HISTORY));
        // In pieces that are shorter than 100 ms, so that no figures are passed over.
        let piece = rate.frames(Span::from_millis(50)).as_usize().max(1) * layout.channels();
        for samples in block.samples().chunks(piece) {
            if gauge.hear(samples) {
                self.tell(News::Reading(gauge.loudness()))?;
            }
        }
        self.gauge = Some(gauge);
        Ok(())
    }

    /// Waits, and does what comes in meanwhile.
    fn sleep(&mut self, pause: Span) -> Result<(), Stop> {
        let pause = Duration::from_nanos(u64::try_from(pause.as_nanos()).unwrap_or(0));
        match self.orders.recv_timeout(pause) {
            Ok(Order::Quit) | Err(TryRecvError::Closed) => Err(Stop::Quit),
            Ok(Order::Reset) => {
                if let Some(gauge) = &mut self.gauge {
                    gauge.reset();
                    let loudness = gauge.loudness();
                    self.tell(News::Reading(loudness))?;
                }
                Ok(())
            }
            Ok(Order::Pause(paused)) => {
                if let Some(gauge) = &mut self.gauge {
                    gauge.pause(paused);
                }
                Ok(())
            }
            Err(TryRecvError::Empty) => Ok(()),
        }
    }

    fn tell(&self, news: News) -> Result<(), Stop> {
        self.news.blocking_send(news).map_err(|_| Stop::Quit)
    }
}

/// What the pace makes up for.
const MAX_CATCH_UP: Span = Span::from_secs(1);

/// A day exactly; from then on the last day.
const HISTORY: History = History::Bounded { ms: 86_400_000 };

/// The thread panicked, and has said why.
pub(super) fn gone() -> Failure {
    Failure::new(Exit::Internal, "the meter broke down")
}

/// Readings that may wait for a reader of ours that is slow; more, and the source waits.
const NEWS: usize = 64;

/// For a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);
