//! A codec library panics in one encoder of a thread: what listeners, pushes and Snapcast clients
//! of the same station and of another one get is the same to the last bit.

use aulos_core::Codec;

use super::*;
use crate::codec_guard::{CodecLibrary, fault};
use crate::encode::{CodecConfig, make_encoder};
use crate::tapped_rendition::TappedRendition;

/// Time and payload of a chunk.
type SentChunk = (MediaTime, Instant, Vec<u8>);

/// What two stations on one thread have sent: the first one its samples, Opus, FLAC and, encoded on
/// a pool, MP3; the second one its samples.
struct Sent {
    outputs: [Vec<SentChunk>; 4],
    neighbor: Vec<f32>,
    status: StationStatus,
    lost_mp3: u64,
}

/// Runs both for a second. The library panics in the middle, if one is given.
fn run(fault: Option<CodecLibrary>) -> Sent {
    let counter = |base| -> Vec<Box<dyn Source>> { vec![Box::new(Counter { next: 0, base })] };
    let (mut world, mut other) = (World::new(counter(0)), World::new(counter(500_000)));
    let rendition = |config: CodecConfig, format| {
        let (producer, chunks) = ring(64);
        let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 960 * 4));
        let encoder = make_encoder(config, SampleSpec { format, ..SPEC }, Frames(960)).unwrap();
        (Rendition::new(encoder, pool, vec![producer], |_, _, _, _| 0), chunks)
    };
    let (opus, opus_chunks) = rendition(Codec::Opus.into(), SampleFormat::F32);
    let (flac, flac_chunks) = rendition(Codec::Flac.into(), SampleFormat::S16Le);
    let (mp3, mp3_chunks) = rendition(Codec::Mp3.into(), SampleFormat::F32);
    world.handle.add_output(opus).unwrap();
    world.handle.add_output(flac).unwrap();
    let (mut mp3, tap) = TappedRendition::new(mp3, Frames(960));
    world.handle.add_output(tap).unwrap();
    let mut added = [opus_chunks, flac_chunks, mp3_chunks];
    let (mut outputs, mut neighbor) = ([const { Vec::new() }; 4], Vec::new());
    for step in 0..50 {
        if let Some(library) = fault.filter(|_| step == 25) {
            fault::plan(library, 0);
        }
        world.now = world.station.poll_timeout();
        world.station.handle_timeout(world.now);
        assert!(mp3.process(world.now));
        neighbor.extend(other.step());
        let all = core::iter::once(&mut world.chunks).chain(&mut added);
        for (sent, chunks) in outputs.iter_mut().zip(all) {
            sent.extend(core::iter::from_fn(|| chunks.pop()).map(|stamped| {
                (stamped.chunk.pts, stamped.timestamp, stamped.chunk.payload().to_vec())
            }));
        }
    }
    assert!(!fault::is_planned(), "the library was called");
    world.handle.handle_timeout(world.now, |_| {});
    let status = *world.handle.status();
    Sent { outputs, neighbor, status, lost_mp3: mp3.lost_chunks() }
}

#[test]
fn a_panic_in_an_encoder_loses_no_chunk_and_changes_no_other_output() {
    let undisturbed = run(None);
    assert!(undisturbed.outputs.iter().all(|sent| sent.len() > 30));
    let cases = [
        (CodecLibrary::UnsafeLibopus, 1, 1),
        (CodecLibrary::FlacCodec, 2, 1),
        // The station does not know what the pool encodes.
        (CodecLibrary::RustyMp3, 3, 0),
    ];
    for (library, hit, counted) in cases {
        let sent = run(Some(library));
        assert!(sent.neighbor == undisturbed.neighbor, "{library:?}: another station changed");
        for (at, (with, without)) in sent.outputs.iter().zip(&undisturbed.outputs).enumerate() {
            if at == hit {
                let times = |sent: &[SentChunk]| -> Vec<_> {
                    sent.iter().map(|(pts, timestamp, _)| (*pts, *timestamp)).collect()
                };
                assert_eq!(times(with), times(without), "{library:?}");
                assert!(with.iter().all(|(_, _, payload)| !payload.is_empty()), "{library:?}");
            } else {
                assert!(with == without, "{library:?}: output {at} changed");
            }
        }
        assert_eq!((sent.status.codec_panics, sent.status.encode_errors), (counted, 0));
        assert_eq!(sent.lost_mp3, 0);
    }
}
