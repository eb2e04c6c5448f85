//! A live sender: a sound card that captures, and a connection that can stall.

use aulos_core::{Block, ChannelLayout, Frames, Instant, Ppm, SampleRate, Span};
use aulos_engine::source::{BLOCK_SAMPLES, Pacing, RingSource, Source, SourceItem};
use aulos_rt::Pool;
use aulos_rt::ring::{Producer, ring};
use aulos_sim::SoundCard;

use super::{CircleSignal, PERIOD};

/// State of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderMode {
    Playing,
    /// It captures nothing; the frames continue afterwards.
    Silent,
    /// It captures, but nothing is delivered; all of it arrives at once in the end.
    Stuck,
}

/// Content of a sender's signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentContent {
    Sound,
    /// Zeros.
    Silence,
    /// A constant value.
    Stuck,
    /// Zeros in its second channel.
    Half,
}

pub(crate) struct Sender {
    circle: CircleSignal,
    rate: SampleRate,
    card: SoundCard,
    mode: SenderMode,
    /// End of the current state.
    until: Option<Instant>,
    /// Poll interval of the receiver; without it each period arrives when it is over.
    polls: Option<(Instant, Span)>,
    /// Content in place of the circle signal.
    pub(crate) content: SentContent,
    /// Times of the last delivery, and of the last change of content.
    pub(crate) sent: Instant,
    pub(crate) since: Instant,
    /// Frames sent with the current content.
    pub(crate) frames: Frames,
    /// Periods that were captured and not delivered.
    backlog: u64,
    items: Producer<SourceItem>,
    pool: Pool<Block>,
}

impl Sender {
    pub(crate) fn new(
        circle: CircleSignal,
        rate: SampleRate,
        ppm: i32,
        start: Instant,
        pacing: Pacing,
    ) -> (Self, Box<dyn Source>) {
        let blocks = if pacing == Pacing::Streamed { STREAMED_BLOCKS } else { BLOCKS };
        let (items, consumer) = ring(blocks + 8);
        let layout = ChannelLayout::STEREO;
        let pool = Pool::new(blocks, || Block::with_capacity(rate, layout, BLOCK_SAMPLES));
        let card = SoundCard::new(rate, rate.frames(PERIOD), Ppm::from_ppm(ppm), start);
        let source = RingSource::new(consumer, pacing);
        let sender = Self {
            circle,
            rate,
            card,
            mode: SenderMode::Playing,
            until: None,
            polls: None,
            content: SentContent::Sound,
            sent: start,
            since: Instant::ZERO,
            frames: Frames::ZERO,
            backlog: 0,
            items,
            pool,
        };
        (sender, Box::new(source))
    }

    /// Stops without notice at `now`, captures nothing for `span`, and continues.
    pub(crate) fn stop_for(&mut self, now: Instant, span: Span) {
        self.mode = SenderMode::Silent;
        self.until = Some(now + span);
    }

    /// Stalls at `now` for `span`; then everything arrives at once.
    pub(crate) fn stall_for(&mut self, now: Instant, span: Span) {
        self.mode = SenderMode::Stuck;
        self.until = Some(now + span);
    }

    /// Ends cleanly at `now` and comes back after `span`.
    pub(crate) fn end_for(&mut self, now: Instant, span: Span) {
        self.backlog = 0;
        self.items.push(SourceItem::End).expect("room for an end");
        self.stop_for(now, span);
    }

    /// Loses the connection at `now`, and is back after `span`.
    pub(crate) fn lose_for(&mut self, now: Instant, span: Span) {
        self.backlog = 0;
        self.items.push(SourceItem::Lost).expect("room for an end");
        self.stop_for(now, span);
    }

    /// Changes the content from `now` on.
    pub(crate) fn set_content(&mut self, now: Instant, content: SentContent) {
        (self.content, self.since, self.frames) = (content, now, Frames::ZERO);
    }

    pub(crate) fn is_playing(&self) -> bool {
        self.mode == SenderMode::Playing
    }

    /// From now on its audio is read every `span`, as from a pipe that is polled by a timer.
    pub(crate) fn poll_every(&mut self, span: Span) {
        self.polls = Some((self.card.poll_timeout() + Span::from_micros(50), span));
    }

    pub(crate) fn run_until(&mut self, now: Instant) {
        while let Some((at, every)) = self.polls.filter(|(at, _)| *at <= now) {
            self.polls = Some((at + every, every));
            self.capture(at);
            self.deliver(at);
        }
        self.capture(now);
        if self.polls.is_none() {
            self.deliver(now);
        }
    }

    fn capture(&mut self, now: Instant) {
        while self.card.poll_timeout() <= now {
            let at = self.card.poll_timeout();
            self.card.period(at);
            if self.until.is_some_and(|until| until <= at) {
                self.until = None;
                self.mode = SenderMode::Playing;
            }
            self.backlog += u64::from(self.mode != SenderMode::Silent);
            if self.polls.is_none() {
                self.deliver(at);
            }
        }
        // A stall need not end with a period.
        if self.mode == SenderMode::Stuck && self.until.is_some_and(|until| until <= now) {
            self.until = None;
            self.mode = SenderMode::Playing;
        }
    }

    /// Delivers as much as fits: the rest waits, as in a pipe.
    fn deliver(&mut self, now: Instant) {
        while self.mode == SenderMode::Playing && self.backlog > 0 {
            let Some(mut block) = self.pool.take() else { return };
            self.circle.fill(&mut block, self.rate, self.rate.frames(PERIOD));
            let frames = block.samples_mut().as_chunks_mut::<2>().0;
            match self.content {
                SentContent::Sound => {}
                SentContent::Silence => frames.fill([0.0; 2]),
                SentContent::Stuck => frames.fill([0.3, 0.3]),
                SentContent::Half => frames.iter_mut().for_each(|frame| frame[1] = 0.0),
            }
            (block.received, self.sent) = (now, now);
            self.frames += block.frames();
            self.items.push(SourceItem::Block(block)).expect("room for every block");
            self.backlog -= 1;
        }
    }
}

/// About the capacity of a pipe of 64 KiB plus the reader's blocks.
const BLOCKS: usize = 64;

/// More than a second, which may arrive at once.
const STREAMED_BLOCKS: usize = 300;
