//! Ten thousand random cases: the meter compared with libebur128, the crate `ebur128` and a literal
//! implementation of the definition.
//!
//! A case is a meter and a sequence of steps: signals in calls of any size, and changes. After each
//! step every figure that a reference provides must agree. A failing case is reduced as long as it
//! fails, and the smallest is printed with its seed.
//!
//! | reference | compared figures |
//! |---|---|
//! | libebur128 of the distribution, loaded at run time | everything it measures, from 4 kHz up; peaks at any rate |
//! | the crate `ebur128` | the same, planar input, and windows for which libebur128 would allocate gigabytes |
//! | the definition (`definition.rs`) | all rates, exact maxima, the range at 10 Hz, where both others lose precision |
//!
//! Intended differences: a value that is not finite is measured as silence and counted (the
//! references get the silence), unless
//! [`NonFinitePolicy::Propagate`](aulos_dsp::meter::NonFinitePolicy) selects libebur128's
//! behaviour; below 4 kHz, where the references' filter is unstable, ours is stable; and maxima are
//! exact, not those at the times of readings.
//!
//! `AULOS_CASES=N` runs N cases of each kind, `AULOS_CASE=SEED` only that one.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "random signals, and figures that must be the same"
)]

mod case;
mod comparison;
mod definition;
mod libebur128;
mod test_signal;

use std::panic::{AssertUnwindSafe, catch_unwind};

use case::{Case, CaseKind};
use libebur128::Libebur128;

/// For each of the four kinds.
const CASES: u64 = 2_500;

#[test]
fn usual_rates_and_layouts() {
    cases(CaseKind::Usual);
}

#[test]
fn any_rate() {
    cases(CaseKind::AnyRate);
}

#[test]
fn up_to_64_channels_anywhere() {
    cases(CaseKind::Channels);
}

#[test]
fn changes_on_the_way() {
    cases(CaseKind::Changes);
}

fn cases(kind: CaseKind) {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let original = Libebur128::load();
    if original.is_none() {
        println!("skipped: no libebur128");
    }
    let count = number("AULOS_CASES").unwrap_or(CASES);
    let seeds = number("AULOS_CASE").map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        let case = Case::random(kind, seed);
        let Err(what) = outcome(&case, original) else { continue };
        let (smallest, what) = shrink(case, what, original);
        panic!("{kind:?}, AULOS_CASE={seed}: {what}\nthe smallest that fails: {smallest:#?}");
    }
}

/// Runs a case; the error is the first deviation, or a panic.
fn outcome(case: &Case, original: Option<Libebur128>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| comparison::run(case, original))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").into())
    })
}

/// Removes whatever is not needed for the failure.
fn shrink(mut case: Case, mut what: String, original: Option<Libebur128>) -> (Case, String) {
    loop {
        let smaller = case
            .smaller()
            .into_iter()
            .find_map(|smaller| outcome(&smaller, original).err().map(|what| (smaller, what)));
        match smaller {
            Some(found) => (case, what) = found,
            None => return (case, what),
        }
    }
}
