//! Power fails: what was made to last is there, of the rest nobody knows.

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{MediaTime, Rng, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand};

use super::world::{Op, Rig, check_run, sound};
use crate::record::Sync;
use crate::record::format::repair;

/// The file as a disk may have it that lost power before `end`: all that was done before its last
/// sync, and of the rest what chance wants.
fn after_power_loss(log: &[(MediaTime, Op)], end: usize, chance: &mut Rng) -> Vec<u8> {
    let synced = log[..end].iter().rposition(|(_, op)| matches!(op, Op::Sync)).unwrap_or(0);
    let mut file = Vec::new();
    for (index, (_, op)) in log[..end].iter().enumerate() {
        let is_sure = index < synced;
        match op {
            Op::Append(bytes) if is_sure => file.extend_from_slice(bytes),
            Op::Append(bytes) => match chance.next_u64() % 4 {
                0 => file.extend_from_slice(bytes),
                // Its length is known, and what is in it is not.
                1 => file.resize(file.len() + bytes.len(), 0),
                2 => file.extend_from_slice(&bytes[..bytes.len() / 2]),
                // Nothing behind it either.
                _ => return file,
            },
            Op::Patch(at, bytes) if is_sure || chance.next_u64().is_multiple_of(2) => {
                let at = usize::try_from(*at).unwrap();
                if let Some(place) = file.get_mut(at..at + bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            }
            Op::Patch(..) | Op::Sync => {}
        }
    }
    file
}

#[test]
fn a_loss_of_power_costs_no_more_than_the_interval_and_a_second() {
    let interval = Span::from_secs(2);
    for format in ["wav:f32", "flac:24", "opus:96k"] {
        let mut rig = Rig::new("power", |wish| {
            wish.format = format.parse().unwrap();
            wish.safety.sync = Sync::Every(interval);
        });
        rig.disk.set(|faults| faults.log = Some(Vec::new()));
        rig.run(100);
        rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        rig.run(12_000);
        let log = rig.disk.faults.lock().unwrap().log.take().unwrap();
        assert!(log.iter().filter(|(_, op)| matches!(op, Op::Sync)).count() >= 5);
        let folder = ScratchDir::new("replay").unwrap();
        let mut chance = Rng::new(9);
        for end in (0..log.len()).step_by(7).chain([log.len()]) {
            let bytes = after_power_loss(&log, end, &mut chance);
            let path = folder.join(&format!("a.{}", format.split(':').next().unwrap()));
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
            if least > 0 && end % 3 == 0 && format != "opus:96k" {
                let samples = sound(&path);
                check_run(&samples[..usize::try_from(least).unwrap()], 0);
            }
        }
    }
}
