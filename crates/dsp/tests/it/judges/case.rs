//! Random test cases, and their reduction.

use aulos_dsp::meter::{ChannelPosition, MeterKernel};

use super::test_signal::{TestRng, TestSignal};

/// The emphasis of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CaseKind {
    Usual,
    AnyRate,
    Channels,
    Changes,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) shape: StreamFormat,
    /// Bits of `enum mode`.
    pub(crate) mode: i32,
    pub(crate) histogram: bool,
    pub(crate) maxima: bool,
    /// A range value every 100 ms.
    pub(crate) tenth: bool,
    pub(crate) spoil: bool,
    pub(crate) kernel: MeterKernel,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamFormat {
    pub(crate) rate: u32,
    /// A number of `enum channel` for each channel.
    pub(crate) map: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Add(AddStep),
    /// The longest window, in milliseconds.
    Window(u32),
    /// Length of the history, in milliseconds.
    History(u32),
    Change(StreamFormat),
    Reset,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AddStep {
    pub(crate) seed: u64,
    pub(crate) sound: TestSignal,
    /// Linear.
    pub(crate) level: f64,
    pub(crate) frames: usize,
    /// The largest call, in frames.
    pub(crate) largest: usize,
    pub(crate) form: SampleForm,
    pub(crate) planar: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleForm {
    I16,
    I32,
    F32,
    F64,
}

pub(crate) const S: i32 = 3;
pub(crate) const I: i32 = 5;
pub(crate) const LRA: i32 = 11;
pub(crate) const SAMPLE_PEAK: i32 = 17;
pub(crate) const TRUE_PEAK: i32 = 49;
pub(crate) const DUAL_MONO: u8 = 6;

const MODES: [i32; 12] = [1, S, I, LRA, SAMPLE_PEAK, TRUE_PEAK, 15, 31, 53, 63, 63, 63];
const USUAL: [u32; 8] = [48_000, 44_100, 48_000, 44_100, 32_000, 8_000, 96_000, 192_000];
const KERNELS: [MeterKernel; 4] =
    [MeterKernel::Best, MeterKernel::Best, MeterKernel::Avx2, MeterKernel::Scalar];

impl Case {
    pub(crate) fn random(kind: CaseKind, seed: u64) -> Self {
        let draw = &mut TestRng::new(seed * 4 + kind as u64);
        let shape = StreamFormat::random(kind, draw);
        let spoil = draw.once_in(12);
        let mut new = Self {
            mode: draw.pick(&MODES),
            histogram: draw.once_in(4),
            maxima: draw.once_in(2),
            tenth: draw.once_in(8),
            spoil,
            kernel: draw.pick(&KERNELS),
            steps: Vec::new(),
            shape,
        };
        new.fit(if draw.once_in(40) { 3_000_000 } else { 400_000 });
        let mut shape = new.shape.clone();
        // Most cases are short; some reach the second block of the range.
        let mut left = draw.magnitude(300.0, 50_000.0);
        while left > 1.0 {
            let samples = left * (0.2 + 0.8 * draw.next_f64());
            left -= samples.max(2_000.0);
            let frames = 1 + samples as usize / shape.map.len();
            new.steps.push(Step::Add(AddStep::random(draw, frames)));
            if matches!(kind, CaseKind::Changes) || draw.once_in(20) {
                new.steps.push(Step::change(kind, draw, &shape));
            }
            if let Some(Step::Change(other)) = new.steps.last() {
                shape = other.clone();
            }
        }
        new
    }

    /// Drops steps that would make the windows longer than `most` samples: clearing them would take
    /// most of the time.
    fn fit(&mut self, most: usize) {
        let rate = self.shape.rate as usize;
        if 3 * rate * self.shape.map.len() > most {
            self.mode &= !(S | LRA) | 1;
        }
        self.shape.map.truncate((most * 5 / 2 / rate).max(1));
        if self.shape.map.len() > 1 && self.shape.map[0] == DUAL_MONO {
            self.shape.map[0] = 0;
        }
    }

    /// Cases that are simpler in one respect each, the simplest first.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut smaller = self.clone();
            change(&mut smaller);
            all.push(smaller);
        };
        for index in 0..self.steps.len() {
            with(&|case| drop(case.steps.remove(index)));
        }
        for (index, step) in self.steps.iter().enumerate() {
            let Step::Add(add) = *step else { continue };
            for frames in [add.frames / 2, add.frames * 9 / 10] {
                if frames > 0 && frames < add.frames {
                    with(&|case| case.steps[index] = Step::Add(AddStep { frames, ..add }));
                }
            }
            if add.largest < add.frames {
                let largest = add.frames;
                with(&|case| case.steps[index] = Step::Add(AddStep { largest, ..add }));
            }
            if !matches!(add.form, SampleForm::F64) {
                with(&|case| {
                    case.steps[index] = Step::Add(AddStep { form: SampleForm::F64, ..add });
                });
            }
            if add.planar {
                with(&|case| case.steps[index] = Step::Add(AddStep { planar: false, ..add }));
            }
        }
        let changes = self.steps.iter().any(|step| matches!(step, Step::Change(_)));
        if self.shape.map.len() > 1 && !changes {
            with(&|case| case.shape.map.truncate(case.shape.map.len() / 2));
        }
        if self.kernel != MeterKernel::Scalar {
            with(&|case| case.kernel = MeterKernel::Scalar);
        }
        for bit in [2, 4, 8, 16, 32] {
            if self.mode & bit != 0 {
                with(&|case| case.mode &= !bit);
            }
        }
        if self.maxima {
            with(&|case| case.maxima = false);
        }
        all
    }
}

impl StreamFormat {
    fn random(kind: CaseKind, draw: &mut TestRng) -> Self {
        let any = matches!(kind, CaseKind::AnyRate) || draw.once_in(10);
        let rate = if any { draw.magnitude(16.0, 2_822_400.5) as u32 } else { draw.pick(&USUAL) };
        let channels = match kind {
            CaseKind::Channels => draw.magnitude(1.0, 64.99) as usize,
            _ => draw.pick(&[1, 2, 2, 2, 3, 4, 5, 6, 8]),
        };
        Self { rate, map: map(draw, channels, matches!(kind, CaseKind::Channels)) }
    }
}

fn map(draw: &mut TestRng, channels: usize, anywhere: bool) -> Vec<u8> {
    let usual: &[u8] = match channels {
        1 => &[3],
        4 => &[1, 2, 4, 5],
        5 => &[1, 2, 3, 4, 5],
        _ => &[1, 2, 3, 0, 4, 5, 11, 12],
    };
    if channels == 1 && draw.once_in(3) {
        return vec![DUAL_MONO];
    }
    let random = anywhere || channels > usual.len() || draw.once_in(4);
    let mut place = |channel| {
        let number = if random { draw.below(32) as u8 } else { usual[channel] };
        if number == DUAL_MONO { 0 } else { number }
    };
    (0..channels).map(&mut place).collect()
}

impl AddStep {
    fn random(draw: &mut TestRng, frames: usize) -> Self {
        let largest = match draw.below(8) {
            // One frame at a time is slow, so it is used for short signals only.
            0 if frames < 4_000 => 1,
            0 | 1 => draw.magnitude(2.0, 100.0) as usize,
            2..=4 => draw.magnitude(100.0, 10_000.0) as usize,
            _ => frames,
        };
        let level = match draw.below(10) {
            0 => draw.magnitude(1e-6, 1e-3),
            1 => draw.magnitude(1.0, 30.0),
            2 if draw.once_in(4) => draw.magnitude(30.0, 1e6),
            _ => draw.magnitude(1e-3, 1.0),
        };
        Self {
            seed: draw.next_u64(),
            sound: TestSignal::random(draw),
            level,
            frames,
            largest,
            form: draw.pick(&[
                SampleForm::I16,
                SampleForm::I32,
                SampleForm::F32,
                SampleForm::F32,
                SampleForm::F64,
            ]),
            planar: draw.once_in(4),
        }
    }
}

impl Step {
    fn change(kind: CaseKind, draw: &mut TestRng, now: &StreamFormat) -> Self {
        match draw.below(6) {
            0 => Self::Window(draw.magnitude(100.0, 9_000.0) as u32),
            1 => Self::History(draw.magnitude(3_000.0, 30_000.0) as u32),
            2 => Self::Reset,
            _ if now.map.len() > 8 => Self::Reset,
            3 => Self::Change(StreamFormat { rate: draw.pick(&USUAL), map: now.map.clone() }),
            4 => Self::Change(StreamFormat {
                rate: now.rate,
                map: StreamFormat::random(kind, draw).map,
            }),
            _ => Self::Change(StreamFormat::random(kind, draw)),
        }
    }
}

/// The position of a number of `enum channel`.
pub(crate) fn position(number: u8) -> ChannelPosition {
    match number {
        0 => ChannelPosition::Unused,
        1 => ChannelPosition::LEFT,
        2 => ChannelPosition::RIGHT,
        4 => ChannelPosition::LEFT_SURROUND,
        5 => ChannelPosition::RIGHT_SURROUND,
        DUAL_MONO => ChannelPosition::DualMono,
        9 => ChannelPosition::middle(60),
        10 => ChannelPosition::middle(-60),
        11 => ChannelPosition::middle(90),
        12 => ChannelPosition::middle(-90),
        13 => ChannelPosition::middle(135),
        14 => ChannelPosition::middle(-135),
        15 => ChannelPosition::middle(180),
        // Above, on either side.
        16.. => ChannelPosition::At { azimuth: 90, elevation: if number < 29 { 45 } else { -30 } },
        _ => ChannelPosition::CENTER,
    }
}

/// Its weight, by the table of BS.1770-4.
pub(crate) fn weight(number: u8) -> f64 {
    match number {
        0 => 0.0,
        4 | 5 | 9..=12 => 1.41,
        DUAL_MONO => 2.0,
        _ => 1.0,
    }
}
