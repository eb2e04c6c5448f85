use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;

use aulos_blackbox::scratch::ScratchDir;
use proptest::collection::vec;
use proptest::prelude::*;

use super::block::{self, Block, Content};
use super::stack::coarsen;
use super::tier::{DAY_S, expired};
use super::*;

/// Midnight of 2026-11-22.
const MIDNIGHT: u32 = 1_795_305_600;

fn record(momentary: f64, flags: HistoryFlags) -> HistoryRecord {
    let figure = HistoryFigure::new(Some(momentary));
    HistoryRecord {
        momentary_max: figure,
        momentary_min: figure,
        short_term: figure,
        integrated: figure,
        range: HistoryFigure::new(Some(5.0)),
        true_peak: HistoryFigure::new(Some(momentary + 12.0)),
        gain: HistoryFigure::NONE,
        flags,
        parts: 10,
    }
}

fn quiet() -> HistoryRecord {
    record(-23.0, HistoryFlags::default())
}

fn store(scratch: &ScratchDir) -> HistoryStore {
    HistoryStore::new(scratch.join("history"), DEFAULT_KEEP_DAYS)
}

fn add(store: &mut HistoryStore, station: &str, time: u32, record: HistoryRecord) {
    store.add(HistoryPoint { time, station, record });
}

/// Seconds of a station as a server adds and writes them.
fn run(store: &mut HistoryStore, station: &str, times: std::ops::Range<u32>) {
    for time in times {
        add(store, station, time, quiet());
        if (time + 1).is_multiple_of(60) {
            store.write(time + 1).unwrap();
        }
    }
}

fn seconds(store: &mut HistoryStore, station: &str, from: u32, to: u32) -> Vec<u32> {
    store.records(HistoryTier::Second, station, (from, to)).unwrap().into_keys().collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_of_a_file_are_as_documented() {
    assert_eq!(block::crc32(b"123456789"), 0xCBF4_3926, "the check value of CRC-32/ISO-HDLC");
    assert_eq!(hex(&block::head(HistoryTier::Minute)), "61756c6f732e61680102000000000000");
    let mut one = record(-23.05, HistoryFlags::FALLBACK);
    (one.momentary_min, one.gain) = (HistoryFigure::NONE, HistoryFigure::new(Some(-3.5)));
    let mut block = Block::empty(HistoryTier::Second, MIDNIGHT + 61);
    block.records[1] = one;
    let mut bytes = Vec::new();
    block::push_name(&mut bytes, HistoryTier::Second, 3, "a");
    block::push_records(&mut bytes, HistoryTier::Second, 3, &block);
    assert_eq!(bytes.len(), 2 * 972);
    let (name, records) = bytes.split_at(972);
    assert_eq!(hex(&name[4..14]), "030001ff000000006100");
    assert_eq!(hex(&records[4..12]), format!("03000100{}", hex(&(MIDNIGHT + 60).to_le_bytes())));
    assert_eq!(hex(&records[28..44]), "fff60080fff6fff6f401affba2fe010a");
    assert_eq!(records[..4], block::crc32(&records[4..]).to_le_bytes());
    assert_eq!(hex(&records[..4]), "68da400d", "computed with zlib");
    let parsed = block::parse(records, HistoryTier::Second);
    assert_eq!(parsed, Some((3, Content::Records(block))));
}

#[test]
fn a_coarser_record_keeps_spikes_and_the_mean_of_energy() {
    let mut parts = vec![quiet(); 9];
    parts.push(record(-13.0, HistoryFlags::OVER));
    parts[0].momentary_min = HistoryFigure::NONE;
    parts[1] = HistoryRecord::ABSENT;
    parts[2].gain = HistoryFigure::new(Some(2.0));
    let all = HistoryRecord::combine(&parts);
    assert_eq!(all.momentary_max.get(), Some(-13.0));
    assert_eq!(all.momentary_min.get(), None, "a part was silent");
    assert_eq!(all.true_peak.get(), Some(-1.0));
    // Eight parts of 1 and one of 10, over nine: twice the energy.
    assert_eq!(all.short_term.get(), Some(-19.99));
    assert_eq!((all.integrated.get(), all.gain.get()), (Some(-13.0), Some(2.0)));
    assert!(all.flags.contains(HistoryFlags::OVER) && all.parts == 9);
    assert_eq!(HistoryRecord::combine(&[]), HistoryRecord::ABSENT);
    let silence = HistoryRecord { parts: 10, ..HistoryRecord::ABSENT };
    assert_eq!(HistoryRecord::combine(&[silence]).short_term, HistoryFigure::NONE);
}

#[test]
fn figures_outside_the_range_are_limited_and_what_is_not_finite_is_none() {
    let figure = |value| HistoryFigure::new(Some(value)).get();
    assert_eq!((figure(-400.0), figure(400.0)), (Some(-327.67), Some(327.67)));
    assert_eq!((figure(f64::NAN), figure(f64::NEG_INFINITY)), (None, None));
    assert!(HistoryFigure::NONE < HistoryFigure::new(Some(-400.0)));
}

#[test]
fn seconds_come_back_in_every_tier_before_and_after_they_are_written() {
    let scratch = ScratchDir::new("history").unwrap();
    let mut store = store(&scratch);
    run(&mut store, "kitchen", MIDNIGHT..MIDNIGHT + 3 * 3_600 + 30);
    for (tier, count) in [
        (HistoryTier::Second, 10_830),
        (HistoryTier::TenSeconds, 1_083),
        (HistoryTier::Minute, 181),
        (HistoryTier::Quarter, 13),
    ] {
        let span = (MIDNIGHT, MIDNIGHT + DAY_S);
        let records = store.records(tier, "kitchen", span).unwrap();
        assert_eq!(records.len(), count, "{tier:?}");
        assert!(records.values().all(|one| one.momentary_max == quiet().momentary_max));
    }
    assert!(store.records(HistoryTier::Second, "other", (0, u32::MAX)).unwrap().is_empty());
    assert_eq!(store.stats().write_errors, 0);
}

#[test]
fn a_killed_process_loses_what_was_not_written_and_coarser_tiers_are_rebuilt() {
    let scratch = ScratchDir::new("history-kill").unwrap();
    let end = MIDNIGHT + 2 * 3_600 + 29 * 60 + 40;
    run(&mut store(&scratch), "a", MIDNIGHT..end);
    // Nothing was finished: the store was dropped as a kill drops it.
    let mut next = store(&scratch);
    next.recover(end + 5).unwrap();
    let lost = end % 60;
    let kept = usize::try_from(end - MIDNIGHT - lost).unwrap();
    assert_eq!(seconds(&mut next, "a", 0, u32::MAX).len(), kept);
    run(&mut next, "a", end + 5..end + 3_600);
    for (tier, count) in [
        (HistoryTier::TenSeconds, (2 * 3_600 + 29 * 60 + 3_600 + 40) / 10 - 4),
        (HistoryTier::Minute, 2 * 60 + 29 + 61),
        (HistoryTier::Quarter, 14),
    ] {
        let records = next.records(tier, "a", (MIDNIGHT, MIDNIGHT + DAY_S)).unwrap();
        assert_eq!(records.len(), count, "{tier:?}");
    }
}

#[test]
fn a_process_that_ends_properly_loses_nothing_and_the_next_one_continues_its_minute() {
    let scratch = ScratchDir::new("history-end").unwrap();
    let mut first = store(&scratch);
    run(&mut first, "a", MIDNIGHT..MIDNIGHT + 90);
    first.write_tail().unwrap();
    first.finish(MIDNIGHT + 90).unwrap();
    assert!(!scratch.join("history/tail").exists());
    let mut next = store(&scratch);
    next.recover(MIDNIGHT + 95).unwrap();
    run(&mut next, "a", MIDNIGHT + 95..MIDNIGHT + 180);
    let times = seconds(&mut next, "a", 0, u32::MAX);
    let expected: Vec<u32> =
        (MIDNIGHT..MIDNIGHT + 90).chain(MIDNIGHT + 95..MIDNIGHT + 180).collect();
    assert_eq!(times, expected);
    let minutes = next.records(HistoryTier::Minute, "a", (0, u32::MAX)).unwrap();
    assert_eq!(minutes.values().map(|one| one.parts).collect::<Vec<_>>(), [6, 6, 6]);
}

#[test]
fn a_tail_limits_the_loss_to_its_interval() {
    let scratch = ScratchDir::new("history-tail").unwrap();
    let mut first = store(&scratch);
    run(&mut first, "a", MIDNIGHT..MIDNIGHT + 115);
    first.write_tail().unwrap();
    run(&mut first, "a", MIDNIGHT + 115..MIDNIGHT + 118);
    let mut next = store(&scratch);
    next.recover(MIDNIGHT + 130).unwrap();
    next.write(MIDNIGHT + 130).unwrap();
    assert_eq!(seconds(&mut next, "a", 0, u32::MAX).len(), 115);
    // It is used once: its seconds are in a day file now.
    let written = next.stats().bytes_written;
    let mut third = store(&scratch);
    third.recover(MIDNIGHT + 190).unwrap();
    third.write(MIDNIGHT + 190).unwrap();
    assert_eq!((third.stats().bytes_written, written > 0), (0, true));
    // A damaged tail is no reason to fail.
    fs::write(scratch.join("history/tail"), b"aulos.ah and then nothing").unwrap();
    store(&scratch).recover(MIDNIGHT + 200).unwrap();
}

#[test]
fn a_torn_block_is_cut_off_and_a_damaged_one_is_passed_over() {
    let scratch = ScratchDir::new("history-torn").unwrap();
    run(&mut store(&scratch), "a", MIDNIGHT..MIDNIGHT + 180);
    let path = scratch.join("history/1s/2026-11-22.ah");
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), 16 + 4 * 972);
    let mut torn = whole.clone();
    torn.truncate(whole.len() - 500);
    torn[16 + 972 + 100] ^= 1;
    fs::write(&path, &torn).unwrap();
    let mut next = store(&scratch);
    next.recover(MIDNIGHT + 200).unwrap();
    assert_eq!(
        seconds(&mut next, "a", 0, u32::MAX),
        (MIDNIGHT + 60..MIDNIGHT + 120).collect::<Vec<_>>()
    );
    assert_eq!(next.stats().blocks_damaged, 1);
    run(&mut next, "a", MIDNIGHT + 180..MIDNIGHT + 240);
    assert_eq!(fs::metadata(&path).unwrap().len(), 16 + 4 * 972);
    assert_eq!(seconds(&mut next, "a", 0, u32::MAX).len(), 120);
}

#[test]
fn a_file_of_something_else_is_kept_aside() {
    let scratch = ScratchDir::new("history-foreign").unwrap();
    let folder = scratch.join("history/1s");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("2026-11-22.ah"), [7; 3_000]).unwrap();
    let mut store = store(&scratch);
    store.recover(MIDNIGHT + 1).unwrap();
    run(&mut store, "a", MIDNIGHT..MIDNIGHT + 60);
    assert_eq!(seconds(&mut store, "a", 0, u32::MAX).len(), 60);
    assert_eq!(fs::read(folder.join("2026-11-22.ah.broken")).unwrap(), [7; 3_000]);
}

#[test]
fn a_folder_that_is_deleted_or_cannot_be_written_costs_only_time() {
    let scratch = ScratchDir::new("history-folder").unwrap();
    let mut store = store(&scratch);
    let dir = scratch.join("history");
    run(&mut store, "a", MIDNIGHT..MIDNIGHT + 60);
    fs::remove_dir_all(&dir).unwrap();
    // A file in its place: even root cannot write into that.
    fs::write(&dir, "").unwrap();
    for time in MIDNIGHT + 60..MIDNIGHT + 180 {
        add(&mut store, "a", time, quiet());
    }
    for _ in 0..2 {
        let error = store.write(MIDNIGHT + 180).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
    assert!(store.stats().write_errors >= 2);
    fs::remove_file(&dir).unwrap();
    store.write(MIDNIGHT + 181).unwrap();
    // What was deleted is gone, what could not be written is there.
    let times = seconds(&mut store, "a", 0, u32::MAX);
    assert_eq!(times, (MIDNIGHT + 60..MIDNIGHT + 180).collect::<Vec<_>>());
    let mode = fs::metadata(dir.join("1s/2026-11-22.ah")).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0);
}

#[test]
fn blocks_that_no_disk_takes_are_bounded_and_counted() {
    let scratch = ScratchDir::new("history-full").unwrap();
    fs::write(scratch.join("history"), "").unwrap();
    let mut store = store(&scratch);
    for minute in 0..10 {
        for station in 0..1_000 {
            add(&mut store, &format!("s{station}"), MIDNIGHT + 60 * minute, quiet());
        }
        assert!(minute == 0 || store.write(MIDNIGHT + 60 * minute).is_err());
    }
    assert!(store.stats().dropped > 800, "{:?}", store.stats());
    for station in 0..MAX_HISTORY_STATIONS + 5 {
        add(&mut store, &format!("t{station}"), MIDNIGHT + 601, quiet());
    }
    add(&mut store, &"x".repeat(300), MIDNIGHT + 601, quiet());
    assert!(store.stats().dropped > 1_800);
}

#[test]
fn a_clock_that_steps_back_and_forth_loses_no_second() {
    let scratch = ScratchDir::new("history-clock").unwrap();
    let mut store = store(&scratch);
    run(&mut store, "a", MIDNIGHT..MIDNIGHT + 150);
    run(&mut store, "a", MIDNIGHT + 45..MIDNIGHT + 300);
    run(&mut store, "a", MIDNIGHT + 4_000..MIDNIGHT + 4_100);
    run(&mut store, "a", MIDNIGHT + 300..MIDNIGHT + 400);
    store.finish(MIDNIGHT + 4_200).unwrap();
    let all: Vec<u32> =
        (MIDNIGHT..MIDNIGHT + 400).chain(MIDNIGHT + 4_000..MIDNIGHT + 4_100).collect();
    assert_eq!(seconds(&mut store, "a", 0, u32::MAX), all);
    // Times at the ends of what a file can hold.
    for time in [0, u32::MAX, u32::MAX - 60] {
        add(&mut store, "a", time, quiet());
        store.write(time).unwrap();
    }
}

#[test]
fn files_are_deleted_by_age_and_a_wrong_clock_deletes_none() {
    assert_eq!(expired(&[5, 3, 4, 1], 5, 3), [1]);
    assert_eq!(expired(&[5, 3, 4, 1], 0, 3), [1], "1970: all files are of the future");
    assert!(expired(&[100, 5, 3, 4], 5, 3).is_empty());
    assert!(expired(&[1, 2], 50_000, 3).is_empty(), "long after the last run");
    let scratch = ScratchDir::new("history-age").unwrap();
    let mut store = store(&scratch);
    for day in 0..40 {
        run(&mut store, "a", MIDNIGHT + day * DAY_S..MIDNIGHT + day * DAY_S + 61);
        store.write(MIDNIGHT + day * DAY_S + DAY_S / 2).unwrap();
    }
    for (tier, kept) in [("1s", 3), ("10s", 8), ("1min", 31), ("15min", 40)] {
        let files = fs::read_dir(scratch.join("history").join(tier)).unwrap().count();
        assert_eq!(files, kept, "{tier}");
    }
}

#[test]
fn a_query_takes_the_tier_that_fits_and_reaches_back_far_enough() {
    let scratch = ScratchDir::new("history-query").unwrap();
    let mut store = store(&scratch);
    for day in 0..5 {
        run(&mut store, "a", MIDNIGHT + day * DAY_S..MIDNIGHT + day * DAY_S + 7_200);
    }
    let now = MIDNIGHT + 4 * DAY_S + 7_200;
    store.write(now).unwrap();
    let mut ask = |from, to, points| {
        let series = store.query("a", &HistoryRange::new(from, to, points).unwrap()).unwrap();
        let present = series.points.iter().filter(|one| one.is_present()).count();
        assert!(series.points.len() <= points as usize + 1);
        assert_eq!(series.start % series.step_s, 0);
        (series.tier, series.step_s, present)
    };
    assert_eq!(ask(now - 600, now, 600), (HistoryTier::Second, 1, 600));
    assert_eq!(ask(now - 3_600, now, 600), (HistoryTier::Second, 6, 600));
    assert_eq!(ask(now - DAY_S, now, 480), (HistoryTier::Minute, 180, 40));
    assert_eq!(ask(now - 7 * DAY_S, now, 672), (HistoryTier::Quarter, 900, 40));
    // Three days ago there are no seconds any more.
    assert_eq!(ask(now - 4 * DAY_S - 600, now - 4 * DAY_S, 600), (HistoryTier::TenSeconds, 10, 60));
    assert_eq!(ask(now - 10, now + 10, 1), (HistoryTier::TenSeconds, 20, 1));
    assert_eq!(HistoryRange::new(5, 5, 10), Err(InvalidRange::Empty));
    assert_eq!(HistoryRange::new(0, MAX_SPAN_S + 1, 10), Err(InvalidRange::TooLong));
    assert_eq!(HistoryRange::new(0, 10, MAX_POINTS + 1), Err(InvalidRange::Points));
    assert_eq!(HistoryRange::new(0, 10, 0), Err(InvalidRange::Points));
}

/// A day of ten stations in virtual time. What a program of measurement wrote in the same layout
/// without `momentary_min` was 22 MB with the file system's own writes.
#[test]
fn ten_stations_write_less_than_22_mb_a_day() {
    let scratch = ScratchDir::new("history-day").unwrap();
    let mut store = store(&scratch);
    let names: Vec<String> = (0..10).map(|number| format!("station {number}")).collect();
    let mut writes = 0;
    for time in MIDNIGHT..MIDNIGHT + DAY_S {
        for name in &names {
            add(&mut store, name, time, quiet());
        }
        if (time + 1).is_multiple_of(60) {
            store.write(time + 1).unwrap();
            writes += 1;
        }
    }
    let bytes = store.stats().bytes_written;
    let pages = |tier: HistoryTier, writes: u64| {
        // Each append also writes the page again that the last one had begun.
        let per_write = 10 * block::block_bytes(tier) as u64;
        writes * (per_write.next_multiple_of(4_096) + 4_096 / 2)
    };
    let with_pages = pages(HistoryTier::Second, 1_440)
        + pages(HistoryTier::TenSeconds, 144)
        + pages(HistoryTier::Minute, 24)
        + pages(HistoryTier::Quarter, 2);
    println!(
        "10 stations: {:.1} MB a day in {writes} flushes, {:.1} MB in pages of 4 kB",
        bytes as f64 / 1e6,
        with_pages as f64 / 1e6
    );
    assert!(bytes < 17_000_000 && with_pages < 25_000_000, "{bytes} {with_pages}");
    let series = store
        .query("station 7", &HistoryRange::new(MIDNIGHT, MIDNIGHT + DAY_S, 720).unwrap())
        .unwrap();
    assert!(series.points.iter().all(HistoryRecord::is_present));
}

fn any_record() -> impl Strategy<Value = HistoryRecord> {
    any::<[u8; 16]>().prop_map(|bytes| HistoryRecord::from_bytes(&bytes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_block_is_read_as_it_was_written(records in vec(any_record(), 60), start in 0_u32..70_000_000) {
        let block = Block { start: start * 60, records };
        let mut bytes = Vec::new();
        block::push_records(&mut bytes, HistoryTier::Second, 9, &block);
        let parsed = block::parse(&bytes, HistoryTier::Second);
        prop_assert_eq!(parsed, Some((9, Content::Records(block))));
    }

    /// Any bytes in place of a file, or any change of one, neither panic nor grow anything.
    #[test]
    fn any_bytes_are_a_file(noise in vec(any::<u8>(), 0..4_000), at in 0_usize..3_000, keep in any::<bool>()) {
        let scratch = ScratchDir::new("history-noise").unwrap();
        run(&mut store(&scratch), "a", MIDNIGHT..MIDNIGHT + 120);
        let path = scratch.join("history/1s/2026-11-22.ah");
        let mut bytes = fs::read(&path).unwrap();
        if keep {
            let end = (at + noise.len()).min(bytes.len());
            bytes[at.min(end)..end].copy_from_slice(&noise[..end - at.min(end)]);
        } else {
            bytes = noise;
        }
        fs::write(&path, &bytes).unwrap();
        let mut store = store(&scratch);
        store.recover(MIDNIGHT + 150).unwrap();
        run(&mut store, "a", MIDNIGHT + 180..MIDNIGHT + 240);
        prop_assert!(seconds(&mut store, "a", 0, u32::MAX).len() <= 180);
        prop_assert!(seconds(&mut store, "a", MIDNIGHT + 180, MIDNIGHT + 240).len() == 60);
    }

    /// Whatever the tier, extremes and flags of the seconds are in it.
    #[test]
    fn no_tier_loses_a_spike(spikes in vec((0_u32..7_200, -60.0_f64..0.0), 1..8)) {
        let mut finer: BTreeMap<u32, HistoryRecord> =
            (0..7_200).map(|time| (MIDNIGHT + time, record(-70.0, HistoryFlags::default()))).collect();
        for (time, level) in &spikes {
            finer.insert(MIDNIGHT + time, record(*level, HistoryFlags::FALLBACK));
        }
        let greatest = finer.values().map(|one| one.momentary_max).max().unwrap();
        let mut records: Vec<_> = finer.into_iter().collect();
        for tier in HistoryTier::ALL.into_iter().skip(1) {
            records = coarsen(tier, &records);
            let found = records.iter().map(|(_, one)| one.momentary_max).max().unwrap();
            prop_assert_eq!(found, greatest);
            prop_assert!(records.iter().any(|(_, one)| one.flags.contains(HistoryFlags::FALLBACK)));
            let measured: f64 = records.iter().map(|(_, one)| f64::from(one.parts)).sum();
            let expected = 7_200.0 / f64::from(tier.finer().unwrap().step_s());
            prop_assert!((measured - expected).abs() < 1e-9);
        }
        prop_assert_eq!(records.len(), 8);
    }
}
