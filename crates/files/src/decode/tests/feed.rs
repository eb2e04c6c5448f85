//! Decoding a file into a ring step by step.

use aulos_rt::{Pool, ring};

use aulos_engine::source::SourceItem;

use super::super::{FileDecodeOptions, FileDecoder, FileFeed, FileFeedStatus};
use super::block;
use super::fixture::{FRAMES, Folder, signal_f32};

fn decoder(folder: &Folder, looped: bool) -> FileDecoder {
    let path = folder.encoded("a.flac", 44_100, 16, "-c:a flac");
    FileDecoder::open(&path, FileDecodeOptions { looped, raw: None }).unwrap()
}

#[test]
fn every_frame_arrives_in_order_and_then_the_end() {
    let folder = Folder::new();
    for (slots, blocks) in [(1, 3), (4, 8), (8, 2), (64, 64)] {
        let pool = Pool::new(blocks, block);
        let (producer, mut consumer) = ring::ring(slots);
        let mut feed = FileFeed::new(decoder(&folder, false), pool.clone(), producer);
        let (mut sound, mut ended) = (Vec::new(), false);
        while !ended {
            let progress = feed.step();
            // When the ring is full, the next step has no effect until a block is taken.
            if progress == FileFeedStatus::Full {
                assert!(consumer.len() == slots.min(blocks), "{slots} {blocks}");
                assert_eq!(feed.step(), FileFeedStatus::Full);
            }
            while let Some(item) = consumer.pop() {
                match item {
                    SourceItem::Block(block) => sound.extend_from_slice(block.samples()),
                    SourceItem::End | SourceItem::Lost => ended = true,
                }
            }
            assert!(!ended || progress == FileFeedStatus::Ended);
        }
        assert_eq!(feed.step(), FileFeedStatus::Ended);
        assert!(consumer.pop().is_none());
        assert_eq!(sound.len(), 2 * FRAMES);
        assert_eq!(sound, signal_f32(44_100, 16));
        assert_eq!(pool.available(), blocks, "every block came back");
        assert_eq!((feed.damaged(), feed.info().codec), (0, "flac"));
    }
}

#[test]
fn a_feed_without_a_reader_reports_it() {
    let folder = Folder::new();
    let (producer, consumer) = ring::ring(4);
    let mut feed = FileFeed::new(decoder(&folder, true), Pool::new(4, block), producer);
    assert_eq!(feed.step(), FileFeedStatus::Full);
    drop(consumer);
    assert_eq!(feed.step(), FileFeedStatus::Abandoned);
}

#[test]
fn a_looped_feed_never_ends() {
    let folder = Folder::new();
    let (producer, mut consumer) = ring::ring(8);
    let mut feed = FileFeed::new(decoder(&folder, true), Pool::new(8, block), producer);
    let mut frames = 0;
    while frames < 5 * FRAMES as u64 {
        assert_eq!(feed.step(), FileFeedStatus::Full);
        while let Some(SourceItem::Block(block)) = consumer.pop() {
            frames += block.frames().0;
        }
    }
}
