//! The gain that brings an announcement to a loudness.

use aulos_core::{Db, Lufs};

use super::limits::{MAX_LIMITER_REDUCTION, MAX_MATCHING_GAIN};
use crate::loudness::Loudness;

/// The gain that brings an announcement to the loudness of a programme that is normalized to
/// `target` with the true peak `ceiling` and ducked by `duck`. It makes up for the headroom that is
/// left for the ducked programme. It is limited to plus or minus [`MAX_MATCHING_GAIN`], and so that
/// the limiter after the announcements takes at most [`MAX_LIMITER_REDUCTION`] off the peaks.
///
/// An announcement without an integrated loudness, such as one shorter than 400 ms, keeps its
/// level.
#[must_use]
pub fn matching_gain(loudness: &Loudness, target: Lufs, ceiling: Db, duck: Db) -> Db {
    let Some(integrated) = loudness.integrated else { return Db::ZERO };
    let given_away = headroom(duck).get();
    let gain = target.get() - integrated.get() - given_away;
    let peak = loudness.true_peak.map_or(f64::NEG_INFINITY, Db::get) + given_away;
    let room = ceiling.get() + MAX_LIMITER_REDUCTION.get() - peak;
    let most = MAX_MATCHING_GAIN.get();
    Db::new(gain.min(room).clamp(-most, most))
}

/// The share of full scale that a programme ducked by `duck` leaves to an announcement.
#[must_use]
pub fn headroom(duck: Db) -> Db {
    Db::new(20.0 * (1.0 - duck.amplitude()).log10())
}
