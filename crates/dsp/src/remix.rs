//! Conversion between channel counts.
//!
//! One fixed conversion, because a station has one layout and every input is converted to it. A
//! configurable matrix is out of scope: other mixes are made upstream.

/// Converts interleaved frames of `from` channels to frames of `to` channels; returns the number of
/// frames converted: as many as `input` has and `out` has room for.
///
/// * mono to n: the same sample in the first two channels (left and right); further channels are
///   silent
/// * n to mono, from stereo: half of each side; from 5.1: the stereo mix, then half of each side
/// * 5.1 (L R C LFE Ls Rs) to stereo: ITU-R BS.775-4, table 2: center and surrounds at 0.7071,
///   without LFE; not scaled down, so loud material can exceed full scale
/// * the same number: a copy
/// * otherwise: the channels that both have are copied, the others are silent
///
/// # Real-time
/// Does not allocate.
///
/// # Panics
/// If `from` or `to` is 0, which no [`aulos_core::ChannelLayout`] is.
pub fn remix(input: &[f32], from: usize, out: &mut [f32], to: usize) -> usize {
    let frames = (input.len() / from).min(out.len() / to);
    let input = &input[..frames * from];
    let out = &mut out[..frames * to];
    match (from, to) {
        _ if from == to => out.copy_from_slice(input),
        (1, _) => {
            for (out, &sample) in out.chunks_exact_mut(to).zip(input) {
                spread(out, sample);
            }
        }
        (2, 1) => {
            for (out, &[left, right]) in out.iter_mut().zip(input.as_chunks().0) {
                *out = 0.5 * (left + right);
            }
        }
        (6, 2) => {
            for (out, frame) in out.as_chunks_mut().0.iter_mut().zip(input.as_chunks().0) {
                *out = fold(*frame);
            }
        }
        (6, 1) => {
            for (out, frame) in out.iter_mut().zip(input.as_chunks().0) {
                let [left, right] = fold(*frame);
                *out = 0.5 * (left + right);
            }
        }
        _ => {
            let shared = from.min(to);
            for (out, frame) in out.chunks_exact_mut(to).zip(input.chunks_exact(from)) {
                out[..shared].copy_from_slice(&frame[..shared]);
                out[shared..].fill(0.0);
            }
        }
    }
    frames
}

/// Mono to the front: left and right, the rest silent.
fn spread(out: &mut [f32], sample: f32) {
    for (channel, out) in out.iter_mut().enumerate() {
        *out = if channel < 2 { sample } else { 0.0 };
    }
}

/// 5.1 to stereo.
const fn fold([left, right, center, _lfe, left_s, right_s]: [f32; 6]) -> [f32; 2] {
    let center = HALF_POWER * center;
    [left + center + HALF_POWER * left_s, right + center + HALF_POWER * right_s]
}

/// -3 dB: half the power.
const HALF_POWER: f32 = core::f32::consts::FRAC_1_SQRT_2;

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "exact is what is promised")]

    use super::*;

    fn converted(input: &[f32], from: usize, to: usize) -> Vec<f32> {
        let mut out = vec![9.0; input.len() / from * to];
        assert_eq!(remix(input, from, &mut out, to), input.len() / from);
        out
    }

    #[test]
    fn mono_maps_to_the_front_channels() {
        assert_eq!(converted(&[0.5, -0.25], 1, 2), [0.5, 0.5, -0.25, -0.25]);
        assert_eq!(converted(&[0.5], 1, 6), [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn stereo_to_mono_never_clips() {
        assert_eq!(converted(&[1.0, 1.0, 1.0, -1.0], 2, 1), [1.0, 0.0]);
    }

    #[test]
    fn surround_folds_by_bs_775() {
        let unit = |channel: usize| {
            let mut frame = [0.0; 6];
            frame[channel] = 1.0;
            converted(&frame, 6, 2)
        };
        let c = 0.707_106_77;
        assert_eq!(unit(0), [1.0, 0.0]);
        assert_eq!(unit(1), [0.0, 1.0]);
        assert_eq!(unit(2), [c, c]);
        assert_eq!(unit(3), [0.0, 0.0]);
        assert_eq!(unit(4), [c, 0.0]);
        assert_eq!(unit(5), [0.0, c]);
        assert_eq!(converted(&[0.0, 0.0, 1.0, 0.0, 0.0, 0.0], 6, 1), [c]);
    }

    #[test]
    fn other_layouts_keep_the_channels_that_both_have() {
        assert_eq!(converted(&[1.0, 2.0, 3.0, 4.0], 4, 2), [1.0, 2.0]);
        assert_eq!(converted(&[1.0, 2.0], 2, 4), [1.0, 2.0, 0.0, 0.0]);
        assert_eq!(converted(&[1.0, 2.0, 3.0], 3, 3), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn lengths_that_do_not_match_convert_whole_frames_only() {
        let mut out = [9.0; 5];
        assert_eq!(remix(&[1.0, 2.0, 3.0], 1, &mut out, 2), 2);
        assert_eq!(out, [1.0, 1.0, 2.0, 2.0, 9.0]);
        assert_eq!(remix(&[1.0], 2, &mut out, 1), 0);
    }
}
