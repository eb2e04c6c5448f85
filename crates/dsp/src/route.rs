//! Channel routing of a client.

use aulos_core::ChannelMap;

/// Fills `out` with `input` routed by `map`; both interleaved, with the same number of channels, up
/// to the shorter length. Left is the first channel, right the second or, for mono, the only one;
/// `Mono` is the average of both.
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
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "exact is what is promised")]

    use super::*;

    #[test]
    fn each_map_by_hand() {
        let sound = [1.0, -0.5, 0.25, 0.75];
        for (map, expected) in [
            (ChannelMap::Stereo, [1.0, -0.5, 0.25, 0.75]),
            (ChannelMap::Left, [1.0, 1.0, 0.25, 0.25]),
            (ChannelMap::Right, [-0.5, -0.5, 0.75, 0.75]),
            (ChannelMap::Mono, [0.25, 0.25, 0.5, 0.5]),
        ] {
            let mut out = [9.0; 4];
            route(map, &sound, &mut out, 2);
            assert_eq!(out, expected, "{map}");
        }
    }

    #[test]
    fn one_channel_is_every_channel() {
        for map in ChannelMap::ALL {
            let mut out = [9.0; 2];
            route(map, &[0.5, -0.5], &mut out, 1);
            assert_eq!(out, [0.5, -0.5], "{map}");
        }
    }
}
