//! The demo programme as notes: an original piece in D, sixty-four bars of four beats.
//!
//! It is written in tables, so that it can be read and changed; `demo.rs` plays it. Pitches are
//! MIDI numbers (69 is 440 Hz), 0 is no note.

use super::voice::{Instrument, Wave};

/// Beats per minute. Sixty-four bars last 3 min 2.9 s.
pub(super) const TEMPO: u64 = 84;

/// The score's grid: sixteenths per bar.
pub(super) const STEPS: usize = 16;

/// A passage of eight bars or fewer with its own harmony, melody and strength.
pub(super) struct Passage {
    pub(super) bars: usize,
    pub(super) chords: &'static [Chord; 8],
    pub(super) melody: &'static [Bar; 8],
    pub(super) parts: Parts,
    /// Strength of the first and of the last bar; every part follows it.
    pub(super) strength: (f32, f32),
}

/// A bass note and the chord above it.
pub(super) struct Chord {
    pub(super) bass: u8,
    pub(super) notes: [u8; 4],
}

/// The melody of one bar in eighths.
pub(super) type Bar = [u8; 8];

/// The parts that play, and their level relative to the passage; 0 is silent.
pub(super) struct Parts {
    pub(super) pad: f32,
    pub(super) melody: f32,
    pub(super) strings: f32,
    pub(super) bell: f32,
    pub(super) arpeggio: f32,
    pub(super) bass: f32,
    pub(super) drums: f32,
}

const SILENT: Parts =
    Parts { pad: 0.0, melody: 0.0, strings: 0.0, bell: 0.0, arpeggio: 0.0, bass: 0.0, drums: 0.0 };

pub(super) const SCORE: [Passage; 8] = [
    Passage {
        bars: 8,
        chords: &MORNING,
        melody: &WALK,
        parts: Parts { pad: 0.8, melody: 0.9, ..SILENT },
        strength: (0.34, 0.38),
    },
    Passage {
        bars: 8,
        chords: &MORNING,
        melody: &WALK,
        parts: Parts { pad: 0.8, melody: 1.0, arpeggio: 0.8, bass: 0.7, ..SILENT },
        strength: (0.42, 0.6),
    },
    Passage {
        bars: 8,
        chords: &FEAST,
        melody: &SONG,
        parts: Parts {
            pad: 0.9,
            melody: 1.0,
            arpeggio: 0.9,
            bass: 1.0,
            drums: 0.9,
            strings: 0.6,
            bell: 0.0,
        },
        strength: (0.9, 0.95),
    },
    Passage {
        bars: 8,
        chords: &FEAST,
        melody: &SONG,
        parts: Parts {
            pad: 1.0,
            melody: 1.0,
            arpeggio: 1.0,
            bass: 1.0,
            drums: 1.0,
            strings: 1.0,
            bell: 0.5,
        },
        strength: (1.0, 1.0),
    },
    Passage {
        bars: 8,
        chords: &NIGHT,
        melody: &STARS,
        parts: Parts { pad: 0.55, bell: 1.0, ..SILENT },
        strength: (0.38, 0.28),
    },
    Passage {
        bars: 8,
        chords: &MORNING,
        melody: &WALK,
        parts: Parts { pad: 0.9, melody: 1.0, arpeggio: 1.0, bass: 0.9, drums: 0.5, ..SILENT },
        strength: (0.35, 0.85),
    },
    Passage {
        bars: 8,
        chords: &FEAST,
        melody: &SONG,
        parts: Parts {
            pad: 1.0,
            melody: 1.0,
            arpeggio: 1.0,
            bass: 1.0,
            drums: 1.0,
            strings: 1.0,
            bell: 0.6,
        },
        strength: (1.0, 1.0),
    },
    Passage {
        bars: 8,
        chords: &NIGHT,
        melody: &STARS,
        parts: Parts { pad: 0.8, bell: 0.9, arpeggio: 0.4, ..SILENT },
        strength: (0.5, 0.28),
    },
];

const MORNING: [Chord; 8] = [
    Chord { bass: 38, notes: [57, 61, 64, 66] }, // D major 9
    Chord { bass: 42, notes: [57, 61, 64, 66] }, // F sharp minor 7
    Chord { bass: 43, notes: [57, 59, 62, 66] }, // G major 9
    Chord { bass: 40, notes: [55, 59, 62, 66] }, // E minor 9
    Chord { bass: 35, notes: [57, 61, 62, 66] }, // B minor 9
    Chord { bass: 43, notes: [55, 59, 62, 66] }, // G major 7
    Chord { bass: 40, notes: [55, 59, 62, 64] }, // E minor 7
    Chord { bass: 45, notes: [55, 57, 62, 64] }, // A 7 suspended
];

const WALK: [Bar; 8] = [
    [78, 0, 0, 76, 0, 69, 0, 0],
    [76, 0, 0, 73, 0, 69, 0, 0],
    [74, 0, 0, 71, 0, 69, 71, 0],
    [74, 0, 76, 0, 78, 0, 0, 0],
    [81, 0, 0, 78, 0, 74, 0, 0],
    [79, 0, 0, 78, 0, 74, 0, 71],
    [76, 0, 0, 74, 0, 71, 0, 67],
    [76, 0, 74, 0, 69, 0, 0, 0],
];

const FEAST: [Chord; 8] = [
    Chord { bass: 35, notes: [59, 62, 66, 69] }, // B minor 7
    Chord { bass: 43, notes: [59, 62, 66, 67] }, // G major 7
    Chord { bass: 38, notes: [57, 62, 66, 69] }, // D
    Chord { bass: 45, notes: [57, 61, 64, 71] }, // A added 9
    Chord { bass: 35, notes: [59, 62, 66, 69] }, // B minor 7
    Chord { bass: 40, notes: [59, 62, 64, 67] }, // E minor 7
    Chord { bass: 43, notes: [59, 62, 66, 67] }, // G major 7
    Chord { bass: 45, notes: [57, 61, 64, 69] }, // A
];

const SONG: [Bar; 8] = [
    [83, 0, 81, 78, 0, 81, 0, 0],
    [83, 0, 86, 83, 0, 79, 0, 0],
    [81, 0, 0, 78, 0, 76, 78, 0],
    [76, 0, 73, 76, 0, 81, 0, 0],
    [83, 0, 81, 78, 0, 81, 0, 86],
    [88, 0, 86, 83, 0, 79, 0, 83],
    [86, 0, 83, 79, 0, 78, 74, 0],
    [76, 0, 0, 74, 76, 0, 73, 0],
];

const NIGHT: [Chord; 8] = [
    Chord { bass: 43, notes: [55, 59, 62, 66] }, // G major 7
    Chord { bass: 43, notes: [55, 58, 62, 64] }, // G minor 6
    Chord { bass: 42, notes: [57, 61, 64, 66] }, // F sharp minor 7
    Chord { bass: 35, notes: [57, 59, 62, 66] }, // B minor 7
    Chord { bass: 40, notes: [55, 59, 62, 66] }, // E minor 9
    Chord { bass: 45, notes: [57, 62, 64, 67] }, // A 7 suspended
    Chord { bass: 38, notes: [57, 62, 64, 66] }, // D added 9
    Chord { bass: 38, notes: [57, 62, 64, 66] },
];

const STARS: [Bar; 8] = [
    [86, 0, 0, 0, 83, 0, 0, 0],
    [82, 0, 0, 0, 79, 0, 0, 0],
    [81, 0, 0, 0, 0, 0, 78, 0],
    [78, 0, 0, 0, 74, 0, 0, 0],
    [79, 0, 0, 0, 78, 0, 0, 0],
    [76, 0, 0, 0, 0, 0, 74, 0],
    [78, 0, 0, 0, 81, 0, 0, 0],
    [86, 0, 0, 0, 0, 0, 0, 0],
];

/// The order in which the arpeggio passes through a chord, in eighths.
pub(super) const ARPEGGIO: [usize; 8] = [0, 2, 1, 3, 2, 1, 3, 2];

/// Strength of each sixteenth.
pub(super) const KICK: [f32; STEPS] =
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4];
pub(super) const BRUSH: [f32; STEPS] =
    [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 1.0, 0.0, 0.3, 0.0];
pub(super) const SHAKER: [f32; STEPS] =
    [0.6, 0.2, 1.0, 0.3, 0.6, 0.2, 1.0, 0.3, 0.6, 0.2, 1.0, 0.3, 0.6, 0.2, 1.0, 0.5];
pub(super) const BASS: [f32; STEPS] =
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.5, 0.0];

pub(super) const PAD: Instrument = Instrument {
    wave: Wave::Modulated { ratio: 2.0, index: 0.9, index_decay: 2.0, index_floor: 0.6, drop: 0.0 },
    attack: 0.7,
    decay: 3.0,
    sustain: 0.7,
    release: 0.5,
    gain: 0.062,
    reverb: 0.35,
    echo: 0.0,
};
pub(super) const KEYS: Instrument = Instrument {
    wave: Wave::Modulated { ratio: 2.0, index: 1.7, index_decay: 0.3, index_floor: 0.1, drop: 0.0 },
    attack: 0.004,
    decay: 0.75,
    sustain: 0.0,
    release: 0.25,
    gain: 0.2,
    reverb: 0.12,
    echo: 0.28,
};
pub(super) const STRINGS: Instrument = Instrument {
    wave: Wave::Modulated { ratio: 1.0, index: 1.4, index_decay: 0.8, index_floor: 0.7, drop: 0.0 },
    attack: 0.09,
    decay: 0.6,
    sustain: 0.75,
    release: 0.18,
    gain: 0.1,
    reverb: 0.25,
    echo: 0.05,
};
pub(super) const BELL: Instrument = Instrument {
    wave: Wave::Modulated { ratio: 3.5, index: 1.6, index_decay: 0.7, index_floor: 0.0, drop: 0.0 },
    attack: 0.003,
    decay: 1.3,
    sustain: 0.0,
    release: 1.3,
    gain: 0.17,
    reverb: 0.3,
    echo: 0.4,
};
pub(super) const HARP: Instrument = Instrument {
    wave: Wave::Modulated {
        ratio: 3.0,
        index: 0.9,
        index_decay: 0.12,
        index_floor: 0.15,
        drop: 0.0,
    },
    attack: 0.003,
    decay: 0.3,
    sustain: 0.0,
    release: 0.3,
    gain: 0.11,
    reverb: 0.15,
    echo: 0.16,
};
pub(super) const BASS_GUITAR: Instrument = Instrument {
    wave: Wave::Modulated { ratio: 1.0, index: 1.5, index_decay: 0.2, index_floor: 0.4, drop: 0.0 },
    attack: 0.006,
    decay: 0.6,
    sustain: 0.25,
    release: 0.09,
    gain: 0.26,
    reverb: 0.02,
    echo: 0.0,
};
pub(super) const KICK_DRUM: Instrument = Instrument {
    wave: Wave::Modulated {
        ratio: 1.0,
        index: 0.3,
        index_decay: 0.05,
        index_floor: 0.0,
        drop: 0.02,
    },
    attack: 0.002,
    decay: 0.13,
    sustain: 0.0,
    release: 0.1,
    gain: 0.42,
    reverb: 0.02,
    echo: 0.0,
};
pub(super) const BRUSHES: Instrument = Instrument {
    wave: Wave::Noise { tilt: 0.3 },
    attack: 0.003,
    decay: 0.07,
    sustain: 0.0,
    release: 0.07,
    gain: 0.2,
    reverb: 0.18,
    echo: 0.0,
};
pub(super) const SHAKERS: Instrument = Instrument {
    wave: Wave::Noise { tilt: 1.0 },
    attack: 0.012,
    decay: 0.025,
    sustain: 0.0,
    release: 0.03,
    gain: 0.075,
    reverb: 0.05,
    echo: 0.0,
};
