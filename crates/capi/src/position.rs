//! Channel numbers of the C interface.

use aulos_core::MAX_CHANNELS;
use aulos_dsp::meter::ChannelPosition;

/// The number of `EBUR128_DUAL_MONO`.
pub(crate) const DUAL_MONO: i32 = 6;

/// The position of a number of `enum channel`; unknown numbers have a weight of one, as in the
/// original.
pub(crate) fn position(number: i32) -> ChannelPosition {
    let at = |azimuth, elevation| ChannelPosition::At { azimuth, elevation };
    match number {
        0 => ChannelPosition::Unused,
        1 => ChannelPosition::LEFT,
        2 => ChannelPosition::RIGHT,
        4 => ChannelPosition::LEFT_SURROUND,
        5 => ChannelPosition::RIGHT_SURROUND,
        DUAL_MONO => ChannelPosition::DualMono,
        9 => at(60, 0),
        10 => at(-60, 0),
        11 => at(90, 0),
        12 => at(-90, 0),
        13 => at(135, 0),
        14 => at(-135, 0),
        15 => at(180, 0),
        16..=27 => at(0, 45),
        28 => at(0, 90),
        29..=31 => at(0, -30),
        _ => ChannelPosition::CENTER,
    }
}

/// The default channel positions: those of the original, which for more than six channels gives a
/// weight to the first six.
pub(crate) fn default_map(channels: usize) -> Vec<ChannelPosition> {
    let numbers: &[i32] = match channels {
        4 => &[1, 2, 4, 5],
        5 => &[1, 2, 3, 4, 5],
        _ => &[1, 2, 3, 0, 4, 5],
    };
    let numbers = numbers.iter().copied().chain(core::iter::repeat(0));
    numbers.map(position).take(channels.min(MAX_CHANNELS)).collect()
}
