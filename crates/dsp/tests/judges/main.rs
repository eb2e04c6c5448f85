//! Ten thousand random cases: the meter beside libebur128 itself, the crate `ebur128` and the
//! definition written out.
//!
//! A case is a meter, and what is done to it: sounds in calls of any size, and changes on the way.
//! After each step every figure that a judge has must agree. A case that fails is made smaller
//! until it fails no more, and the smallest is printed with its seed.
//!
//! | judge | what it decides |
//! |---|---|
//! | libebur128, the distribution's, loaded at run time | everything it measures, from 4 kHz up; peaks at any rate |
//! | the crate `ebur128` | the same, planes, and windows for which libebur128 would take gigabytes |
//! | the definition (`definition.rs`) | all rates, exact maxima, the range at 10 Hz, where both others lose precision |
//!
//! Where ours differs on purpose: a value that is not finite is silence and counted (the judges get
//! the silence), unless [`NonFinite::Spoil`](aulos_dsp::meter::NonFinite) asks for what libebur128
//! does; below 4 kHz, where the judges' filter is not stable, ours is; and maxima are exact, not
//! those of the moments at which someone looked.
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

/// Of each of the four kinds.
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

/// What is wrong, if anything; a panic is wrong too.
fn outcome(case: &Case, original: Option<Libebur128>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| comparison::run(case, original))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").into())
    })
}

/// Takes away whatever does not stop it from failing.
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
