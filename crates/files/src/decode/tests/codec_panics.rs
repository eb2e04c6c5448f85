//! A codec library panics in one of two decoders of a thread.

use std::sync::mpsc::{Sender, channel};

use aulos_engine::codec_guard::{CodecLibrary, fault};
use aulos_io::{CodecPool, Job, JobStatus};
use aulos_proto::packets::FormatHint;

use super::super::{
    FileDecodeError, FileDecodeOptions, FileDecodeStatus, FileDecoder, StreamDecodeStatus,
    StreamDecoder,
};
use super::block;
use super::damage::CONTAINERS;
use super::fixture::Folder;

/// Extension, ffmpeg's options, and the library that decodes it.
const STREAMS: [(&str, &str, CodecLibrary); 6] = [
    ("a.mp3", "-c:a libmp3lame -b:a 128k -write_xing 0", CodecLibrary::Symphonia),
    ("a.ogg", "-c:a libvorbis -page_duration 100000", CodecLibrary::Symphonia),
    ("a.flac", "-c:a flac", CodecLibrary::Symphonia),
    ("a.aac", "-c:a aac -aac_pns 0 -b:a 128k", CodecLibrary::Syom),
    ("a.opus", "-c:a libopus -b:a 96k -page_duration 100000", CodecLibrary::UnsafeLibopus),
    ("b.opus", "-c:a libopus -ac 6 -b:a 256k -page_duration 100000", CodecLibrary::UnsafeLibopus),
];

/// Decodes a stream in pieces, as a job of the codec pool does.
struct StreamJob {
    decoder: StreamDecoder,
    bytes: Vec<u8>,
    taken: usize,
    sound: Vec<f32>,
    /// Panics in the middle.
    fault: Option<CodecLibrary>,
    done: Option<Sender<Box<Self>>>,
}

impl StreamJob {
    fn new(bytes: &[u8]) -> Self {
        let decoder = StreamDecoder::new(FormatHint::None);
        let bytes = bytes.to_vec();
        Self { decoder, bytes, taken: 0, sound: Vec::new(), fault: None, done: None }
    }

    /// Decodes a twentieth of the stream; false at its end.
    fn advance(&mut self) -> bool {
        let middle = self.bytes.len() / 2;
        if let Some(library) = self.fault.take_if(|_| self.taken > middle) {
            fault::plan(library, 0);
        }
        let end = (self.taken + self.bytes.len() / 20 + 1).min(self.bytes.len());
        let mut into = block();
        loop {
            self.taken += self.decoder.push(&self.bytes[self.taken..end]);
            if self.taken == self.bytes.len() {
                self.decoder.finish();
            }
            match self.decoder.next(&mut into).unwrap() {
                StreamDecodeStatus::Block => self.sound.extend_from_slice(into.samples()),
                StreamDecodeStatus::NeedsInput if self.taken < end => {}
                StreamDecodeStatus::NeedsInput => break,
                StreamDecodeStatus::End => return false,
            }
        }
        assert!(!fault::is_planned(), "the stream calls the library in its own turn");
        true
    }
}

impl Job for StreamJob {
    fn step(&mut self) -> JobStatus {
        if self.advance() {
            return JobStatus::Pending;
        }
        let done = self.done.take().unwrap();
        done.send(Box::new(core::mem::replace(self, Self::new(&[])))).unwrap();
        JobStatus::Done
    }
}

#[test]
fn a_panic_of_a_library_costs_a_packet_of_one_stream() {
    let folder = Folder::new();
    for (name, arguments, library) in STREAMS {
        let bytes = std::fs::read(folder.encoded(name, 48_000, 16, arguments)).unwrap();
        let mut whole = StreamJob::new(&bytes);
        while whole.advance() {}
        let (mut hit, mut neighbor) = (StreamJob::new(&bytes), StreamJob::new(&bytes));
        hit.fault = Some(library);
        while hit.advance() | neighbor.advance() {}
        assert!(neighbor.sound == whole.sound, "{name}: the neighbour changed");
        assert_eq!(neighbor.decoder.counts(), whole.decoder.counts(), "{name}");
        let counts = hit.decoder.counts();
        assert_eq!(counts.codec_panics, 1, "{name}");
        // A new decoder of AAC decodes the packet again.
        let damaged = u64::from(library != CodecLibrary::Syom);
        assert_eq!(counts.damaged, damaged, "{name}");
        // What is missing is concealed, and the end is that of the stream.
        let packet = 2 * 4_608;
        assert!(hit.sound.len().abs_diff(whole.sound.len()) <= packet, "{name}");
        let (with, without) = (&hit.sound, &whole.sound);
        let tail = without.len() / 5;
        let both = with[with.len() - tail..].iter().zip(&without[without.len() - tail..]);
        let largest = both.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest < 0.02, "{name}: {largest}");
    }
}

/// The pool has one thread.
#[test]
fn a_panic_of_a_library_ends_no_job_of_the_pool() {
    let folder = Folder::new();
    let bytes = std::fs::read(folder.encoded("a.flac", 48_000, 16, "-c:a flac")).unwrap();
    let mut whole = StreamJob::new(&bytes);
    while whole.advance() {}
    let mut pool = CodecPool::start(1).unwrap();
    let (sender, results) = channel();
    for fault in [Some(CodecLibrary::Symphonia), None] {
        let done = Some(sender.clone());
        pool.add(Box::new(StreamJob { fault, done, ..StreamJob::new(&bytes) }));
    }
    let both = [results.recv().unwrap(), results.recv().unwrap()];
    let panics = both.each_ref().map(|job| job.decoder.counts().codec_panics);
    assert_eq!(panics.iter().sum::<u64>(), 1);
    for (job, panics) in both.iter().zip(panics) {
        assert_eq!(job.sound == whole.sound, panics == 0);
    }
    pool.stop();
}

/// A panic in the container ends the file, as damage there does; one in the decoder costs a packet.
#[test]
fn a_panic_of_a_library_never_disturbs_another_file() {
    let folder = Folder::new();
    let opus = [("opus.mkv", "-c:a libopus"), ("opus.m4a", "-c:a libopus -f mp4")];
    for (name, arguments) in CONTAINERS.into_iter().chain(opus) {
        let path = folder.encoded(name, 48_000, 16, arguments);
        let open = || FileDecoder::open(&path, FileDecodeOptions::default()).unwrap();
        let mut whole = Vec::new();
        let mut decoder = open();
        while advance(&mut decoder, &mut whole) == Ok(true) {}
        for (library, calls) in [
            (CodecLibrary::Symphonia, 0),
            (CodecLibrary::Symphonia, 1),
            (CodecLibrary::UnsafeLibopus, 0),
            (CodecLibrary::Syom, 0),
        ] {
            let (mut hit, mut neighbor) = (open(), open());
            let (mut sound, mut beside, mut end) = (Vec::new(), Vec::new(), Ok(true));
            for step in 0.. {
                if step == 10 {
                    fault::plan(library, calls);
                }
                if end == Ok(true) {
                    end = advance(&mut hit, &mut sound);
                }
                // Not every file needs every library.
                fault::cancel();
                if advance(&mut neighbor, &mut beside) != Ok(true) && end != Ok(true) {
                    break;
                }
            }
            assert!(beside == whole, "{name}, {library:?}: the neighbour changed");
            match end {
                Err(error) => assert_eq!(error, FileDecodeError::Torn, "{name}"),
                Ok(_) => {
                    assert!(hit.damaged() <= 1, "{name}");
                    assert!(whole.len() - sound.len() <= 2 * 8_192, "{name}");
                }
            }
        }
    }
}

/// Decodes one block; false at the end.
fn advance(decoder: &mut FileDecoder, sound: &mut Vec<f32>) -> Result<bool, FileDecodeError> {
    let mut into = block();
    let more = decoder.next(&mut into)? == FileDecodeStatus::Block;
    sound.extend_from_slice(into.samples());
    Ok(more)
}
