//! The coefficients of the K-weighting of ITU-R BS.1770-4 annex 1, as two second-order sections in
//! f64.
//!
//! The recommendation gives coefficients for 48 kHz only. Those of other rates are derived from the
//! corresponding analogue filters, by the bilinear transform. One fourth-order section, as in
//! libebur128, gives the same energies to 1e-12 dB but is worse conditioned. The high-pass stores
//! the difference of its last two values instead of the values themselves, which are ten thousand
//! times as great as its output.

/// State of the two sections: the last two values of the shelf, the newest first, and of the
/// high-pass the last difference of two values and the value before it.
pub(crate) type FilterState = [f64; 4];

/// The coefficients of both sections. The numerator of the shelf is `gain` * (1, `zeros`), that of
/// the high-pass is exactly 1, -2, 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coefficients {
    pub(super) gain: f64,
    pub(crate) zeros: [f64; 2],
    pub(crate) poles: [f64; 2],
    /// With a denominator of 1, p, q: q - `leak`, and 1 + p + q.
    pub(crate) keep: f64,
    pub(crate) leak: f64,
}

impl Coefficients {
    pub(crate) fn new(hz: f64) -> Self {
        let k = (core::f64::consts::PI * SHELF_HZ.min(HIGHEST * hz) / hz).tan();
        let high = 10f64.powf(SHELF_DB / 20.0);
        let band = high.powf(SHELF_BAND);
        let a0 = 1.0 + k / SHELF_Q + k * k;
        let gain = high + band * k / SHELF_Q + k * k;
        let zeros = [2.0 * (k * k - high) / gain, (high - band * k / SHELF_Q + k * k) / gain];
        let poles = [2.0 * (k * k - 1.0) / a0, (1.0 - k / SHELF_Q + k * k) / a0];
        let k = (core::f64::consts::PI * PASS_HZ.min(HIGHEST * hz) / hz).tan();
        let p0 = 1.0 + k / PASS_Q + k * k;
        let leak = 4.0 * k * k / p0;
        Self { gain: gain / a0, zeros, poles, keep: (1.0 - k / PASS_Q + k * k) / p0 - leak, leak }
    }

    /// Filters one frame; the output lacks the shelf's gain.
    #[inline(always)]
    pub(crate) fn step(&self, x: f64, s: &mut FilterState) -> f64 {
        let [w1, w2, difference, before] = *s;
        let w = (x - self.poles[1] * w2) - self.poles[0] * w1;
        let y = (w + self.zeros[0] * w1) + self.zeros[1] * w2;
        let new = (y - self.leak * before) + self.keep * difference;
        *s = [w, w1, new, before + difference];
        new - difference
    }
}

// The analogue filters that the bilinear transform at 48 kHz maps to the coefficients of BS.1770-4,
// tables 1 and 2.
const SHELF_HZ: f64 = 1_681.974_450_955_533;

const SHELF_DB: f64 = 3.999_843_853_973_347;

const SHELF_Q: f64 = 0.707_175_236_955_419_6;

const SHELF_BAND: f64 = 0.499_666_774_154_541_6;

const PASS_HZ: f64 = 38.135_470_876_024_44;

const PASS_Q: f64 = 0.500_327_037_323_877_3;

/// The highest corner frequency, relative to the rate. At rates too low for speech the shelf would
/// lie beyond the Nyquist frequency, and the filter would be unstable (in libebur128 it is).
const HIGHEST: f64 = 0.45;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_48_khz_the_coefficients_are_those_of_the_recommendation() {
        let printed_b = [1.535_124_859_586_97, -2.691_696_189_406_38, 1.198_392_810_852_85];
        let printed_a = [-1.690_659_293_182_41, 0.732_480_774_215_85];
        let printed_r = [-1.990_047_454_833_98, 0.990_072_250_366_21];
        let ours = Coefficients::new(48_000.0);
        let b = [1.0, ours.zeros[0], ours.zeros[1]].map(|b| b * ours.gain);
        let q = ours.keep + ours.leak;
        let r = [ours.leak - 1.0 - q, q];
        let pairs = (b.iter().zip(&printed_b))
            .chain(ours.poles.iter().zip(&printed_a))
            .chain(r.iter().zip(&printed_r));
        for (ours, printed) in pairs {
            assert!((ours - printed).abs() < 1e-13, "{ours} {printed}");
        }
    }
}
