//! A FIFO in the file system, with writers that come and go.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use aulos_engine::source::Item;
use aulos_io::SystemClock;
use aulos_io::feed::{ByteFeed, FeedState, Feeder, Fifo, FifoMode};
use aulos_rt::ring::Consumer;

struct World {
    path: PathBuf,
    fifo: Fifo,
    items: Consumer<Item>,
    state: aulos_rt::Reader<FeedState>,
}

impl World {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aulos-test-{}-{name}", std::process::id()));
        drop(std::fs::remove_file(&path));
        let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, items) = ByteFeed::new("48000:16:1".parse().unwrap(), publisher, 0);
        let fifo = Fifo::new(path.clone(), FifoMode::Create, feed);
        Self { path, fifo, items, state }
    }

    fn tick(&mut self) -> (usize, usize) {
        self.fifo.tick(SystemClock::now());
        let (mut frames, mut ends) = (0, 0);
        while let Some(item) = self.items.pop() {
            match item {
                Item::Block(block) => frames += block.frames().as_usize(),
                Item::End | Item::Lost => ends += 1,
            }
        }
        (frames, ends)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

#[test]
fn writers_come_and_go_and_each_is_heard_to_its_end() {
    let mut world = World::new("writers");
    assert_eq!(world.tick(), (0, 0));
    let mode = std::fs::metadata(&world.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its owner only");
    for _ in 0..3 {
        let mut writer = OpenOptions::new().write(true).open(&world.path).unwrap();
        writer.write_all(&[0; 2_000]).unwrap();
        assert_eq!(world.tick(), (1_000, 0));
        assert_eq!(*world.state.read(), FeedState::Running);
        writer.write_all(&[0; 500]).unwrap();
        drop(writer);
        let (frames, ends) = world.tick();
        assert_eq!((frames, ends), (250, 1));
        assert_eq!(world.tick(), (0, 0), "an end is told once");
        assert_eq!(*world.state.read(), FeedState::Waiting);
    }
}

#[test]
fn a_file_in_the_way_is_a_failure_that_says_so_and_leaves_the_file_alone() {
    let mut world = World::new("in-the-way");
    std::fs::write(&world.path, b"precious").unwrap();
    world.tick();
    assert!(matches!(*world.state.read(), FeedState::Failed(_)));
    assert_eq!(std::fs::read(&world.path).unwrap(), b"precious");
}
