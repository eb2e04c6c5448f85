//! Keeps a station at one loudness: between the switch and the announcements stand an equaliser and
//! a normaliser, and behind the announcements a limiter, because a voice and a programme that keep
//! the ceiling alone pass it together.
//!
//! ```text
//!  control:  Knobs     what is wished; makes normalisers, frees them     (may allocate and free)
//!              | ring: normalisers that are ready, new settings
//!              v                          ^ bin: normalisers that have been replaced
//!  station:  Leveller  switch -> equaliser -> normaliser -+-> announcements -> limiter -> meters
//!                                                         +-> taps: other stations  (real-time)
//! ```
//!
//! Settings change while sound runs, at the normaliser's own slopes. Another mode has another
//! look-ahead, so a new chain hears the programme beside the old one until its look-ahead is full
//! and its gain has settled, and is then cross-faded in. By what it is later, sound is heard twice;
//! by what it is earlier, sound is left out. To begin with its empty look-ahead was rejected: that is
//! three seconds of silence on the air.

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Db, Frames, Lufs, SampleRate, Span};
use aulos_dsp::equaliser::{Band, Equaliser, InvalidBand, MAX_BANDS, Shape};
use aulos_dsp::normalize::{CannotNormalise, Figures, Mode, Normaliser, Settings, Statistics};
use aulos_dsp::{Crossfade, Limiter, Ramp, add};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Bin, Collector, Publisher, Reader, bin, latest};

/// How a station is normalised.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a wish is written down as a whole")]
pub struct Normalise {
    /// How far ahead the gain hears.
    pub mode: Mode,
    /// What comes out.
    pub settings: Settings,
}

/// What the normaliser of a station does; a plain copy.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Steadiness {
    /// By how much sound is later than without it, exactly.
    pub latency: Frames,
    /// The programme is heard as it came, at one gain.
    pub comparing: bool,
    /// The gain that is, or would be, heard then.
    pub matching: Db,
    /// The deepest that the limiters went in the last 100 ms; zero or less.
    pub reduction: Db,
    /// Samples that had to be clipped behind the limiters; there is no reason for any.
    pub clamped: u64,
    /// Of the programme, before announcements, since the normaliser was put in.
    pub programme: Statistics,
}

/// The two ends for a station of this rate, layout and quantum.
#[must_use]
pub(crate) fn steady(
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
) -> (Knobs, Leveller) {
    let (orders, told) = ring(MAX_ORDERS);
    // Each order can throw one out, and so can the change that is under way.
    let (bin, gone) = bin(MAX_ORDERS + 2);
    let samples = quantum.as_usize() * layout.channels();
    let (bands, new_bands) = latest([None; MAX_BANDS]);
    let waiting = VecDeque::new();
    let knobs = Knobs { rate, layout, quantum, mode: None, waiting, orders, gone, bands };
    let leveller = Leveller {
        rate,
        channels: layout.channels(),
        orders: told,
        bin,
        bands: new_bands,
        equaliser: Equaliser::new(rate, layout),
        chain: None,
        change: None,
        begun: false,
        other: vec![0.0; samples].into(),
        trail: Trail::new(rate, quantum),
    };
    (knobs, leveller)
}

/// Control's end: not for a real-time thread.
#[derive(Debug)]
pub struct Knobs {
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
    mode: Option<Mode>,
    /// What found no place in the ring; never more than one of each kind.
    waiting: VecDeque<Order>,
    orders: Producer<Order>,
    gone: Collector<Box<Chain>>,
    bands: Publisher<Row>,
}

/// Bands on their way; nothing of them is on the heap.
type Row = [Option<Band>; MAX_BANDS];

impl Knobs {
    /// Normalises from now on, otherwise than before, or not any more. Settings alone take effect at
    /// once, at the slopes that they allow; on, off and another mode within some seconds, while
    /// sound goes on. What is told before the first quantum holds from the first frame.
    ///
    /// # Errors
    /// [`CannotNormalise`] when a value is out of its bounds; nothing has changed then.
    pub fn normalise(&mut self, wish: Option<&Normalise>) -> Result<(), CannotNormalise> {
        match wish {
            Some(Normalise { mode, settings }) if Some(*mode) == self.mode => {
                // Only a normaliser knows all bounds, those of its channels too.
                Normaliser::check(settings, self.layout)?;
                self.tell(Order::Set(settings.clone()));
            }
            Some(wish) => {
                let chain = Chain::new(wish, self.rate, self.layout, self.quantum)?;
                self.mode = Some(wish.mode);
                self.tell(Order::Replace(Some(Box::new(chain))));
            }
            None if self.mode.take().is_some() => self.tell(Order::Replace(None)),
            None => {}
        }
        Ok(())
    }

    /// Lets the programme be heard as it comes, late by as much and at the one gain that makes it as
    /// loud as it was when normalised; or ends that. Goes over within 50 ms.
    pub fn compare(&mut self, on: bool) {
        self.tell(Order::Compare(on));
    }

    /// Sends the programme through these bands from now on, before it is normalised; the old ones are
    /// faded out. Those above [`MAX_BANDS`] are left out.
    ///
    /// # Errors
    /// [`InvalidBand`] for the first that cannot be; nothing has changed then.
    pub fn equalise(&mut self, bands: &[Band]) -> Result<(), InvalidBand> {
        bands.iter().try_for_each(|band| band.check(self.rate))?;
        let mut row = [None; MAX_BANDS];
        row.iter_mut().zip(bands).for_each(|(place, band)| *place = Some(*band));
        self.bands.publish(row);
        Ok(())
    }

    /// Frees what has been replaced, and tells what found no place before. To be called about ten
    /// times a second.
    pub fn tidy(&mut self) {
        self.gone.collect();
        while let Some(order) = self.waiting.pop_front() {
            if let Err(order) = self.orders.push(order) {
                self.waiting.push_front(order);
                break;
            }
        }
    }

    fn tell(&mut self, order: Order) {
        self.waiting.retain(|old| !order.replaces(old));
        self.waiting.push_back(order);
        self.tidy();
    }
}

#[derive(Debug)]
enum Order {
    Set(Settings),
    Replace(Option<Box<Chain>>),
    Compare(bool),
}

impl Order {
    /// Whether nothing is left of an older order behind this one.
    const fn replaces(&self, old: &Self) -> bool {
        match old {
            Self::Set(_) => matches!(self, Self::Set(_) | Self::Replace(_)),
            Self::Replace(_) => matches!(self, Self::Replace(_)),
            Self::Compare(_) => matches!(self, Self::Compare(_) | Self::Replace(_)),
        }
    }
}

/// The station's end.
#[derive(Debug)]
pub(crate) struct Leveller {
    rate: SampleRate,
    channels: usize,
    orders: Consumer<Order>,
    bin: Bin<Box<Chain>>,
    bands: Reader<Row>,
    equaliser: Equaliser,
    chain: Option<Box<Chain>>,
    change: Option<Change>,
    begun: bool,
    /// A quantum of the chain that comes.
    other: Box<[f32]>,
    trail: Trail,
}

/// Another chain takes over.
#[derive(Debug)]
struct Change {
    to: Option<Box<Chain>>,
    /// What it has to hear before.
    warm: Frames,
    /// Of the programme, and of what is heard behind announcements.
    fades: [Crossfade; 2],
}

impl Leveller {
    /// Normalises one quantum in place, of which the first `real` frames are somebody's sound; says
    /// of how many that come out this is true.
    ///
    /// # Real-time
    /// Does not allocate or free.
    pub(crate) fn programme(&mut self, block: &mut [f32], real: usize) -> usize {
        self.take_orders();
        self.equaliser.process(block);
        self.begun = true;
        self.trail.push(real);
        let latency = self.chain.as_ref().map_or(0, |chain| chain.ahead());
        let Some(change) = &mut self.change else {
            run(self.chain.as_deref_mut(), block);
            return self.trail.real(latency);
        };
        let other = &mut self.other[..block.len()];
        other.copy_from_slice(block);
        run(change.to.as_deref_mut(), other);
        run(self.chain.as_deref_mut(), block);
        if change.warm == Frames::ZERO {
            change.fades[0].mix(block, other, self.channels);
            block.copy_from_slice(other);
        }
        self.trail.real(latency)
    }

    /// Brings what is heard, announcements included, below the ceiling.
    ///
    /// # Real-time
    /// Does not allocate or free.
    pub(crate) fn limit(&mut self, block: &mut [f32]) {
        let Some(change) = &mut self.change else {
            return limit(self.chain.as_deref_mut(), block);
        };
        let other = &mut self.other[..block.len()];
        other.copy_from_slice(block);
        limit(change.to.as_deref_mut(), other);
        limit(self.chain.as_deref_mut(), block);
        if change.warm > Frames::ZERO {
            change.warm -= change.warm.min(Frames::from(block.len() / self.channels));
            return;
        }
        change.fades[1].mix(block, other, self.channels);
        block.copy_from_slice(other);
        if change.fades[1].remaining() == Frames::ZERO {
            let old = core::mem::replace(&mut self.chain, change.to.take());
            self.change = None;
            self.discard(old);
        }
    }

    /// What is still inside is not heard any more: somebody has pressed pause. The last quantum of
    /// the programme is faded out, and nothing of it comes later.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(crate) fn flush(&mut self, block: &mut [f32]) {
        // What comes late out of the limiter is out as well at the end of this quantum.
        let late = self.chain.as_ref().map_or(0, |chain| chain.behind()) * self.channels;
        let end = block.len().saturating_sub(late).max(block.len() / 2);
        let end = end / self.channels * self.channels;
        Crossfade::fade_out(&mut block[..end], self.channels);
        block[end..].fill(0.0);
        self.equaliser.reset();
        let to = self.change.as_mut().and_then(|change| change.to.as_mut());
        for chain in self.chain.iter_mut().chain(to) {
            chain.normaliser.interrupt();
        }
        self.trail.clear();
    }

    /// What it does; `None` while it does nothing.
    ///
    /// # Real-time
    /// Passes over a histogram: for ten times a second.
    pub(crate) fn steadiness(&mut self) -> Option<Steadiness> {
        self.chain.as_mut().map(|chain| chain.steadiness())
    }

    fn take_orders(&mut self) {
        if let Some(row) = self.bands.read_new() {
            let mut bands = [NO_BAND; MAX_BANDS];
            let given = bands.iter_mut().zip(row.iter().flatten());
            let count = given.map(|(place, band)| *place = *band).count();
            // Control has looked at the bounds, so nothing is refused.
            let _set = self.equaliser.set(&bands[..count]);
        }
        // Who is on his way in is let in first, which is a matter of three quanta.
        let is_fading = |change: &Change| change.warm == Frames::ZERO;
        while !self.change.as_ref().is_some_and(is_fading)
            && let Some(order) = self.orders.pop()
        {
            let next = self.change.as_mut().map_or(&mut self.chain, |change| &mut change.to);
            match order {
                Order::Set(settings) => {
                    if let Some(chain) = next {
                        chain.set(settings);
                    }
                }
                Order::Compare(on) => {
                    if let Some(chain) = &mut self.chain {
                        chain.compare(on, self.rate.frames(FADE));
                    }
                }
                Order::Replace(chain) if !self.begun => {
                    let old = core::mem::replace(&mut self.chain, chain);
                    self.discard(old);
                }
                Order::Replace(to) => self.begin(to),
            }
        }
    }

    fn begin(&mut self, to: Option<Box<Chain>>) {
        let hears = to.as_ref().map_or(Frames::ZERO, |chain| {
            self.rate.frames(SETTLES).max(Frames::from(chain.ahead() + chain.behind()))
        });
        let fade = Crossfade::linear(self.rate.frames(FADE));
        let change = Change { to, warm: hears, fades: [fade.clone(), fade] };
        let old = self.change.replace(change).and_then(|change| change.to);
        self.discard(old);
    }

    fn discard(&mut self, chain: Option<Box<Chain>>) {
        // Control empties the bin before each order, and there is room for one of each order.
        drop(chain.map(|chain| self.bin.discard(chain)));
    }
}

fn run(chain: Option<&mut Chain>, block: &mut [f32]) {
    if let Some(chain) = chain {
        chain.run(block);
    }
}

fn limit(chain: Option<&mut Chain>, block: &mut [f32]) {
    if let Some(chain) = chain {
        chain.limit(block);
    }
}

/// A normaliser, the way around it, and the limiter behind announcements.
#[derive(Debug)]
struct Chain {
    normaliser: Normaliser,
    /// None where peaks may pass the ceiling anyway, so that there is no latency.
    limiter: Option<Limiter>,
    channels: usize,
    /// A quantum of the programme as it came.
    plain: Box<[f32]>,
    comparing: bool,
    /// The gain of the plain programme while it is heard.
    matching: Db,
    /// How much is heard of the one and of the other; together one.
    shares: Shares,
    deepest: Db,
    /// Frames that it has heard, of which windows are not full before they are 3 s.
    heard: Frames,
    rate: SampleRate,
}

#[derive(Debug)]
struct Shares {
    normalised: Ramp,
    plain: Ramp,
}

impl Chain {
    fn new(
        wish: &Normalise,
        rate: SampleRate,
        layout: ChannelLayout,
        quantum: Frames,
    ) -> Result<Self, CannotNormalise> {
        let limits = wish.mode != Mode::GainOnly;
        let samples = quantum.as_usize() * layout.channels();
        Ok(Self {
            normaliser: Normaliser::new(wish.mode, wish.settings.clone(), rate, layout)?,
            limiter: limits.then(|| Limiter::new(rate, layout, wish.settings.ceiling)),
            channels: layout.channels(),
            plain: vec![0.0; samples].into(),
            comparing: false,
            matching: Db::ZERO,
            shares: Shares { normalised: Ramp::at(1.0), plain: Ramp::at(0.0) },
            deepest: Db::ZERO,
            heard: Frames::ZERO,
            rate,
        })
    }

    fn set(&mut self, settings: Settings) {
        if let Some(limiter) = &mut self.limiter {
            limiter.set_ceiling(settings.ceiling);
        }
        // Control has looked at the bounds, so nothing is refused.
        let _set = self.normaliser.set(settings);
    }

    fn compare(&mut self, on: bool, fade: Frames) {
        if on == self.comparing {
            return;
        }
        self.comparing = on;
        if on && self.shares.plain.gain() <= 0.0 {
            self.matching = self.normaliser.matching_gain();
        }
        let plain = if on { 1.0 } else { 0.0 };
        self.shares.plain.go_to(plain, fade);
        self.shares.normalised.go_to(1.0 - plain, fade);
    }

    fn run(&mut self, block: &mut [f32]) {
        let Self { normaliser, shares, channels, .. } = self;
        let plain = &mut self.plain[..block.len()];
        normaliser.process_beside(block, plain);
        self.deepest = min(self.deepest, normaliser.reduction());
        self.heard += Frames::from(block.len() / *channels);
        if shares.normalised.is_open() {
            return;
        }
        shares.normalised.apply(block, *channels);
        shares.plain.apply(plain, *channels);
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        add(plain, self.matching.amplitude() as f32, block);
    }

    fn limit(&mut self, block: &mut [f32]) {
        if let Some(limiter) = &mut self.limiter {
            limiter.process(block);
            self.deepest = min(self.deepest, limiter.reduction());
        }
    }

    /// Frames by which the programme is late before announcements.
    fn ahead(&self) -> usize {
        self.normaliser.latency().as_usize()
    }

    /// Frames by which all is late behind them.
    fn behind(&self) -> usize {
        self.limiter.as_ref().map_or(0, |limiter| limiter.latency().as_usize())
    }

    fn steadiness(&mut self) -> Steadiness {
        let mut programme = self.normaliser.statistics();
        for (figures, late) in [(&mut programme.input, 0), (&mut programme.output, self.ahead())] {
            let heard = self.rate.span(self.heard - Frames::from(late).min(self.heard));
            leave_out(figures, heard);
        }
        let heard = self.comparing || self.shares.plain.remaining() > Frames::ZERO;
        Steadiness {
            latency: Frames::from(self.ahead() + self.behind()),
            comparing: self.comparing,
            matching: if heard { self.matching } else { self.normaliser.matching_gain() },
            reduction: core::mem::replace(&mut self.deepest, Db::ZERO),
            clamped: programme.clamped + self.limiter.as_ref().map_or(0, Limiter::clamped),
            programme,
        }
    }
}

/// What is made of windows that are not full does not exist.
fn leave_out(figures: &mut Figures, heard: Span) {
    if heard < MOMENTARY {
        figures.momentary = Lufs::SILENCE;
    }
    if heard < SHORT_TERM {
        (figures.short_term, figures.range) = (Lufs::SILENCE, Db::SILENCE);
    }
}

fn min(one: Db, other: Db) -> Db {
    if other < one { other } else { one }
}

/// What of the last quanta was somebody's sound: an end comes out as late as sound does.
#[derive(Debug)]
struct Trail {
    quantum: usize,
    /// Real frames of each quantum, a ring; the newest is before `next`.
    real: Box<[usize]>,
    next: usize,
}

impl Trail {
    fn new(rate: SampleRate, quantum: Frames) -> Self {
        let longest = rate.frames(LONGEST).as_usize() / quantum.as_usize().max(1) + 2;
        Self { quantum: quantum.as_usize(), real: vec![0; longest].into(), next: 0 }
    }

    fn push(&mut self, real: usize) {
        self.real[self.next] = real;
        self.next = (self.next + 1) % self.real.len();
    }

    /// How far the quantum is real that comes out `latency` frames late: up to the last frame that
    /// is.
    fn real(&self, latency: usize) -> usize {
        let (ago, late) = (latency / self.quantum, latency % self.quantum);
        let newer = self.ago(ago);
        if newer > 0 {
            return (late + newer).min(self.quantum);
        }
        // Of the one before, what is left for this one.
        self.ago(ago + 1).saturating_sub(self.quantum - late)
    }

    fn ago(&self, quanta: usize) -> usize {
        let length = self.real.len();
        self.real[(self.next + length - 1 - quanta.min(length - 1)) % length]
    }

    fn clear(&mut self) {
        self.real.fill(0);
    }
}

/// What stands in a place that is not used.
const NO_BAND: Band = Band { shape: Shape::Notch, hz: 0.0, gain: Db::ZERO, q: 0.0 };
/// How long one chain is faded into the next, and the normalised programme into the plain one.
const FADE: Span = Span::from_millis(50);
/// What a new chain hears before it takes over: as much as makes one short-term loudness.
const SETTLES: Span = Span::from_secs(3);
/// The windows of BS.1770 and Tech 3341.
const MOMENTARY: Span = Span::from_millis(400);
const SHORT_TERM: Span = Span::from_secs(3);
/// Longer than any look-ahead.
const LONGEST: Span = Span::from_millis(3_200);
/// Orders that wait for the next quantum.
const MAX_ORDERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_comes_out_as_late_as_the_sound_before_it() {
        let mut trail = Trail::new(SampleRate::STUDIO, Frames(960));
        // Two whole quanta, one that ends in its middle, silence.
        let mut heard = |latency: usize| {
            trail.clear();
            let quanta = [960, 960, 500, 0, 0, 0, 0];
            let mut out = Vec::new();
            for real in quanta {
                trail.push(real);
                out.push(trail.real(latency));
            }
            out
        };
        assert_eq!(heard(0), [960, 960, 500, 0, 0, 0, 0]);
        assert_eq!(heard(960), [0, 960, 960, 500, 0, 0, 0]);
        assert_eq!(heard(240), [960, 960, 740, 0, 0, 0, 0]);
        assert_eq!(heard(500), [960, 960, 960, 40, 0, 0, 0]);
        assert_eq!(heard(1_000), [0, 960, 960, 540, 0, 0, 0]);
        trail.clear();
        assert_eq!(trail.real(144_000), 0);
    }

    #[test]
    fn what_waits_for_a_station_that_does_not_look_stays_small() {
        let (mut knobs, mut leveller) =
            steady(SampleRate::STUDIO, ChannelLayout::MONO, Frames(960));
        let wish = |mode| Normalise { mode, settings: Settings::default() };
        for _ in 0..50 {
            for mode in [Mode::Low, Mode::Mid] {
                knobs.normalise(Some(&wish(mode))).unwrap();
                knobs.normalise(Some(&wish(mode))).unwrap();
                knobs.compare(true);
            }
        }
        assert!(knobs.waiting.len() <= 3, "{:?}", knobs.waiting.len());
        for _ in 0..20 {
            leveller.programme(&mut [0.0; 960], 960);
            knobs.tidy();
        }
        assert!(knobs.waiting.is_empty());
        // 400 ms of look-ahead and 5 ms behind announcements: the last wish.
        for _ in 0..200 {
            leveller.programme(&mut [0.0; 960], 960);
            leveller.limit(&mut [0.0; 960]);
        }
        assert_eq!(leveller.steadiness().unwrap().latency, Frames(19_200 + 240));
        let wrong = Settings { dual_mono: true, target: Lufs::new(9.0), ..Settings::default() };
        assert!(knobs.normalise(Some(&Normalise { mode: Mode::Mid, settings: wrong })).is_err());
        let (mut stereo, _) = steady(SampleRate::STUDIO, ChannelLayout::STEREO, Frames(960));
        let twice = Settings { dual_mono: true, ..Settings::default() };
        stereo.normalise(Some(&wish(Mode::Low))).unwrap();
        assert!(stereo.normalise(Some(&Normalise { mode: Mode::Low, settings: twice })).is_err());
    }
}
