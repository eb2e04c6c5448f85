//! Channel routing of a client.

use aulos_core::ChannelMap;

/// Fills `out` with `input` routed by `map`; both interleaved, with the same number of channels, up
/// to the shorter length. Left is the first channel, right the second or, for mono, the only one;
/// `Mono` is the average of both. A single channel that the station does not have is silent.
///
/// # Real-time
/// Does not allocate.
///
/// # Panics
/// If `channels` is 0, which no [`aulos_core::ChannelLayout`] is.
pub fn route(map: ChannelMap, input: &[f32], out: &mut [f32], channels: usize) {
    let pairs = input.chunks_exact(channels).zip(out.chunks_exact_mut(channels));
    for (frame, out) in pairs {
        let (left, right) = (frame[0], frame[1.min(channels - 1)]);
        match map {
            ChannelMap::Stereo => out.copy_from_slice(frame),
            ChannelMap::Left => out.fill(left),
            ChannelMap::Right => out.fill(right),
            ChannelMap::Mono => out.fill(0.5 * (left + right)),
            ChannelMap::Swap => {
                out.copy_from_slice(frame);
                (out[0], out[1.min(channels - 1)]) = (right, left);
            }
            ChannelMap::Single(number) => {
                out.fill(frame.get(number.index()).copied().unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "exact is what is promised")]

    use aulos_core::ChannelNumber;

    use super::*;

    #[test]
    fn each_map_by_hand() {
        let sound = [1.0, -0.5, 0.25, 0.75];
        for (map, expected) in [
            (ChannelMap::Stereo, [1.0, -0.5, 0.25, 0.75]),
            (ChannelMap::Left, [1.0, 1.0, 0.25, 0.25]),
            (ChannelMap::Right, [-0.5, -0.5, 0.75, 0.75]),
            (ChannelMap::Mono, [0.25, 0.25, 0.5, 0.5]),
            (ChannelMap::Swap, [-0.5, 1.0, 0.75, 0.25]),
            (single(1), [1.0, 1.0, 0.25, 0.25]),
            (single(2), [-0.5, -0.5, 0.75, 0.75]),
            (single(3), [0.0; 4]),
        ] {
            let mut out = [9.0; 4];
            route(map, &sound, &mut out, 2);
            assert_eq!(out, expected, "{map}");
        }
    }

    fn single(number: u8) -> ChannelMap {
        ChannelMap::Single(ChannelNumber::new(number).unwrap())
    }

    #[test]
    fn a_channel_of_six_is_on_every_output() {
        let frame = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut out = [9.0; 6];
        route(single(5), &frame, &mut out, 6);
        assert_eq!(out, [5.0; 6]);
        route(ChannelMap::Swap, &frame, &mut out, 6);
        assert_eq!(out, [2.0, 1.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn one_channel_is_every_channel() {
        let is_there = |map: &ChannelMap| !matches!(map, ChannelMap::Single(n) if n.index() > 0);
        for map in ChannelMap::ALL.into_iter().filter(is_there) {
            let mut out = [9.0; 2];
            route(map, &[0.5, -0.5], &mut out, 1);
            assert_eq!(out, [0.5, -0.5], "{map}");
        }
    }
}
