//! Power failure: synced data survives, all other data is undefined.

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{MediaTime, Rng, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand};

use super::test_recorder::{FileOperationLog, TestRecorder, check_frames, decode};
use crate::record::SyncPolicy;
use crate::record::format::repair;

/// The file as it may be on a disk that lost power before `end`: all operations before the last
/// sync, and a random part of the others.
fn after_power_loss(log: &[(MediaTime, FileOperationLog)], end: usize, rng: &mut Rng) -> Vec<u8> {
    let synced =
        log[..end].iter().rposition(|(_, op)| matches!(op, FileOperationLog::Sync)).unwrap_or(0);
    let mut file = Vec::new();
    for (index, (_, op)) in log[..end].iter().enumerate() {
        let is_sure = index < synced;
        match op {
            FileOperationLog::Append(bytes) if is_sure => file.extend_from_slice(bytes),
            FileOperationLog::Append(bytes) => match rng.next_u64() % 4 {
                0 => file.extend_from_slice(bytes),
                // Its length is known, but not its contents.
                1 => file.resize(file.len() + bytes.len(), 0),
                2 => file.extend_from_slice(&bytes[..bytes.len() / 2]),
                // Nothing behind it either.
                _ => return file,
            },
            FileOperationLog::Patch(at, bytes) if is_sure || rng.next_u64().is_multiple_of(2) => {
                let at = usize::try_from(*at).unwrap();
                if let Some(place) = file.get_mut(at..at + bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            }
            FileOperationLog::Patch(..) | FileOperationLog::Sync => {}
        }
    }
    file
}

#[test]
fn a_power_failure_loses_at_most_the_sync_interval_and_a_second() {
    let interval = Span::from_secs(2);
    for format in ["wav:f32", "flac:24", "opus:96k", "mp3:128k", "m4a:96k"] {
        let mut recorder = TestRecorder::new("power", |config| {
            config.format = format.parse().unwrap();
            config.durability.sync = SyncPolicy::Every(interval);
        });
        recorder.store.set(|faults| faults.log = Some(Vec::new()));
        recorder.run(100);
        recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        recorder.run(12_000);
        let log = recorder.store.faults.lock().unwrap().log.take().unwrap();
        assert!(log.iter().filter(|(_, op)| matches!(op, FileOperationLog::Sync)).count() >= 5);
        let folder = ScratchDir::new("replay").unwrap();
        let mut rng = Rng::new(9);
        for end in (0..log.len()).step_by(7).chain([log.len()]) {
            let bytes = after_power_loss(&log, end, &mut rng);
            let path = folder.join(format!("a.{}", format.split(':').next().unwrap()));
            std::fs::write(&path, bytes).unwrap();
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            let at = log[..end].last().map_or(0, |(at, _)| at.0);
            let costs = 48 * (interval.as_millis().unsigned_abs() + 1_000);
            let least = at.saturating_sub(costs);
            let frames = match repair(&file) {
                Ok(repaired) => repaired.frames.0,
                Err(error) => {
                    assert_eq!(least, 0, "{format} at {at}: {error}");
                    continue;
                }
            };
            assert!(frames >= least, "{format} at {at}: {frames} frames");
            if least > 0 && end % 3 == 0 && !["opus:96k", "mp3:128k", "m4a:96k"].contains(&format) {
                let samples = decode(&path);
                check_frames(&samples[..usize::try_from(least).unwrap()], 0);
            }
        }
    }
}
