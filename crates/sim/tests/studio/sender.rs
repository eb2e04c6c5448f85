//! A live sender: a card that captures, and a way on which it can be held up.

use aulos_core::{Block, ChannelLayout, Instant, Ppm, SampleRate, Span};
use aulos_engine::source::{BLOCK_SAMPLES, Item, Pacing, RingSource, Source};
use aulos_rt::Pool;
use aulos_rt::ring::{Producer, ring};
use aulos_sim::Card;

use super::{Circle, PERIOD};

/// What a sender does until further notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Playing,
    /// It captures nothing; what it sends next is what comes next.
    Silent,
    /// It captures, but nothing gets through; all of it comes at once in the end.
    Stuck,
}

pub(crate) struct Sender {
    circle: Circle,
    rate: SampleRate,
    card: Card,
    mode: Mode,
    /// When it plays again.
    until: Option<Instant>,
    /// How often the receiver looks; without it each period arrives when it is over.
    looks: Option<(Instant, Span)>,
    /// It sends zeros in place of its sound.
    pub(crate) muted: bool,
    /// Periods that were captured and not handed over.
    backlog: u64,
    items: Producer<Item>,
    pool: Pool<Block>,
}

impl Sender {
    pub(crate) fn new(
        circle: Circle,
        rate: SampleRate,
        ppm: i32,
        start: Instant,
    ) -> (Self, Box<dyn Source>) {
        let (items, consumer) = ring(BLOCKS + 8);
        let layout = ChannelLayout::STEREO;
        let pool = Pool::new(BLOCKS, || Block::with_capacity(rate, layout, BLOCK_SAMPLES));
        let card = Card::new(rate, rate.frames(PERIOD), Ppm::from_ppm(ppm), start);
        let source = RingSource::new(consumer, Pacing::Live);
        let sender = Self {
            circle,
            rate,
            card,
            mode: Mode::Playing,
            until: None,
            looks: None,
            muted: false,
            backlog: 0,
            items,
            pool,
        };
        (sender, Box::new(source))
    }

    /// Stops without a word at `now`, captures nothing for `span`, and goes on.
    pub(crate) fn stop_for(&mut self, now: Instant, span: Span) {
        self.mode = Mode::Silent;
        self.until = Some(now + span);
    }

    /// Is held up at `now` for `span`; then everything comes at once.
    pub(crate) fn stall_for(&mut self, now: Instant, span: Span) {
        self.mode = Mode::Stuck;
        self.until = Some(now + span);
    }

    /// Closes cleanly at `now` and comes back after `span`.
    pub(crate) fn end_for(&mut self, now: Instant, span: Span) {
        self.backlog = 0;
        self.items.push(Item::End).expect("room for an end");
        self.stop_for(now, span);
    }

    pub(crate) fn is_playing(&self) -> bool {
        self.mode == Mode::Playing
    }

    /// From now on what it sends is found every `span`, as in a pipe that is looked at by a timer.
    pub(crate) fn look_every(&mut self, span: Span) {
        self.looks = Some((self.card.poll_timeout() + Span::from_micros(50), span));
    }

    pub(crate) fn run_until(&mut self, now: Instant) {
        while let Some((at, every)) = self.looks.filter(|(at, _)| *at <= now) {
            self.looks = Some((at + every, every));
            self.capture(at);
            self.deliver(at);
        }
        self.capture(now);
        if self.looks.is_none() {
            self.deliver(now);
        }
    }

    fn capture(&mut self, now: Instant) {
        while self.card.poll_timeout() <= now {
            let at = self.card.poll_timeout();
            self.card.period(at);
            if self.until.is_some_and(|until| until <= at) {
                self.until = None;
                self.mode = Mode::Playing;
            }
            self.backlog += u64::from(self.mode != Mode::Silent);
            if self.looks.is_none() {
                self.deliver(at);
            }
        }
        // A stall need not end with a period.
        if self.mode == Mode::Stuck && self.until.is_some_and(|until| until <= now) {
            self.until = None;
            self.mode = Mode::Playing;
        }
    }

    /// Hands over what there is, as far as there is room: the rest waits, as in a pipe.
    fn deliver(&mut self, now: Instant) {
        while self.mode == Mode::Playing && self.backlog > 0 {
            let Some(mut block) = self.pool.take() else { return };
            self.circle.fill(&mut block, self.rate, self.rate.frames(PERIOD));
            if self.muted {
                block.samples_mut().fill(0.0);
            }
            block.received = now;
            self.items.push(Item::Block(block)).expect("room for every block");
            self.backlog -= 1;
        }
    }
}

/// With a pipe's 64 KiB and the blocks of a feeder, about this much.
const BLOCKS: usize = 64;
