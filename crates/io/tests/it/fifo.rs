//! A FIFO in the file system with several writers.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{Instant, Span};
use aulos_engine::source::SourceItem;
use aulos_io::SystemClock;
use aulos_io::feed::{ByteFeed, FeedState, Feeder, FifoAccess, FifoCounters, FifoFeeder, FifoMode};
use aulos_rt::ring::Consumer;

struct FifoFixture {
    path: PathBuf,
    fifo: FifoFeeder,
    items: Consumer<SourceItem>,
    state: aulos_rt::LatestReader<FeedState>,
    counters: Arc<FifoCounters>,
    now: Instant,
    scratch: ScratchDir,
}

impl FifoFixture {
    fn new(name: &str) -> Self {
        let scratch = ScratchDir::new(name).unwrap();
        let path = scratch.join("in");
        let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, items) = ByteFeed::new("48000:16:1".parse().unwrap(), publisher, 0);
        let counters = Arc::<FifoCounters>::default();
        let fifo = FifoFeeder::new(path.clone(), FifoMode::Create(FifoAccess::default()), feed)
            .with_counters(Arc::clone(&counters));
        Self { scratch, path, fifo, items, state, counters, now: SystemClock::now() }
    }

    fn set_mode(&mut self, mode: FifoMode) {
        let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, items) = ByteFeed::new("48000:16:1".parse().unwrap(), publisher, 0);
        self.fifo = FifoFeeder::new(self.path.clone(), mode, feed)
            .with_counters(Arc::clone(&self.counters));
        (self.items, self.state) = (items, state);
    }

    /// Advances the time.
    fn wait(&mut self, seconds: i64) {
        self.now += Span::from_secs(seconds);
    }

    fn tick(&mut self) -> (usize, usize) {
        self.fifo.tick(self.now);
        let (mut frames, mut ends) = (0, 0);
        while let Some(item) = self.items.pop() {
            match item {
                SourceItem::Block(block) => frames += block.frames().as_usize(),
                SourceItem::End | SourceItem::Lost => ends += 1,
            }
        }
        (frames, ends)
    }
}

#[test]
fn each_of_several_writers_is_read_to_its_end() {
    let mut fixture = FifoFixture::new("writers");
    assert_eq!(fixture.tick(), (0, 0));
    let mode = std::fs::metadata(&fixture.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its owner only");
    for _ in 0..3 {
        let mut writer = OpenOptions::new().write(true).open(&fixture.path).unwrap();
        writer.write_all(&[0; 2_000]).unwrap();
        assert_eq!(fixture.tick(), (1_000, 0));
        assert_eq!(*fixture.state.read(), FeedState::Running);
        writer.write_all(&[0; 500]).unwrap();
        drop(writer);
        let (frames, ends) = fixture.tick();
        assert_eq!((frames, ends), (250, 1));
        assert_eq!(fixture.tick(), (0, 0), "an end is told once");
        assert_eq!(*fixture.state.read(), FeedState::Waiting);
    }
}

#[test]
fn a_writer_that_breaks_off_within_a_frame_does_not_shift_the_next_one() {
    let mut fixture = FifoFixture::new("torn");
    fixture.tick();
    // So the kernel shows no end when a writer closes.
    let keeper = OpenOptions::new().read(true).write(true).open(&fixture.path).unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "10,000 at most")]
    let wave = |n: u32| ((f64::from(n) * 0.1).sin() * 10_000.0) as i16;
    let sound: Vec<u8> = (0..500).flat_map(|n| wave(n).to_le_bytes()).collect();
    let mut first = writer(&fixture.path);
    first.write_all(&sound[..501]).unwrap();
    assert_eq!(fixture.tick(), (250, 0));
    drop(first);
    assert_eq!(fixture.tick(), (0, 0));
    writer(&fixture.path).write_all(&sound).unwrap();
    fixture.fifo.tick(fixture.now);
    let Some(SourceItem::Block(block)) = fixture.items.pop() else { panic!("nothing is played") };
    let expected: Vec<f32> = (0..500).map(|n| f32::from(wave(n)) / 32_768.0).collect();
    assert_eq!(block.samples(), expected);
    drop(keeper);
}

#[test]
fn an_existing_file_is_reported_and_left_unchanged() {
    let mut fixture = FifoFixture::new("in-the-way");
    std::fs::write(&fixture.path, b"precious").unwrap();
    fixture.tick();
    assert!(matches!(*fixture.state.read(), FeedState::Failed(_)));
    assert_eq!(std::fs::read(&fixture.path).unwrap(), b"precious");
}

/// FIFOs recreated, reopened, blocked.
fn counts(counters: &FifoCounters) -> [u64; 3] {
    [&counters.recreated, &counters.reopened, &counters.blocked]
        .map(|count| count.load(Ordering::Relaxed))
}

fn make(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
}

/// A writer that, like most programs, does not wait for a reader.
fn writer(path: &Path) -> std::fs::File {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap()
}

#[test]
fn a_deleted_fifo_is_created_again_and_the_next_writer_is_read() {
    let mut fixture = FifoFixture::new("deleted");
    fixture.tick();
    for round in 1..=3 {
        std::fs::remove_file(&fixture.path).unwrap();
        assert_eq!(fixture.tick(), (0, 0));
        fixture.wait(2);
        fixture.tick();
        fixture.tick();
        let kind = std::fs::metadata(&fixture.path).unwrap();
        assert!(kind.file_type().is_fifo() && kind.permissions().mode() & 0o777 == 0o600);
        let mut next = writer(&fixture.path);
        next.write_all(&[0; 2_000]).unwrap();
        assert_eq!(fixture.tick(), (1_000, 0), "round {round}");
        assert_eq!(*fixture.state.read(), FeedState::Running);
        drop(next);
        assert_eq!(fixture.tick(), (0, 1));
        assert_eq!(counts(&fixture.counters), [round, round, 0]);
    }
}

#[test]
fn the_writer_of_a_deleted_fifo_is_read_to_its_end_then_the_next() {
    let mut fixture = FifoFixture::new("unlinked");
    fixture.tick();
    let mut old = writer(&fixture.path);
    old.write_all(&[0; 2_000]).unwrap();
    assert_eq!(fixture.tick(), (1_000, 0));
    std::fs::remove_file(&fixture.path).unwrap();
    for _ in 0..5 {
        fixture.wait(1);
        old.write_all(&[0; 2_000]).unwrap();
        assert_eq!(fixture.tick(), (1_000, 0), "it has a writer");
    }
    // New writers find a FIFO already, and wait for its reader as usual.
    assert!(std::fs::metadata(&fixture.path).unwrap().file_type().is_fifo());
    drop(old);
    assert_eq!(fixture.tick(), (0, 1));
    fixture.tick();
    writer(&fixture.path).write_all(&[0; 500]).unwrap();
    assert_eq!(fixture.tick(), (250, 1));
    assert_eq!(counts(&fixture.counters), [1, 1, 0]);
}

#[test]
fn a_replaced_fifo_is_opened_even_if_its_old_writer_stays_silent() {
    let mut fixture = FifoFixture::new("replaced");
    fixture.tick();
    let mut old = writer(&fixture.path);
    old.write_all(&[0; 2_000]).unwrap();
    assert_eq!(fixture.tick(), (1_000, 0));
    let other = fixture.path.with_extension("other");
    make(&other);
    std::fs::rename(&other, &fixture.path).unwrap();
    fixture.wait(2);
    assert_eq!(fixture.tick(), (0, 1), "what the old one sent has ended");
    fixture.tick();
    let mut new = writer(&fixture.path);
    new.write_all(&[0; 600]).unwrap();
    assert_eq!(fixture.tick(), (300, 0));
    assert_eq!(counts(&fixture.counters), [0, 1, 0], "it was not made here");
    assert!(old.write_all(&[0; 2]).is_err(), "the old writer is told");
}

#[test]
fn a_file_in_place_of_a_fifo_is_reported_and_left_until_it_is_removed() {
    let mut fixture = FifoFixture::new("blocked");
    fixture.tick();
    std::fs::remove_file(&fixture.path).unwrap();
    std::fs::write(&fixture.path, b"precious").unwrap();
    for _ in 0..100 {
        fixture.wait(1);
        assert_eq!(fixture.tick(), (0, 0));
    }
    let problem = fixture.state.read().problem();
    assert_eq!(problem.as_deref(), Some("the path exists but is not a FIFO"));
    let [recreated, reopened, blocked] = counts(&fixture.counters);
    assert_eq!((recreated, reopened), (0, 0));
    // In 100 s, with pauses of at most 0.5, 1, 2 ... 30 s.
    assert!((5..60).contains(&blocked), "{blocked} tries");
    assert_eq!(std::fs::read(&fixture.path).unwrap(), b"precious");
    std::fs::remove_file(&fixture.path).unwrap();
    fixture.wait(31);
    fixture.tick();
    assert_eq!(*fixture.state.read(), FeedState::Waiting);
    writer(&fixture.path).write_all(&[0; 500]).unwrap();
    assert_eq!(fixture.tick(), (250, 1));
    assert_eq!(counts(&fixture.counters), [1, 1, blocked]);
}

#[test]
fn the_directory_of_a_fifo_can_be_removed_and_recreated() {
    let mut fixture = FifoFixture::new("folder");
    let folder = fixture.scratch.path().to_owned();
    fixture.tick();
    std::fs::remove_dir_all(&folder).unwrap();
    fixture.wait(2);
    fixture.tick();
    fixture.tick();
    assert_eq!(*fixture.state.read(), FeedState::Failed(libc::ENOENT));
    std::fs::create_dir(&folder).unwrap();
    fixture.wait(31);
    fixture.tick();
    writer(&fixture.path).write_all(&[0; 500]).unwrap();
    assert_eq!(fixture.tick(), (250, 1));
    assert_eq!(counts(&fixture.counters), [1, 1, 0]);
}

#[test]
fn a_fifo_has_the_permissions_and_the_group_that_it_was_given_whatever_the_umask_is() {
    let bits = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let mut fixture = FifoFixture::new("access");
    fixture.tick();
    assert_eq!(bits(&fixture.path), 0o600);
    // One that is left from an earlier run gets them too, and keeps them without any.
    let group = Some(rustix::process::getgid().as_raw());
    let access = FifoAccess { permissions: Some(0o666), group };
    fixture.set_mode(FifoMode::Create(access));
    fixture.tick();
    assert_eq!(bits(&fixture.path), 0o666, "a umask of 022 would make it 0644");
    std::fs::remove_file(&fixture.path).unwrap();
    fixture.wait(2);
    fixture.tick();
    fixture.tick();
    assert_eq!(bits(&fixture.path), 0o666, "one that is made anew");
    fixture.set_mode(FifoMode::Create(FifoAccess::default()));
    fixture.tick();
    assert_eq!(bits(&fixture.path), 0o666);
    if rustix::process::geteuid().is_root() {
        let access = FifoAccess { permissions: Some(0o660), group: Some(12) };
        fixture.set_mode(FifoMode::Create(access));
        fixture.tick();
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(&fixture.path).unwrap();
        assert_eq!((found.gid(), bits(&fixture.path)), (12, 0o660));
    }
}

#[test]
fn a_missing_read_only_fifo_is_awaited_and_not_created() {
    let mut fixture = FifoFixture::new("read");
    fixture.set_mode(FifoMode::Read);
    make(&fixture.path);
    fixture.tick();
    std::fs::remove_file(&fixture.path).unwrap();
    fixture.wait(2);
    fixture.tick();
    fixture.tick();
    assert_eq!(*fixture.state.read(), FeedState::Failed(libc::ENOENT));
    assert!(!fixture.path.exists());
    make(&fixture.path);
    fixture.wait(31);
    fixture.tick();
    writer(&fixture.path).write_all(&[0; 500]).unwrap();
    assert_eq!(fixture.tick(), (250, 1));
    assert_eq!(counts(&fixture.counters), [0, 1, 0]);
}
