//! Loudspeaker position and loudness weight of a channel.

use aulos_core::ChannelLayout;

/// The loudspeaker position of a channel.
///
/// ITU-R BS.1770-4 table 4 weights a channel by its position: channels at the side, between 60 and
/// 120 degrees in the middle layer, count 1.41 times, low-frequency effects do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChannelPosition {
    /// Without weight for loudness: a low-frequency effects channel, or one that is not reproduced.
    /// Its peaks are still measured.
    Unused,
    /// One channel that is reproduced by two loudspeakers, and counts twice (+3.01 LU).
    DualMono,
    /// A loudspeaker.
    At {
        /// Degrees from the front, positive to the left.
        azimuth: i16,
        /// Degrees above ear height.
        elevation: i8,
    },
}

impl ChannelPosition {
    /// The low-frequency effects channel.
    pub const LFE: Self = Self::Unused;
    /// M+030.
    pub const LEFT: Self = Self::middle(30);
    /// M-030.
    pub const RIGHT: Self = Self::middle(-30);
    /// M+000.
    pub const CENTER: Self = Self::middle(0);
    /// M+110.
    pub const LEFT_SURROUND: Self = Self::middle(110);
    /// M-110.
    pub const RIGHT_SURROUND: Self = Self::middle(-110);

    /// A loudspeaker at ear height, `azimuth` degrees to the left of the front.
    #[must_use]
    pub const fn middle(azimuth: i16) -> Self {
        Self::At { azimuth, elevation: 0 }
    }

    /// Positions of the channels of a WAVE file: L R C LFE, then surrounds (for eight channels:
    /// back, then side). With more than eight channels, each counts as a front channel.
    #[must_use]
    pub fn default_for(layout: ChannelLayout) -> Vec<Self> {
        const L: ChannelPosition = ChannelPosition::LEFT;
        const R: ChannelPosition = ChannelPosition::RIGHT;
        const C: ChannelPosition = ChannelPosition::CENTER;
        const LS: ChannelPosition = ChannelPosition::LEFT_SURROUND;
        const RS: ChannelPosition = ChannelPosition::RIGHT_SURROUND;
        const LFE: ChannelPosition = ChannelPosition::LFE;
        const BACK: ChannelPosition = ChannelPosition::middle(180);
        match layout.channels() {
            1 => vec![C],
            2 => vec![L, R],
            3 => vec![L, R, C],
            4 => vec![L, R, LS, RS],
            5 => vec![L, R, C, LS, RS],
            6 => vec![L, R, C, LFE, LS, RS],
            7 => vec![L, R, C, LFE, BACK, Self::middle(90), Self::middle(-90)],
            8 => vec![
                L,
                R,
                C,
                LFE,
                Self::middle(135),
                Self::middle(-135),
                Self::middle(90),
                Self::middle(-90),
            ],
            n => vec![C; n],
        }
    }

    /// Weight of the channel's energy (BS.1770-4 table 4).
    #[must_use]
    pub const fn weight(self) -> f64 {
        match self {
            Self::Unused => 0.0,
            Self::DualMono => 2.0,
            Self::At { azimuth, elevation } => {
                let side = matches!(azimuth.unsigned_abs(), 60..=120);
                if side && elevation.unsigned_abs() < 30 { 1.41 } else { 1.0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp, reason = "weights are constants")]
    fn sound_from_the_side_counts_more_and_effects_do_not_count() {
        assert_eq!(ChannelPosition::LEFT_SURROUND.weight(), 1.41);
        assert_eq!(ChannelPosition::middle(-60).weight(), 1.41);
        assert_eq!(ChannelPosition::middle(135).weight(), 1.0);
        assert_eq!(ChannelPosition::At { azimuth: 90, elevation: 30 }.weight(), 1.0);
        assert_eq!(ChannelPosition::LFE.weight(), 0.0);
        assert_eq!(ChannelPosition::DualMono.weight(), 2.0);
    }

    #[test]
    fn every_layout_has_a_position_for_each_channel() {
        for channels in 1..=aulos_core::MAX_CHANNELS {
            let layout = ChannelLayout::new(channels).unwrap();
            assert_eq!(ChannelPosition::default_for(layout).len(), channels);
        }
    }
}
