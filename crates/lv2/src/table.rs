//! All plug-ins with their ports. The order of ports is fixed: audio inputs, audio outputs, control
//! inputs, control outputs. A new port is added to the end of its plug-in or the URI changes,
//! because hosts save sessions by URI.

use core::ffi::CStr;

use aulos_dsp::normalize::LookAhead;

/// One plug-in.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a row of the table")]
pub struct PluginInfo {
    /// Identifies it in hosts, for ever.
    pub uri: &'static CStr,
    /// Name for users.
    pub name: &'static str,
    /// What it does.
    pub kind: PluginKind,
    /// Number of its audio inputs, and of its audio outputs.
    pub channels: usize,
}

/// What a plug-in does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the table's own")]
pub enum PluginKind {
    /// Keeps the loudness at a target.
    Normalizer,
    /// Measures, and passes the sound on.
    Meter,
}

/// All plug-ins, in the order of their index.
pub static PLUGINS: [PluginInfo; 6] = [
    PluginInfo {
        uri: c"urn:aulos:normalizer:mono",
        name: "aulos Loudness Normalizer Mono",
        kind: PluginKind::Normalizer,
        channels: 1,
    },
    PluginInfo {
        uri: c"urn:aulos:normalizer:stereo",
        name: "aulos Loudness Normalizer Stereo",
        kind: PluginKind::Normalizer,
        channels: 2,
    },
    PluginInfo {
        uri: c"urn:aulos:normalizer:5.1",
        name: "aulos Loudness Normalizer 5.1",
        kind: PluginKind::Normalizer,
        channels: 6,
    },
    PluginInfo {
        uri: c"urn:aulos:meter:mono",
        name: "aulos Loudness Meter Mono",
        kind: PluginKind::Meter,
        channels: 1,
    },
    PluginInfo {
        uri: c"urn:aulos:meter:stereo",
        name: "aulos Loudness Meter Stereo",
        kind: PluginKind::Meter,
        channels: 2,
    },
    PluginInfo {
        uri: c"urn:aulos:meter:5.1",
        name: "aulos Loudness Meter 5.1",
        kind: PluginKind::Meter,
        channels: 6,
    },
];

impl PluginInfo {
    /// Its control inputs.
    #[must_use]
    pub fn inputs(&self) -> &'static [ControlPort] {
        match self.kind {
            // Dual mono, the last one, is for one channel.
            PluginKind::Normalizer if self.channels > 1 => &NORMALIZER_INPUTS[..DUAL_MONO],
            PluginKind::Normalizer => &NORMALIZER_INPUTS,
            PluginKind::Meter => &METER_INPUTS,
        }
    }

    /// Its control outputs.
    #[must_use]
    pub const fn outputs(&self) -> &'static [ControlPort] {
        match self.kind {
            PluginKind::Normalizer => &NORMALIZER_OUTPUTS,
            PluginKind::Meter => &METER_OUTPUTS,
        }
    }

    /// Symbol and name of each of its channels.
    #[must_use]
    pub const fn channel_names(&self) -> &'static [(&'static str, &'static str)] {
        match self.channels {
            1 => &[("mono", "Mono")],
            2 => &[("left", "Left"), ("right", "Right")],
            _ => &[
                ("left", "Left"),
                ("right", "Right"),
                ("center", "Center"),
                ("lfe", "LFE"),
                ("left_surround", "Left Surround"),
                ("right_surround", "Right Surround"),
            ],
        }
    }
}

/// A port with one number.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a row of the table")]
pub struct ControlPort {
    /// Identifies it in the plug-in, for ever.
    pub symbol: &'static str,
    /// Name for users.
    pub name: &'static str,
    /// Value of a new instance.
    pub default: f32,
    /// Minimum.
    pub min: f32,
    /// Maximum.
    pub max: f32,
    /// What it counts.
    pub unit: Unit,
    /// Which values it has.
    pub form: Form,
}

/// Units of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the table's own")]
pub enum Unit {
    /// None.
    None,
    /// Loudness.
    Lufs,
    /// A difference of loudness.
    Lu,
    /// A gain.
    Db,
    /// A true peak.
    Dbtp,
    /// A speed of a gain.
    DbPerSecond,
    /// A time.
    Seconds,
    /// A number of frames.
    Frames,
}

/// Which values a port has.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "the table's own")]
pub enum Form {
    /// All within the range.
    Continuous,
    /// Whole numbers.
    Integer,
    /// Off (0 or less) and on.
    Toggle,
    /// A toggle that acts when it is switched on.
    Trigger,
    /// A toggle by which the host bypasses the plug-in (`lv2:enabled`).
    Enabled,
    /// Whole numbers from 0 on, with a name each.
    Choice(&'static [&'static str]),
    /// The delay of the plug-in (`lv2:reportsLatency`).
    Latency,
}

impl ControlPort {
    /// The value that is meant: hosts can pass anything.
    #[must_use]
    pub fn clean(&self, value: f32) -> f32 {
        let value = if value.is_nan() { self.default } else { value.clamp(self.min, self.max) };
        match self.form {
            Form::Toggle | Form::Trigger | Form::Enabled => f32::from(value > 0.0),
            Form::Integer | Form::Choice(_) => value.round(),
            Form::Continuous | Form::Latency => value,
        }
    }
}

/// Inputs of the normalizer, by their place in the table.
pub(crate) const ENABLED: usize = 0;
pub(crate) const MODE: usize = 1;
pub(crate) const TARGET: usize = 2;
pub(crate) const CEILING: usize = 3;
pub(crate) const RANGE: usize = 4;
pub(crate) const MIN_GAIN: usize = 5;
pub(crate) const MAX_GAIN: usize = 6;
pub(crate) const RISE: usize = 7;
pub(crate) const FALL: usize = 8;
pub(crate) const GATE: usize = 9;
pub(crate) const MEMORY: usize = 10;
pub(crate) const RESET: usize = 11;
pub(crate) const DUAL_MONO: usize = 12;

/// What each value of the port `mode` means.
pub(crate) const MODES: [LookAhead; 4] =
    [LookAhead::Full, LookAhead::Mid, LookAhead::Low, LookAhead::GainOnly];

/// Ranges and defaults are those of [`aulos_dsp::normalize::Settings`].
static NORMALIZER_INPUTS: [ControlPort; 13] = [
    port("enabled", "Enabled", (1.0, 0.0, 1.0), Unit::None, Form::Enabled),
    port("mode", "Look-ahead", (2.0, 0.0, 3.0), Unit::None, Form::Choice(&MODE_NAMES)),
    port("target", "Target", (-23.0, -70.0, -5.0), Unit::Lufs, Form::Continuous),
    port("ceiling", "Ceiling", (-1.0, -9.0, 0.0), Unit::Dbtp, Form::Continuous),
    port("range", "Range", (7.0, 1.0, 50.0), Unit::Lu, Form::Continuous),
    port("min_gain", "Minimum Gain", (-40.0, -60.0, 0.0), Unit::Db, Form::Continuous),
    port("max_gain", "Maximum Gain", (20.0, 0.0, 60.0), Unit::Db, Form::Continuous),
    port("rise", "Maximum Rise", (3.0, 0.1, 20.0), Unit::DbPerSecond, Form::Continuous),
    port("fall", "Maximum Fall", (9.0, 0.1, 60.0), Unit::DbPerSecond, Form::Continuous),
    port("gate", "Gate", (-50.0, -70.0, -20.0), Unit::Lufs, Form::Continuous),
    port("memory", "Memory", (60.0, 10.0, 600.0), Unit::Seconds, Form::Integer),
    port("reset", "Reset", (0.0, 0.0, 1.0), Unit::None, Form::Trigger),
    port("dual_mono", "Dual Mono", (0.0, 0.0, 1.0), Unit::None, Form::Toggle),
];

static MODE_NAMES: [&str; 4] = ["3 s", "400 ms", "5 ms", "none, peaks are not limited"];

/// Loudness and peaks are those of the output.
static NORMALIZER_OUTPUTS: [ControlPort; 8] = [
    port("gain", "Gain", (0.0, -60.0, 60.0), Unit::Db, Form::Continuous),
    port("reduction", "Limiter Reduction", (0.0, -60.0, 0.0), Unit::Db, Form::Continuous),
    level("momentary", "Momentary Loudness", Unit::Lufs),
    level("short_term", "Short-term Loudness", Unit::Lufs),
    level("integrated", "Integrated Loudness", Unit::Lufs),
    port("loudness_range", "Loudness Range", (0.0, 0.0, 100.0), Unit::Lu, Form::Continuous),
    level("true_peak", "True Peak", Unit::Dbtp),
    port("latency", "Latency", (0.0, 0.0, 1_000_000.0), Unit::Frames, Form::Latency),
];

static METER_INPUTS: [ControlPort; 1] =
    [port("reset", "Reset", (0.0, 0.0, 1.0), Unit::None, Form::Trigger)];

static METER_OUTPUTS: [ControlPort; 7] = [
    level("momentary", "Momentary Loudness", Unit::Lufs),
    level("short_term", "Short-term Loudness", Unit::Lufs),
    level("integrated", "Integrated Loudness", Unit::Lufs),
    port("loudness_range", "Loudness Range", (0.0, 0.0, 100.0), Unit::Lu, Form::Continuous),
    level("true_peak", "True Peak", Unit::Dbtp),
    level("max_momentary", "Maximum Momentary Loudness", Unit::Lufs),
    level("max_short_term", "Maximum Short-term Loudness", Unit::Lufs),
];

const fn port(
    symbol: &'static str,
    name: &'static str,
    (default, min, max): (f32, f32, f32),
    unit: Unit,
    form: Form,
) -> ControlPort {
    ControlPort { symbol, name, default, min, max, unit, form }
}

/// A measured level: the minimum stands for silence.
const fn level(symbol: &'static str, name: &'static str, unit: Unit) -> ControlPort {
    port(symbol, name, (-120.0, -120.0, 40.0), unit, Form::Continuous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_places_are_those_of_the_table() {
        let places = [
            (ENABLED, "enabled"),
            (MODE, "mode"),
            (TARGET, "target"),
            (CEILING, "ceiling"),
            (RANGE, "range"),
            (MIN_GAIN, "min_gain"),
            (MAX_GAIN, "max_gain"),
            (RISE, "rise"),
            (FALL, "fall"),
            (GATE, "gate"),
            (MEMORY, "memory"),
            (RESET, "reset"),
            (DUAL_MONO, "dual_mono"),
        ];
        assert_eq!(places.len(), NORMALIZER_INPUTS.len());
        for (place, symbol) in places {
            assert_eq!(NORMALIZER_INPUTS[place].symbol, symbol);
        }
    }

    #[test]
    fn what_a_host_passes_is_brought_into_range() {
        for port in &NORMALIZER_INPUTS {
            assert_eq!(port.clean(port.default).to_bits(), port.default.to_bits());
            assert_eq!(port.clean(f32::NAN).to_bits(), port.default.to_bits());
            for value in [f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 1e-40, 0.49] {
                let cleaned = port.clean(value);
                assert!((port.min..=port.max).contains(&cleaned), "{}: {cleaned}", port.symbol);
            }
        }
        assert_eq!(NORMALIZER_INPUTS[MODE].clean(1.6).to_bits(), 2.0_f32.to_bits());
        assert_eq!(NORMALIZER_INPUTS[RESET].clean(0.2).to_bits(), 1.0_f32.to_bits());
    }
}
