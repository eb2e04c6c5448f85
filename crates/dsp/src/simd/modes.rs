//! How the K-weighting's state at the end of a segment comes straight from its samples.
//!
//! In fitting coordinates a cascade of two sections falls apart into two that do not know each
//! other: the shelf's own two values, and those of the high-pass with a share of the shelf's mixed
//! in. Each is then a weighted sum of samples. The shelf forgets within some hundred samples, so
//! that of a long segment only the end counts for it; the high-pass needs two products a sample.

use crate::meter::filter::{Coefficients, State};

type Two = [f64; 2];
type Square = [[f64; 2]; 2];

/// One section: its state turns by a matrix and takes the sample in.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The matrix to the power of 0 to [`BLOCK`] - 1, and to that of multiples of [`BLOCK`].
    few: Box<[Square]>,
    many: Box<[Square]>,
    /// What a sample adds to the state.
    input: Two,
}

impl Section {
    fn new(turn: Square, input: Two, longest: usize) -> Self {
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
    pub(super) fn block(&self) -> &Square {
        &self.many[1]
    }

    /// What a sample gives for the state so many frames later, less than [`BLOCK`].
    pub(super) fn weight(&self, later: usize) -> Two {
        times(&self.few[later], self.input)
    }

    /// What a state becomes after so many frames of silence.
    #[inline(always)]
    pub(super) fn after(&self, frames: usize, state: Two) -> Two {
        times(&self.many[frames / BLOCK], times(&self.few[frames % BLOCK], state))
    }

    /// After how many blocks nothing is left that a double could hold beside a full-scale sample.
    fn fades(&self) -> usize {
        let left =
            |power: &Square| power.iter().flatten().fold(0.0, |top: f64, x| top.max(x.abs()));
        let gone = self.many.iter().position(|power| left(power) < FORGOTTEN);
        gone.unwrap_or(self.many.len())
    }
}

/// Both sections.
#[derive(Clone, Debug)]
pub(super) struct Modes {
    pub(super) shelf: Section,
    pub(super) pass: Section,
    /// The share of the shelf's values that is mixed into those of the high-pass.
    share: Square,
    /// Blocks before the end of a segment from which on the shelf counts.
    pub(super) fades: usize,
}

impl Modes {
    /// For segments up to `longest` frames.
    pub(super) fn new(coefficients: &Coefficients, longest: usize) -> Self {
        let Coefficients { zeros, poles, keep, leak, .. } = *coefficients;
        let shelf = [[-poles[0], -poles[1]], [1.0, 0.0]];
        let pass = [[keep, -leak], [1.0, 1.0]];
        // What the high-pass hears of the shelf's values.
        let heard = [[zeros[0] - poles[0], zeros[1] - poles[1]], [0.0, 0.0]];
        // The share solves pass * share - share * shelf = heard. By the theorem of Cayley and
        // Hamilton, the shelf's characteristic polynomial of `pass`, times the share, is known.
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
        let shelf = Section::new(shelf, [1.0, 0.0], longest);
        let pass = Section::new(pass, [1.0 + share[0][0], share[1][0]], longest);
        Self { fades: shelf.fades(), shelf, pass, share }
    }

    /// From a filter's state to those of both sections.
    #[inline(always)]
    pub(super) fn apart(&self, [w1, w2, difference, before]: State) -> [Two; 2] {
        let [mixed, mixed_before] = times(&self.share, [w1, w2]);
        [[w1, w2], [difference + mixed, before + mixed_before]]
    }

    /// And back.
    #[inline(always)]
    pub(super) fn together(&self, [shelf, pass]: [Two; 2]) -> State {
        let mixed = times(&self.share, shelf);
        [shelf[0], shelf[1], pass[0] - mixed[0], pass[1] - mixed[1]]
    }
}

#[inline(always)]
fn times(a: &Square, b: Two) -> Two {
    [a[0][0] * b[0] + a[0][1] * b[1], a[1][0] * b[0] + a[1][1] * b[1]]
}

fn product(a: &Square, b: &Square) -> Square {
    let column = |i: usize| times(a, [b[0][i], b[1][i]]);
    let (first, second) = (column(0), column(1));
    [[first[0], second[0]], [first[1], second[1]]]
}

fn inverse(a: &Square) -> Square {
    let determinant = a[0][0] * a[1][1] - a[0][1] * a[1][0];
    [
        [a[1][1] / determinant, -a[0][1] / determinant],
        [-a[1][0] / determinant, a[0][0] / determinant],
    ]
}

/// Frames whose weights are kept: between blocks of them, sums are turned.
pub(super) const BLOCK: usize = 64;
/// A part of a filter's state that is lost in the rounding of the rest.
const FORGOTTEN: f64 = 1e-18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_apart_go_where_the_cascade_goes() {
        for hz in [16.0, 700.0, 8_000.0, 48_000.0, 192_000.0, 2_822_400.0] {
            let coefficients = Coefficients::new(hz);
            let modes = Modes::new(&coefficients, 1000);
            let mut state = [0.3, -0.2, 0.1, 5.0];
            let mut apart = modes.apart(state);
            let mut sample = 0.9;
            for _ in 0..777 {
                sample *= -0.99;
                coefficients.step(sample, &mut state);
                for (section, state) in [&modes.shelf, &modes.pass].into_iter().zip(&mut apart) {
                    *state = section.after(1, *state);
                    let input = section.weight(0);
                    *state = [state[0] + sample * input[0], state[1] + sample * input[1]];
                }
            }
            for (one, other) in modes.together(apart).into_iter().zip(state) {
                assert!((one - other).abs() < 1e-9 * (1.0 + other.abs()), "{hz} {one} {other}");
            }
        }
    }
}
