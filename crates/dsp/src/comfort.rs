//! Comfort noise (RFC 3389) for the silences of a call.
//!
//! During silence a telephone sends a few bytes now and then instead of audio: the level and the
//! spectrum of its background noise. Without any sound, a listener would take the call for
//! disconnected.
//!
//! The noise is white noise through an all-pole filter in lattice form, which uses the reflection
//! coefficients directly and is always stable, since each is less than one.

use aulos_core::Rng;

/// Generates noise with the latest level and spectrum.
///
/// # Examples
/// ```
/// use aulos_dsp::ComfortNoise;
///
/// let mut noise = ComfortNoise::new(7);
/// noise.set_parameters(&[40], true);
/// let mut samples = [0.0; 8_000];
/// noise.fill(&mut samples);
/// let power: f32 = samples.iter().map(|sample| sample * sample).sum::<f32>() / 8_000.0;
/// assert!((10.0 * power.log10() + 40.0).abs() < 0.5, "-40 dB of full scale");
/// ```
#[derive(Clone, Debug)]
pub struct ComfortNoise {
    /// Reflection coefficients, `order` of them.
    reflections: [f32; MAX_ORDER],
    order: usize,
    /// State of the lattice.
    backward: [f32; MAX_ORDER + 1],
    /// Amplitude of the filter's input.
    amplitude: f32,
    rng: Rng,
}

impl ComfortNoise {
    /// A generator that is silent until the first parameters; the same `seed` gives the same noise.
    #[must_use]
    pub const fn new(seed: u32) -> Self {
        Self {
            reflections: [0.0; MAX_ORDER],
            order: 0,
            backward: [0.0; MAX_ORDER + 1],
            amplitude: 0.0,
            rng: Rng::new(seed as u64),
        }
    }

    /// Sets the parameters from a packet's payload: a level, 0 to 127 dB below a square wave of
    /// full scale, and optional reflection coefficients. The coefficients are valid at the packet's
    /// rate only; `coloured` is true if that is the rate of [`Self::fill`]. Coefficients beyond the
    /// twelfth are ignored, as RFC 3389 allows. An empty payload changes nothing.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn set_parameters(&mut self, payload: &[u8], coloured: bool) {
        let Some((&level, colours)) = payload.split_first() else { return };
        let colours = if coloured { colours } else { &[] };
        self.order = colours.len().min(MAX_ORDER);
        // Each coefficient reduces the power; the input's amplitude compensates for it.
        let mut gain = 1.0;
        for (slot, &byte) in self.reflections.iter_mut().zip(colours) {
            *slot = (f32::from(byte.min(MAX_COEFFICIENT)) - 127.0) * 258.0 / 32_768.0;
            gain *= 1.0 - *slot * *slot;
        }
        let rms = 10.0_f32.powf(-f32::from(level & 0x7f) / 20.0);
        self.amplitude = rms * (gain * 3.0).sqrt();
    }

    /// Fills `samples`, of one channel, with noise.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn fill(&mut self, samples: &mut [f32]) {
        for sample in samples {
            *sample = self.next().clamp(-1.0, 1.0);
        }
    }

    fn next(&mut self) -> f32 {
        let mut forward = self.white() * self.amplitude;
        for stage in (0..self.order).rev() {
            let reflection = self.reflections[stage];
            forward -= reflection * self.backward[stage];
            self.backward[stage + 1] = reflection.mul_add(forward, self.backward[stage]);
        }
        self.backward[0] = forward;
        forward
    }

    /// Uniform from -1 to 1, with a power of one third.
    #[allow(clippy::cast_possible_truncation, reason = "noise")]
    fn white(&mut self) -> f32 {
        (self.rng.next_f64() * 2.0 - 1.0) as f32
    }
}

/// Maximum number of coefficients; typical senders use ten.
const MAX_ORDER: usize = 12;

/// The highest code of a coefficient (RFC 3389, 3.2).
const MAX_COEFFICIENT: u8 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(payload: &[u8]) -> Vec<f32> {
        let mut noise = ComfortNoise::new(1);
        noise.set_parameters(payload, true);
        let mut samples = vec![0.0; 80_000];
        noise.fill(&mut samples);
        samples
    }

    fn level(samples: &[f32]) -> f64 {
        let power: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        #[allow(clippy::cast_precision_loss, reason = "some thousands")]
        let mean = power / samples.len() as f64;
        10.0 * mean.log10()
    }

    /// Correlation of neighbouring samples, -1 to 1.
    fn likeness(samples: &[f32]) -> f64 {
        let product = |by: usize| -> f64 {
            samples.iter().zip(&samples[by..]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        product(1) / product(0)
    }

    #[test]
    fn the_level_is_as_configured_for_any_spectrum() {
        for told in [20_u8, 40, 60] {
            for colours in
                [&[][..], &[127, 127], &[190], &[60, 200, 127, 90], &[100; 10], &[150; 30]]
            {
                let heard = level(&of(&[&[told], colours].concat()));
                let off = heard + f64::from(told);
                assert!(off.abs() < 0.5, "{told} {colours:?}: {heard}");
            }
        }
        assert!(of(&[127]).iter().all(|sample| sample.abs() < 2e-6));
    }

    /// The first coefficient of a process is its autocorrelation at a lag of one sample, negated
    /// (the sign convention of lattice filters).
    #[test]
    fn the_first_coefficient_makes_it_dark_or_bright() {
        for byte in [40_u8, 100, 160, 220] {
            let wanted = -(f64::from(byte) - 127.0) * 258.0 / 32_768.0;
            let heard = likeness(&of(&[30, byte]));
            assert!((heard - wanted).abs() < 0.02, "{byte}: {heard}, not {wanted}");
        }
    }

    #[test]
    fn there_is_silence_before_the_first_parameters_and_invalid_ones_are_bounded() {
        assert!(of(&[]).iter().all(|sample| *sample == 0.0));
        for payload in [&[0x80; 40][..], &[0; 40], &[255; 40], &[0, 254], &[0, 0, 254, 0]] {
            assert!(of(payload).iter().all(|sample| sample.abs() <= 1.0));
        }
    }
}
