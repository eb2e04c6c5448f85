//! Programmes that cannot be redistributed: EBU Tech 3341 cases 7 and 8 (which are 3342 cases 5 and
//! 6), and the files of ITU-R BS.2217.

#![allow(clippy::disallowed_methods, reason = "the files are given from outside")]

use std::path::Path;

use aulos_dsp::meter::{Meter, MeterMode};

use super::config;

/// The expected readings of a file, by its name.
struct Expected {
    /// LUFS; `None` for a file that must read as silence.
    integrated: Option<f64>,
    range: Option<f64>,
}

/// Skipped if no folder is given: the files are not part of the repository.
#[test]
fn files_of_the_ebu_and_of_bs_2217_when_given() {
    let Some(folder) = std::env::var_os("AULOS_EBU_FILES") else {
        println!("not given: AULOS_EBU_FILES");
        return;
    };
    let mut known = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(expected) = expected(&name) else { continue };
        known += 1;
        let meter = measure(&path);
        let integrated = meter.integrated().unwrap().get();
        match expected.integrated {
            None => assert!(integrated < -70.0, "{name}: {integrated}"),
            Some(lufs) => assert!((integrated - lufs).abs() <= 0.1, "{name}: {integrated}"),
        }
        if let Some(lu) = expected.range {
            let range = meter.range().unwrap().get();
            assert!((range - lu).abs() <= 1.0, "{name}: {range} LU");
        }
        println!("{name}: {integrated:.2} LUFS");
    }
    assert!(known > 0, "AULOS_EBU_FILES names a folder without any of the files");
}

fn expected(name: &str) -> Option<Expected> {
    let is_wave = name.to_lowercase().ends_with(".wav");
    let (integrated, range) = if !is_wave {
        return None;
    } else if name.contains("3342-5") {
        (Some(-23.0), Some(5.0))
    } else if name.contains("3342-6") {
        (Some(-23.0), Some(15.0))
    } else if name.contains("RelGateTest") {
        (Some(-10.0), None)
    } else if name.contains("AbsGateTest") {
        (Some(-69.5), None)
    } else if name.contains("ChannelCheckLFE") {
        (None, None)
    } else {
        let (before, _) = name.split_once("LKFS")?;
        let digits = before.get(before.len().checked_sub(2)?..)?;
        (Some(-digits.parse::<f64>().ok()?), None)
    };
    Some(Expected { integrated, range })
}

/// Measures a WAVE file of integers in 16, 24 or 32 bit.
fn measure(path: &Path) -> Meter {
    let bytes = std::fs::read(path).unwrap();
    let (mut format, mut rest) = (None, &bytes[12..]);
    while rest.len() >= 8 {
        let size = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
        let chunk = &rest[8..rest.len().min(8 + size)];
        if &rest[..4] == b"fmt " {
            let word = |at| u16::from_le_bytes(chunk[at..at + 2].try_into().unwrap());
            let hz = u32::from_le_bytes(chunk[4..8].try_into().unwrap());
            format = Some((usize::from(word(2)), hz, usize::from(word(14)) / 8));
        } else if &rest[..4] == b"data" {
            let (channels, hz, size) = format.expect("the format comes first");
            let mut meter =
                Meter::new(config(hz, channels, MeterMode::INTEGRATED | MeterMode::RANGE)).unwrap();
            let samples = chunk.chunks_exact(size).map(|sample| {
                let mut wide = [0; 4];
                wide[4 - size..].copy_from_slice(sample);
                i32::from_le_bytes(wide)
            });
            meter.add(&samples.collect::<Vec<_>>());
            return meter;
        }
        rest = &rest[rest.len().min(8 + size + size % 2)..];
    }
    panic!("{}: no sound", path.display());
}
