//! The loudspeaker positions of a file's channels, for the meter.

use aulos_core::ChannelLayout;
use aulos_dsp::meter::ChannelPosition;

/// The position of each channel, by the file's channel mask or else by convention.
pub(crate) fn positions(layout: ChannelLayout, speakers: Option<u32>) -> Vec<ChannelPosition> {
    let said = speakers.filter(|mask| mask.count_ones() as usize == layout.channels());
    match said {
        Some(mask) => (0..32)
            .filter(|bit| mask >> bit & 1 == 1)
            .map(|bit| position_of_bit(bit, mask))
            .collect(),
        None => ChannelPosition::default_for(layout),
    }
}

/// The position of a bit of WAVE's channel mask. With one pair of surrounds, back or side, they are
/// at 110 degrees (ITU-R BS.775); with two pairs they are back and side (BS.2051).
fn position_of_bit(bit: u32, mask: u32) -> ChannelPosition {
    let two_pairs = mask & BACK != 0 && mask & SIDE != 0;
    let above = |azimuth| ChannelPosition::At { azimuth, elevation: 45 };
    let surround = if two_pairs { [135, 90] } else { [110, 110] };
    match bit {
        0 => ChannelPosition::LEFT,
        1 => ChannelPosition::RIGHT,
        2 => ChannelPosition::CENTER,
        3 => ChannelPosition::LFE,
        4 => ChannelPosition::middle(surround[0]),
        5 => ChannelPosition::middle(-surround[0]),
        6 => ChannelPosition::middle(15),
        7 => ChannelPosition::middle(-15),
        8 => ChannelPosition::middle(180),
        9 => ChannelPosition::middle(surround[1]),
        10 => ChannelPosition::middle(-surround[1]),
        11 => ChannelPosition::At { azimuth: 0, elevation: 90 },
        12 => above(30),
        13 => above(0),
        14 => above(-30),
        15 => above(135),
        16 => above(180),
        17 => above(-135),
        // Unknown positions count as front.
        _ => ChannelPosition::CENTER,
    }
}

const BACK: u32 = 0b11 << 4;
const SIDE: u32 = 0b11 << 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(mask: u32) -> Vec<f64> {
        let layout = ChannelLayout::new(mask.count_ones() as usize).unwrap();
        positions(layout, Some(mask)).into_iter().map(ChannelPosition::weight).collect()
    }

    #[test]
    fn a_channel_mask_sets_positions_and_weights() {
        let surround = vec![1.0, 1.0, 1.0, 0.0, 1.41, 1.41];
        assert_eq!(weights(0x3f), surround, "5.1 with back");
        assert_eq!(weights(0x60f), surround, "5.1 with side");
        assert_eq!(weights(0x63f), [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.41, 1.41], "7.1");
        assert_eq!(weights(0x107), [1.0; 4], "front and back centre");
        assert_eq!(weights(0x3_f000), [1.0; 6], "all above");
        assert_eq!(weights(0x3b), [1.0, 1.0, 0.0, 1.41, 1.41], "4.1, no centre");
    }

    #[test]
    fn an_incomplete_mask_means_the_default_positions() {
        let six = ChannelLayout::SURROUND_5_1;
        for mask in [None, Some(0), Some(0x3)] {
            assert_eq!(positions(six, mask), ChannelPosition::default_for(six));
        }
    }
}
