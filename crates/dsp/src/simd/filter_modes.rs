//! The K-weighting's state at the end of a segment, computed directly from its samples.
//!
//! In suitable coordinates a cascade of two sections decomposes into two independent ones: the
//! shelf's two values, and those of the high-pass mixed with a share of the shelf's. Each is then a
//! weighted sum of samples. The shelf decays within some hundred samples, so that of a long segment
//! only the end matters for it; the high-pass needs two products per sample.

use crate::meter::weighting::{Coefficients, FilterState};

type Vector2 = [f64; 2];
type Matrix2 = [[f64; 2]; 2];

/// One section: its state is multiplied by a matrix and the sample is added.
#[derive(Clone, Debug)]
pub(super) struct FilterSection {
    /// The matrix to the power of 0 to [`BLOCK`] - 1, and to that of multiples of [`BLOCK`].
    few: Box<[Matrix2]>,
    many: Box<[Matrix2]>,
    /// Contribution of a sample to the state.
    input: Vector2,
}

impl FilterSection {
    fn new(turn: Matrix2, input: Vector2, longest: usize) -> Self {
        let mut few = vec![[[1.0, 0.0], [0.0, 1.0]]];
        for power in 1..BLOCK {
            few.push(product(&few[power - 1], &turn));
        }
        let whole = product(&few[BLOCK - 1], &turn);
        let mut many = vec![few[0]];
        for blocks in 1..=longest / BLOCK {
            many.push(product(&many[blocks - 1], &whole));
        }
        Self { few: few.into(), many: many.into(), input }
    }

    /// The matrix for one block.
    pub(super) fn block(&self) -> &Matrix2 {
        &self.many[1]
    }

    /// Contribution of a sample to the state `later` frames later, less than [`BLOCK`].
    pub(super) fn weight(&self, later: usize) -> Vector2 {
        times(&self.few[later], self.input)
    }

    /// The state after `frames` frames of silence.
    #[inline(always)]
    pub(super) fn advance(&self, frames: usize, state: Vector2) -> Vector2 {
        times(&self.many[frames / BLOCK], times(&self.few[frames % BLOCK], state))
    }

    /// Number of blocks after which the state is negligible next to a full-scale sample in a
    /// double.
    fn decay_blocks(&self) -> usize {
        let left =
            |power: &Matrix2| power.iter().flatten().fold(0.0, |top: f64, x| top.max(x.abs()));
        let gone = self.many.iter().position(|power| left(power) < NEGLIGIBLE);
        gone.unwrap_or(self.many.len())
    }
}

/// Both sections.
#[derive(Clone, Debug)]
pub(super) struct FilterModes {
    pub(super) shelf: FilterSection,
    pub(super) pass: FilterSection,
    /// The share of the shelf's values that is mixed into those of the high-pass.
    share: Matrix2,
    /// Blocks before the end of a segment from which on the shelf counts.
    pub(super) shelf_decay_blocks: usize,
}

impl FilterModes {
    /// For segments up to `longest` frames.
    pub(super) fn new(coefficients: &Coefficients, longest: usize) -> Self {
        let Coefficients { zeros, poles, keep, leak, .. } = *coefficients;
        let shelf = [[-poles[0], -poles[1]], [1.0, 0.0]];
        let pass = [[keep, -leak], [1.0, 1.0]];
        // The high-pass's input from the shelf's values.
        let heard = [[zeros[0] - poles[0], zeros[1] - poles[1]], [0.0, 0.0]];
        // The share solves pass * share - share * shelf = heard. By the Cayley-Hamilton theorem,
        // the shelf's characteristic polynomial of `pass`, times the share, is known.
        let mut of_pass = product(&pass, &pass);
        let mut known = product(&heard, &shelf);
        let turned = product(&pass, &heard);
        for row in 0..2 {
            for column in 0..2 {
                of_pass[row][column] += poles[0] * pass[row][column];
                known[row][column] += turned[row][column] + poles[0] * heard[row][column];
            }
            of_pass[row][row] += poles[1];
        }
        let share = product(&inverse(&of_pass), &known);
        let shelf = FilterSection::new(shelf, [1.0, 0.0], longest);
        let pass = FilterSection::new(pass, [1.0 + share[0][0], share[1][0]], longest);
        Self { shelf_decay_blocks: shelf.decay_blocks(), shelf, pass, share }
    }

    /// Converts a filter's state to the states of both sections.
    #[inline(always)]
    pub(super) fn to_modes(&self, [w1, w2, difference, before]: FilterState) -> [Vector2; 2] {
        let [mixed, mixed_before] = times(&self.share, [w1, w2]);
        [[w1, w2], [difference + mixed, before + mixed_before]]
    }

    /// The inverse conversion.
    #[inline(always)]
    pub(super) fn to_filter_state(&self, [shelf, pass]: [Vector2; 2]) -> FilterState {
        let mixed = times(&self.share, shelf);
        [shelf[0], shelf[1], pass[0] - mixed[0], pass[1] - mixed[1]]
    }
}

#[inline(always)]
fn times(a: &Matrix2, b: Vector2) -> Vector2 {
    [a[0][0] * b[0] + a[0][1] * b[1], a[1][0] * b[0] + a[1][1] * b[1]]
}

fn product(a: &Matrix2, b: &Matrix2) -> Matrix2 {
    let column = |i: usize| times(a, [b[0][i], b[1][i]]);
    let (first, second) = (column(0), column(1));
    [[first[0], second[0]], [first[1], second[1]]]
}

fn inverse(a: &Matrix2) -> Matrix2 {
    let determinant = a[0][0] * a[1][1] - a[0][1] * a[1][0];
    [
        [a[1][1] / determinant, -a[0][1] / determinant],
        [-a[1][0] / determinant, a[0][0] / determinant],
    ]
}

/// Frames with precomputed weights: between blocks of them, sums are multiplied by the matrix.
pub(super) const BLOCK: usize = 64;
/// A part of a filter's state that is lost in the rounding of the rest.
const NEGLIGIBLE: f64 = 1e-18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_sections_equal_the_cascade() {
        for hz in [16.0, 700.0, 8_000.0, 48_000.0, 192_000.0, 2_822_400.0] {
            let coefficients = Coefficients::new(hz);
            let modes = FilterModes::new(&coefficients, 1000);
            let mut state = [0.3, -0.2, 0.1, 5.0];
            let mut apart = modes.to_modes(state);
            let mut sample = 0.9;
            for _ in 0..777 {
                sample *= -0.99;
                coefficients.step(sample, &mut state);
                for (section, state) in [&modes.shelf, &modes.pass].into_iter().zip(&mut apart) {
                    *state = section.advance(1, *state);
                    let input = section.weight(0);
                    *state = [state[0] + sample * input[0], state[1] + sample * input[1]];
                }
            }
            for (one, other) in modes.to_filter_state(apart).into_iter().zip(state) {
                assert!((one - other).abs() < 1e-9 * (1.0 + other.abs()), "{hz} {one} {other}");
            }
        }
    }
}
