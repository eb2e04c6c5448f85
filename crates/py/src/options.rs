//! Python names of the meter's settings.

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::meter::{ChannelPosition, MeterConfig, MeterHistory, MeterMode, RangeHop};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// One mode name, or several.
#[derive(FromPyObject)]
pub(crate) enum ModesArgument {
    One(String),
    Several(Vec<String>),
}

/// The name of a loudspeaker, its azimuth in degrees to the left, or azimuth and elevation.
#[derive(Clone, FromPyObject, IntoPyObject)]
pub(crate) enum PositionArgument {
    Named(String),
    Middle(i16),
    At(i16, i8),
}

/// All settings except rate and channels.
pub(crate) struct MeterOptions {
    pub(crate) mode: MeterMode,
    positions: Option<Vec<ChannelPosition>>,
    pub(crate) range_hop: RangeHop,
}

pub(crate) const MODES: [(&str, MeterMode); 8] = [
    ("momentary", MeterMode::MOMENTARY),
    ("short_term", MeterMode::SHORT_TERM),
    ("integrated", MeterMode::INTEGRATED),
    ("loudness_range", MeterMode::RANGE),
    ("sample_peak", MeterMode::SAMPLE_PEAK),
    ("true_peak", MeterMode::TRUE_PEAK),
    ("maxima", MeterMode::MAXIMA),
    ("all", MeterMode::ALL),
];

const POSITIONS: [(&str, ChannelPosition); 7] = [
    ("L", ChannelPosition::LEFT),
    ("R", ChannelPosition::RIGHT),
    ("C", ChannelPosition::CENTER),
    ("LFE", ChannelPosition::LFE),
    ("Ls", ChannelPosition::LEFT_SURROUND),
    ("Rs", ChannelPosition::RIGHT_SURROUND),
    ("unused", ChannelPosition::Unused),
];

impl MeterOptions {
    pub(crate) fn new(
        mode: Option<ModesArgument>,
        positions: Option<Vec<PositionArgument>>,
        dual_mono: bool,
        lra_hop: f64,
    ) -> PyResult<Self> {
        let names = match mode {
            None => return Self::with(MeterMode::ALL, positions, dual_mono, lra_hop),
            Some(ModesArgument::One(name)) => vec![name],
            Some(ModesArgument::Several(names)) => names,
        };
        let mut modes = None;
        for name in names {
            let more = find("mode", &name, &MODES)?;
            modes = Some(modes.map_or(more, |modes| modes | more));
        }
        let mode =
            modes.ok_or_else(|| PyValueError::new_err("mode is empty: nothing to measure"))?;
        // Integrated loudness distinguishes silence, which has no range, from a tone, whose range
        // is 0.
        let mode =
            if mode.contains(MeterMode::RANGE) { mode | MeterMode::INTEGRATED } else { mode };
        Self::with(mode, positions, dual_mono, lra_hop)
    }

    fn with(
        mode: MeterMode,
        positions: Option<Vec<PositionArgument>>,
        dual_mono: bool,
        lra_hop: f64,
    ) -> PyResult<Self> {
        let tenths = lra_hop * 10.0;
        let range_hop = if (tenths - 10.0).abs() < 1e-6 {
            RangeHop::Second
        } else if (tenths - 1.0).abs() < 1e-6 {
            RangeHop::Tenth
        } else {
            let what = format!("lra_hop {lra_hop}: expected 1.0 or 0.1 seconds");
            return Err(PyValueError::new_err(what));
        };
        let mut places = None;
        if let Some(positions) = positions {
            if dual_mono {
                let what = "positions and dual_mono exclude each other";
                return Err(PyValueError::new_err(what));
            }
            places = Some(positions.into_iter().map(position).collect::<PyResult<_>>()?);
        } else if dual_mono {
            places = Some(vec![ChannelPosition::DualMono]);
        }
        Ok(Self { mode, positions: places, range_hop })
    }

    pub(crate) fn config(self, rate: u32, channels: usize) -> PyResult<MeterConfig> {
        let rate = SampleRate::new(rate).map_err(|error| invalid(&error))?;
        let layout = ChannelLayout::new(channels).map_err(|error| {
            invalid(&format!("{error} (the shape of sound is (frames, channels))"))
        })?;
        let mut config = MeterConfig::new(rate, layout, self.mode);
        if let Some(positions) = self.positions {
            if positions.len() != channels {
                let what = format!("{} positions for {channels} channels", positions.len());
                return Err(PyValueError::new_err(what));
            }
            config.positions = positions;
        }
        // The bounded history, allocated in advance, is for threads that must not allocate.
        config.history = MeterHistory::Unbounded;
        config.range_hop = self.range_hop;
        Ok(config)
    }
}

/// The names that select exactly these modes.
pub(crate) fn mode_names(mode: MeterMode) -> Vec<&'static str> {
    let single = MODES.iter().take(MODES.len() - 1);
    single.filter(|(_, one)| mode.contains(*one)).map(|(name, _)| *name).collect()
}

pub(crate) fn invalid(error: &impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn position(place: PositionArgument) -> PyResult<ChannelPosition> {
    Ok(match place {
        PositionArgument::Named(name) => find("position", &name, &POSITIONS)?,
        PositionArgument::Middle(azimuth) => ChannelPosition::middle(azimuth),
        PositionArgument::At(azimuth, elevation) => ChannelPosition::At { azimuth, elevation },
    })
}

pub(crate) fn find<T: Copy>(what: &str, name: &str, table: &[(&str, T)]) -> PyResult<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let known: Vec<_> = table.iter().map(|(known, _)| *known).collect();
        invalid(&format!("{what} {name:?}: expected one of {}", known.join(", ")))
    })
}
