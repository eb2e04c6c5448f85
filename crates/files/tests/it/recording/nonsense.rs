//! Files that are no recordings, or only in part.

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::Frames;
use aulos_files::record::format::{RepairError, repair};
use proptest::prelude::*;

use super::{file, format, metadata, music, write_file};

#[test]
fn files_that_are_no_recordings_are_not_changed() {
    let scratch = ScratchDir::new("nonsense").unwrap();
    let path = scratch.join("file");
    let page = b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    type Expected = fn(&RepairError) -> bool;
    let cases: [(&[u8], Expected); 10] = [
        (b"", |it| matches!(it, RepairError::Empty)),
        (b"RIF", |it| matches!(it, RepairError::Empty)),
        (b"RIFF\xff\xff\xff\xffWAVE", |it| matches!(it, RepairError::Empty)),
        (b"RIFF\xff\xff\xff\xffAVI LIST", |it| matches!(it, RepairError::UnknownFormat)),
        (b"fLaC\x80\0\0\x22", |it| matches!(it, RepairError::Empty)),
        (b"fLaC\x84\0\0\x22", |it| matches!(it, RepairError::UnknownFormat)),
        (b"\x7fELF, a program", |it| matches!(it, RepairError::UnknownFormat)),
        (page, |it| matches!(it, RepairError::Empty)),
        (b"ID3\x04\0\0\0\0\x07\x76TIT2", |it| matches!(it, RepairError::Empty)),
        (b"ID3\x04\0\0\0\0\0\0\xff\xfb\x90", |it| matches!(it, RepairError::Empty)),
    ];
    for (bytes, expected) in cases {
        let error = repair(&write_file(&path, bytes)).unwrap_err();
        assert!(expected(&error), "{bytes:?}: {error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    // Two concatenated streams: the end is ambiguous.
    let opus = file(format("opus:64k"), &metadata(48_000, 1), &music(48_000, 1, 9_000));
    let twice = [&opus[..], &opus].concat();
    assert!(matches!(repair(&write_file(&path, &twice)), Err(RepairError::Damaged)));
    assert!(repair(&std::fs::File::open(scratch.path()).unwrap()).is_err());
}

#[test]
fn damage_in_the_middle_loses_no_other_frames() {
    let scratch = ScratchDir::new("nonsense").unwrap();
    for name in ["flac:16", "opus:64k"] {
        let path = scratch.join("file");
        let mut bytes = file(format(name), &metadata(48_000, 1), &music(48_000, 1, 50_000));
        // Behind the padding that a FLAC file begins with.
        let middle = bytes.len() / 4 * 3;
        bytes[middle..middle + 20].fill(0x55);
        let whole = repair(&write_file(&path, &bytes)).unwrap();
        assert_eq!((whole.frames, whole.truncated_bytes), (Frames(50_000), 0), "{name}");
        assert!(whole.damaged_bytes > 20, "{name}: {}", whole.damaged_bytes);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes.len() as u64);
    }
}

/// As a file may end after a power failure.
#[test]
fn zeros_at_the_end_are_truncated() {
    let scratch = ScratchDir::new("nonsense").unwrap();
    for name in ["flac:24", "opus:64k", "mp3:64k", "m4a:64k"] {
        let mut bytes = file(format(name), &metadata(48_000, 2), &music(48_000, 2, 20_000));
        let length = bytes.len() as u64;
        bytes.resize(bytes.len() + 100_000, 0);
        let path = scratch.join("file");
        let whole = repair(&write_file(&path, &bytes)).unwrap();
        assert_eq!((whole.frames, whole.truncated_bytes), (Frames(20_000), 100_000), "{name}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
    }
}

/// A file of another program: chunks after its audio are not audio.
#[test]
fn a_complete_file_of_another_program_is_not_changed() {
    let scratch = ScratchDir::new("nonsense").unwrap();
    let path = scratch.join("file");
    let chunk = |name: &[u8; 4], body: &[u8]| {
        [name, &u32::try_from(body.len()).unwrap().to_le_bytes()[..], body].concat()
    };
    let fmt = chunk(b"fmt ", &[1, 0, 1, 0, 0x40, 0x1f, 0, 0, 0x80, 0x3e, 0, 0, 2, 0, 16, 0]);
    let rest = [&b"WAVE"[..], &fmt, &chunk(b"data", &[1; 100]), &chunk(b"LIST", b"INFO")].concat();
    for riff in [rest.len(), 0] {
        let size = u32::try_from(riff).unwrap().to_le_bytes();
        let bytes = [&b"RIFF"[..], &size, &rest].concat();
        let whole = repair(&write_file(&path, &bytes)).unwrap();
        assert_eq!((whole.frames, whole.changed), (Frames(50), false));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_repaired_file_needs_no_second_repair(
        which in 0..6_usize,
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        end in any::<usize>(),
    ) {
        let scratch = ScratchDir::new("nonsense").unwrap();
        let name = ["wav:16", "wav:24", "flac:16", "opus:24k", "mp3:64k", "m4a:64k"][which];
        let mut bytes = file(format(name), &metadata(48_000, 1), &music(48_000, 1, 3_000));
        let length = bytes.len();
        for (at, byte) in changes {
            // Damage to headers has the greatest effect.
            let reach = if at % 2 == 0 { length } else { 120 };
            bytes[at / 2 % reach] = byte;
        }
        bytes.truncate(1 + end % length);
        let file = write_file(&scratch.join("file"), &bytes);
        if let Ok(whole) = repair(&file) {
            // M4A gets an index.
            let more = if name.starts_with("m4a") { 2_000 } else { 1 };
            prop_assert!(file.metadata().unwrap().len() <= bytes.len() as u64 + more);
            let again = repair(&file).unwrap();
            prop_assert_eq!((again.frames, again.changed), (whole.frames, false));
        }
    }
}
