//! A writer that is killed after any byte.

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{Frames, Rng};
use aulos_files::record::format::{RepairError, RepairReport, repair};

use super::{
    EncoderStep, decode_format, decoded_by_ffmpeg, format, metadata, music, steps, write_file,
    written,
};

/// Each format with another rate and channel count.
const CASES: [(&str, u32, usize); 11] = [
    ("wav:16", 44_100, 2),
    ("wav:24", 48_000, 1),
    ("wav:f32", 48_000, 6),
    ("flac:16", 44_100, 2),
    ("flac:24", 96_000, 1),
    ("flac:16", 16_000, 3),
    ("opus:64k", 48_000, 2),
    ("mp3:128k", 44_100, 2),
    ("mp3:32k", 16_000, 1),
    ("m4a:128k", 48_000, 2),
    ("m4a:48k", 22_050, 1),
];

/// The most consecutive patches.
const PATCHES: usize = 2;

#[test]
fn ffmpeg_decodes_all_flushed_frames_and_a_repair_completes_the_file() {
    let scratch = ScratchDir::new("recording").unwrap();
    let mut random = Rng::new(0x5eed);
    for (number, (name, hz, channels)) in CASES.into_iter().enumerate() {
        let (kind, metadata) = (format(name), metadata(hz, channels));
        let sound = music(hz, channels, hz as usize * 2 + 77);
        let steps = steps(kind, &metadata, &sound, hz as usize / 5);
        let (all, length) = written(&steps, usize::MAX, usize::MAX);
        let place = |what: &str| scratch.join(format!("{number}-{what}.{}", kind.extension()));
        // Before the first flush nothing is guaranteed, and ffmpeg rejects a file without audio.
        let first = first_flush(&steps);
        let mut ends: Vec<_> =
            (0..14).map(|_| (first + random.below(all.len() - first), random.below(3))).collect();
        ends.extend(appends(&steps).into_iter().take(3).flat_map(|end| [(end, 0), (end, 1)]));
        let (mut torn, mut promised) = (vec![place("whole")], vec![length]);
        write_file(&torn[0], &all);
        for (end, patched) in ends {
            let (bytes, readable) = written(&steps, end, patched);
            torn.push(place(&format!("{end}-{patched}")));
            promised.push(readable);
            write_file(torn.last().unwrap(), &bytes);
        }
        let frame = decode_format(kind).bytes() * channels;
        let (heard_torn, _) = decoded_by_ffmpeg(&torn, decode_format(kind));
        let repaired: Vec<RepairReport> = torn
            .iter()
            .map(|path| {
                repair(&std::fs::File::options().read(true).write(true).open(path).unwrap())
            })
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (heard_whole, complaints) = decoded_by_ffmpeg(&torn, decode_format(kind));
        assert_eq!(complaints, "", "{name}");
        let all = &heard_whole[0];
        // ffmpeg does not cut the padding off the last access unit of AAC.
        let padding = if kind.extension() == "m4a" { 1_023 } else { 0 };
        let lengths = length.0 as usize..=length.0 as usize + padding;
        assert!(lengths.contains(&(all.len() / frame)), "{name}: {}", all.len() / frame);
        assert!(!repaired[0].changed, "{name}");
        for (index, path) in torn.iter().enumerate() {
            let at = path.display();
            let (before, after) = (&heard_torn[index], &heard_whole[index]);
            let promised = promised[index].0 as usize * frame;
            assert!(before.len() >= promised, "{at}: {} of {promised}", before.len());
            assert!(all.starts_with(&before[..promised]), "{at}: other sound before its repair");
            assert!(after.len() >= promised, "{at}: {} of {promised}", after.len());
            assert!(all.starts_with(after), "{at}: other sound after its repair");
            let report = repaired[index];
            let heard = after.len() - report.frames.0 as usize * frame;
            assert!(heard <= padding * frame, "{at}: {report:?}");
            assert_eq!(
                (report.rate.hz(), report.channels, report.damaged_bytes),
                (hz, channels, 0),
                "{at}"
            );
        }
    }
}

/// The file size at the first flush.
fn first_flush(steps: &[EncoderStep]) -> usize {
    let bytes = steps.iter().take_while(|step| !matches!(step, EncoderStep::Flushed(_)));
    bytes.map(|step| if let EncoderStep::Append(bytes) = step { bytes.len() } else { 0 }).sum()
}

/// The steps at which an append ends and patches follow.
fn appends(steps: &[EncoderStep]) -> Vec<usize> {
    let mut end = 0;
    steps
        .windows(2)
        .filter_map(|pair| {
            if let EncoderStep::Append(bytes) = &pair[0] {
                end += bytes.len();
            }
            matches!(pair[1], EncoderStep::Patch(_)).then_some(end)
        })
        .collect()
}

/// Without ffmpeg, but at every byte: a repaired file keeps exactly the flushed frames, and a
/// second repair changes nothing.
#[test]
fn a_file_truncated_at_any_byte_is_repaired() {
    let scratch = ScratchDir::new("recording").unwrap();
    for (name, hz, channels, frames) in [
        ("wav:24", 8_000, 1, 501),
        ("flac:16", 8_000, 1, 1_301),
        ("flac:24", 8_000, 2, 1_101),
        ("opus:24k", 48_000, 1, 16_001),
        ("mp3:64k", 44_100, 1, 16_001),
        ("m4a:32k", 44_100, 1, 16_001),
    ] {
        let (kind, metadata) = (format(name), metadata(hz, channels));
        let steps = steps(kind, &metadata, &music(hz, channels, frames), frames / 3);
        let (all, length) = written(&steps, usize::MAX, usize::MAX);
        let path = scratch.join(format!("torn.{}", kind.extension()));
        let mut kept = Frames(0);
        let ends = appends(&steps);
        // All bytes of the padding in the head of a FLAC file are alike.
        let padding = if kind.extension() == "flac" { 500..8_000 } else { 0..0 };
        // The silence at the end of MP3 is sound until the last patch states its length.
        let silence = Frames(if kind.extension() == "mp3" { 1_151 } else { 0 });
        for end in (0..=all.len()).filter(|end| !padding.contains(end) || end % 997 == 0) {
            for patched in 0..=if ends.contains(&end) { PATCHES } else { 0 } {
                let (bytes, promised) = written(&steps, end, patched);
                let at = format!("{name}, {end} of {} bytes, {patched} patches", all.len());
                let file = write_file(&path, &bytes);
                let whole = match repair(&file) {
                    Ok(whole) => whole,
                    Err(RepairError::Empty) if promised == Frames(0) => continue,
                    Err(error) => panic!("{at}: {error}"),
                };
                assert!(
                    whole.frames >= promised && whole.frames <= length + silence,
                    "{at}: {whole:?}"
                );
                kept = kept.max(whole.frames);
                let again = repair(&file).unwrap();
                assert_eq!(
                    (again.frames, again.changed, again.truncated_bytes),
                    (whole.frames, false, 0),
                    "{at}"
                );
                // Nothing is added except the padding of a WAVE file and the index of M4A.
                let added = if kind.extension() == "m4a" { 2_000 } else { 1 };
                let size = file.metadata().unwrap().len();
                assert!(size <= bytes.len() as u64 + added, "{at}: {size}");
            }
        }
        assert!((length..=length + silence).contains(&kept), "{name}: {kept}");
    }
}
