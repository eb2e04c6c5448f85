//! Segments in virtual time: the grid, two servers, gaps, restarts, titles, and the rules of
//! RFC 8216 about what a server does over time.

use aulos_core::{Frames, Instant, MediaTime, Rng, SampleRate, SampleSpec, Span, Timeline};
use aulos_engine::decode::{Decoder as _, OpusPacketDecoder};
use aulos_engine::encode::{CodecConfig, make_encoder};
use aulos_engine::fanout::OriginTime;
use aulos_engine::recorder::FrameRun;

use super::*;

mod publisher;
mod window;

const SEGMENT: Frames = Frames(276_480);
const RATE: SampleRate = SampleRate::HZ_48000;

fn formats(codecs: &[&str]) -> Vec<HlsFormat> {
    let format = |codec: &&str| {
        HlsFormat::new(codec.parse().unwrap(), SampleSpec::DEFAULT, SEGMENT).unwrap()
    };
    codecs.iter().map(format).collect()
}

fn segmenter(codecs: &[&str]) -> Segmenter {
    let make = |format: &HlsFormat| make_encoder(format.codec, format.spec, format.frame).ok();
    Segmenter::new(formats(codecs), SEGMENT, true, make).unwrap()
}

/// What the origin plays at each place: integers of 16 bits.
fn sound(from: MediaTime, frames: u64) -> Vec<f32> {
    (from.0..from.0 + frames)
        .flat_map(|at| {
            let mut noise = Rng::new(at);
            let [a, b, ..] = noise.next_u64().to_le_bytes();
            let tone = ((at % 480) as f32 / 480.0 * std::f32::consts::TAU).sin() * 8_000.0;
            [a, b].map(|noise| (tone.round() + f32::from(noise)) / 32_768.0)
        })
        .collect()
}

/// Pushes what the origin plays, in blocks, and returns the segments.
fn play(segmenter: &mut Segmenter, from: MediaTime, frames: u64) -> Vec<SegmentSet> {
    let mut sets = Vec::new();
    for at in (from.0..from.0 + frames).step_by(960) {
        let count = 960.min(from.0 + frames - at);
        segmenter.push(MediaTime(at), &sound(MediaTime(at), count), SampleKind::Genuine);
        sets.extend(std::iter::from_fn(|| segmenter.poll_output()));
    }
    sets
}

/// The sound of a segment behind its boxes, and the sizes of its frames.
fn frames_of(bytes: &[u8]) -> Vec<&[u8]> {
    let find = |name: &[u8]| bytes.windows(4).position(|window| window == name).unwrap();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (run, mut rest) = (find(b"trun") + 4, &bytes[find(b"mdat") + 4..]);
    let sizes = (0..number(run + 4)).map(|index| number(run + 12 + 4 * index));
    sizes
        .map(|size| {
            let (frame, behind) = rest.split_at(size);
            rest = behind;
            frame
        })
        .collect()
}

/// The number of a FLAC frame (RFC 9639, section 9.1.5).
fn coded_number(frame: &[u8]) -> u64 {
    let rest = frame[4].leading_ones().saturating_sub(1) as usize;
    let first = u64::from(frame[4]) & (0x7f >> (rest + usize::from(rest > 0)));
    frame[5..5 + rest].iter().fold(first, |number, byte| number << 6 | u64::from(byte & 0x3f))
}

/// The first place of some segment in 2026, and how far into it a server is started.
fn begin(into: u64) -> MediaTime {
    MediaTime(307_000_000 * SEGMENT.0 + into)
}

#[test]
fn a_segment_has_the_samples_of_its_place_on_the_grid() {
    let mut segmenter = segmenter(&["flac"]);
    let sets = play(&mut segmenter, begin(12_345), 3 * SEGMENT.0);
    let numbers: Vec<_> = sets.iter().map(|set| set.number).collect();
    assert_eq!(numbers, [307_000_001, 307_000_002], "the first one is not complete");
    let mut decoder =
        crate::player::decoder::ChunkDecoder::new(aulos_core::Codec::Flac, SampleSpec::DEFAULT)
            .unwrap();
    for set in sets {
        assert!(!set.is_discontinuous && !set.is_filled);
        let frames = frames_of(&set.bodies[0]);
        assert_eq!(frames.len(), 288);
        let (mut all, mut samples) = (Vec::new(), Vec::new());
        for (frame, number) in frames.into_iter().zip(set.number * 288..) {
            assert_eq!(coded_number(frame), number & 0x7fff_ffff, "the number of the block");
            assert_eq!(decoder.decode(frame, &mut samples), Frames(960));
            all.extend_from_slice(&samples);
        }
        let expected = sound(MediaTime(set.number * SEGMENT.0), SEGMENT.0);
        assert!(all == expected, "other samples");
    }
}

#[test]
fn a_packet_of_opus_decodes_to_the_samples_of_its_place() {
    let mut segmenter = segmenter(&["opus-probe"].map(|_| "opus:128k"));
    // A click at a place of the second segment behind the warm-up.
    let from = begin(0);
    let click = from.0 + 3 * SEGMENT.0 + 100_000;
    let mut sets = Vec::new();
    for at in (from.0..from.0 + 5 * SEGMENT.0).step_by(960) {
        let mut samples = vec![0.0; 1_920];
        if (at..at + 960).contains(&click) {
            let index = usize::try_from(click - at).unwrap() * 2;
            samples[index..index + 2].fill(0.9);
        }
        segmenter.push(MediaTime(at), &samples, SampleKind::Genuine);
        sets.extend(std::iter::from_fn(|| segmenter.poll_output()));
    }
    assert_eq!(sets[0].number, 307_000_000);
    let marked: Vec<_> = sets.iter().map(|set| set.is_filled).collect();
    assert_eq!(marked, [true, true, false, false], "10 s of warm-up");
    let mut decoder = OpusPacketDecoder::new(RATE, 2).unwrap();
    let mut all = Vec::new();
    for packet in sets.iter().flat_map(|set| frames_of(&set.bodies[0])) {
        let mut samples = vec![0.0; 1_920];
        assert_eq!(decoder.decode(packet, &mut samples), Ok(960));
        all.extend(samples.iter().step_by(2).copied());
    }
    let peak = (0..all.len()).max_by(|a, b| all[*a].abs().total_cmp(&all[*b].abs())).unwrap();
    let place = sets[0].number * SEGMENT.0 + peak as u64;
    assert!(place.abs_diff(click) <= 1, "{place} and not {click}");
}

#[test]
fn two_servers_make_the_same_bytes_wherever_they_begin() {
    let codecs = ["flac", "opus:96k,cbr", "opus:64k,cbr", "aac:128k"];
    let (mut one, mut two) = (segmenter(&codecs), segmenter(&codecs));
    let ones = play(&mut one, begin(0), 12 * SEGMENT.0);
    // The other server begins 17.003 s later, in the middle of a chunk.
    let twos = play(&mut two, begin(816_161), 12 * SEGMENT.0 - 816_161);
    assert!(twos.iter().filter(|set| !set.is_filled).count() >= 6, "{}", twos.len());
    for set in twos.iter().filter(|set| !set.is_filled) {
        let same = ones.iter().find(|other| other.number == set.number).unwrap();
        for (codec, (own, other)) in codecs.iter().zip(set.bodies.iter().zip(&same.bodies)) {
            assert!(own == other, "{codec}: segment {} differs", set.number);
        }
    }
}

#[test]
fn a_gap_is_filled_and_marked_until_the_encoders_have_forgotten_it() {
    for (codec, marked) in [("flac", 1), ("opus:96k,cbr", 2), ("aac:128k", 2)] {
        let (mut whole, mut broken) = (segmenter(&[codec]), segmenter(&[codec]));
        let expected = play(&mut whole, begin(0), 12 * SEGMENT.0);
        let lost = begin(4 * SEGMENT.0 + 9_600);
        let mut sets = play(&mut broken, begin(0), 4 * SEGMENT.0 + 9_600);
        let back = MediaTime(lost.0 + 2_400);
        sets.extend(play(&mut broken, back, 12 * SEGMENT.0 - (back.0 - begin(0).0)));
        assert_eq!(sets.len(), expected.len());
        assert!(sets.iter().all(|set| !set.is_discontinuous), "the grid has not moved");
        let warm = sets.iter().filter(|set| set.number >= 307_000_002);
        let filled: Vec<_> = warm.filter(|set| set.is_filled).map(|set| set.number).collect();
        let first = 307_000_004;
        assert_eq!(filled, (first..first + marked).collect::<Vec<_>>(), "{codec}");
        for (set, other) in sets.iter().zip(&expected) {
            assert!(set.is_filled || set == other, "{codec}: {} differs unmarked", set.number);
        }
        assert_ne!(
            sets.iter().find(|set| set.number == first),
            expected.iter().find(|set| set.number == first)
        );
        assert_eq!(broken.stats().filled, marked);
    }
}

#[test]
fn samples_that_come_twice_are_dropped_and_marked() {
    let mut segmenter = segmenter(&["flac"]);
    let mut sets = play(&mut segmenter, begin(0), SEGMENT.0 + 1_000);
    sets.extend(play(&mut segmenter, begin(SEGMENT.0), SEGMENT.0 * 2));
    assert_eq!(sets.iter().map(|set| set.is_filled).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(segmenter.stats().repeated, 1_000);
    let mut other = self::segmenter(&["flac"]);
    let others = play(&mut other, begin(0), 3 * SEGMENT.0);
    assert_eq!(sets[1].bodies, others[1].bodies, "here both copies were the same");
}

#[test]
fn a_jump_begins_a_new_run_forward_and_back() {
    let mut segmenter = segmenter(&["flac"]);
    let mut sets = play(&mut segmenter, begin(0), 2 * SEGMENT.0);
    sets.extend(play(&mut segmenter, begin(20 * SEGMENT.0 + 5), 2 * SEGMENT.0));
    sets.extend(play(&mut segmenter, begin(5), 2 * SEGMENT.0));
    let found: Vec<_> =
        sets.iter().map(|set| (set.number - 307_000_000, set.is_discontinuous)).collect();
    assert_eq!(found, [(0, false), (1, false), (21, true), (1, true)]);
    assert_eq!(segmenter.stats().runs, 3);
}

#[test]
fn a_title_is_in_the_segment_of_its_place_and_at_the_head_of_each_later_one() {
    let mut segmenter = segmenter(&["flac"]);
    let at = begin(SEGMENT.0 + 4_321);
    segmenter.set_title(1, at, "first");
    segmenter.set_title(2, begin(3 * SEGMENT.0), "second");
    let sets = play(&mut segmenter, begin(0), 4 * SEGMENT.0);
    let events = |set: &SegmentSet| {
        let bytes = &set.bodies[0];
        let messages = bytes.windows(5).enumerate().filter(|(_, window)| window == b"emsg\x01");
        messages
            .map(|(start, _)| {
                // Version, flags and time scale come before the time.
                let time = u64::from_be_bytes(bytes[start + 12..start + 20].try_into().unwrap());
                let size = u32::from_be_bytes(bytes[start - 4..start].try_into().unwrap()) as usize;
                let message = &bytes[start - 4..start - 4 + size];
                let title = message.windows(4).position(|window| window == b"TIT2").unwrap() + 11;
                (time, String::from_utf8(message[title..].to_vec()).unwrap())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(events(&sets[0]), []);
    assert_eq!(events(&sets[1]), [(at.0, "first".to_owned())], "to the sample");
    assert_eq!(events(&sets[2]), [(begin(2 * SEGMENT.0).0, "first".to_owned())]);
    assert_eq!(events(&sets[3]), [(begin(3 * SEGMENT.0).0, "second".to_owned())]);
}

#[test]
fn two_servers_place_a_chunk_alike() {
    let (boot, second) = (1_764_331_200_123_456_789_i64, 1_000_000_000_i64);
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let phase = i64::try_from(rng.next_u64() % 20_000).unwrap() * 1_000;
        // Servers whose clocks are 40 ms apart; the second one is started later.
        let (mut one, mut two) = (OriginGrid::new(RATE), OriginGrid::new(RATE));
        let mut last = None;
        for chunk in 0..500_i64 {
            let own = 86_400 * second + phase + chunk * 20_000_000;
            let rounded = Instant::from_nanos(u64::try_from((own + 333) / 1_000 * 1_000).unwrap());
            let place = one.place(rounded, Frames(960), boot + own + 15_000_000);
            if let Some(last) = last {
                assert_eq!(place.at, last + Frames(960), "a chunk continues the one before");
            }
            last = Some(place.at);
            if chunk >= 200 {
                let other = two.place(rounded, Frames(960), boot + own - 25_000_000);
                assert_eq!(other.at, place.at);
                assert!((place.date_offset_ms - other.date_offset_ms).abs() <= 41);
            }
            // The date that clients see is the origin's, within the error of the clock.
            let date = i64::try_from(place.at.0 * 1_000 / 48_000).unwrap() + place.date_offset_ms;
            assert!((date - (boot + own) / 1_000_000).abs() <= 30, "{date}");
        }
    }
}

#[test]
fn a_lost_chunk_is_a_gap_of_its_length_wherever_the_clock_stands() {
    let date = 1_764_331_200_000_000_000_i64;
    for phase in (0..20).map(|it| it * 1_000_000_i64 + 7_000) {
        let mut grid = OriginGrid::new(RATE);
        let mut place = |chunk: i64| {
            let own = 50_000_000_000 + phase + chunk * 20_000_000;
            let timestamp = Instant::from_nanos(u64::try_from(own).unwrap());
            grid.place(timestamp, Frames(960), date + own).at
        };
        let first = place(0);
        for chunk in [1, 2, 4, 7, 8, 58, 59] {
            let expected = first + Frames(960 * u64::try_from(chunk).unwrap());
            assert_eq!(place(chunk), expected, "chunk {chunk}, {phase} ns");
        }
    }
}

#[test]
fn another_clock_of_the_origin_is_another_zero() {
    let mut grid = OriginGrid::new(RATE);
    let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
    let date = 1_764_331_200_000_000_000_i64;
    let first = grid.place(at(100), Frames(960), date).at;
    let same = grid.place(at(101), Frames(960), date + 1_003_000_000).at;
    assert_eq!(same.since(first), Frames(48_000), "a clock that is 3 ms off is the same");
    let restarted = grid.place(at(3), Frames(960), date + 120_000_000_000);
    assert!(restarted.at > same, "the grid goes on by dates");
    let shown = restarted.at.0 * 1_000 / 48_000;
    let shown = i64::try_from(shown).unwrap() + restarted.date_offset_ms;
    assert!((shown - (date / 1_000_000 + 120_000)).abs() <= 10, "{shown}");
}

#[test]
fn the_output_of_a_station_is_placed_by_its_media_time_and_a_standstill_is_a_gap() {
    let mut grid = OutputGrid::default();
    let date = 1_764_331_200_000_000_000_i64;
    let run = |pts: u64, stall: Span| FrameRun {
        pts: MediaTime(pts),
        frames: Frames(960),
        timeline: Timeline::new(MediaTime::ZERO, Instant::ZERO, RATE),
        stall,
        interrupted: Frames::ZERO,
    };
    let first = grid.place(&run(5_000, Span::ZERO), date);
    assert_eq!(first.0, 1_764_331_200 * 48_000);
    let jitter = date + 20_000_000 + 700_000;
    assert_eq!(grid.place(&run(5_960, Span::ZERO), jitter).since(first), Frames(960));
    let late = grid.place(&run(6_920, Span::from_secs(2)), date + 2_040_000_000);
    assert_eq!(late.since(first), Frames(1_920 + 96_000), "the station stood still");
    let lost = grid.place(&run(16_520, Span::ZERO), date + 2_240_000_000);
    assert_eq!(lost.since(late), Frames(9_600), "what the tap has lost is a gap");
    let set = grid.place(&run(17_480, Span::ZERO), date + 86_400_000_000_000);
    assert_eq!(set.0, (1_764_331_200 + 86_400) * 48_000, "the clock was set");
}

#[test]
fn chunks_of_another_server_are_genuine_and_what_the_station_encodes_is_filled() {
    let mut segmenter = segmenter(&["flac"]);
    let mut feed = ChunkFeed::new(aulos_core::Codec::Pcm, SampleSpec::DEFAULT).unwrap();
    assert!(ChunkFeed::new(aulos_core::Codec::Opus, SampleSpec::DEFAULT).is_none());
    let date = 1_764_331_200_000_000_000_i64;
    for early in 0..50 {
        let utc = date - 1_000_000_000 + early * 20_000_000;
        assert_eq!(feed.push(&[1; 3_840], None, utc, &mut segmenter), None);
    }
    assert_eq!(segmenter.position(), None, "it waits for the origin");
    let mut sets = Vec::new();
    for chunk in 0..1_200_u64 {
        let timestamp = Instant::from_nanos(50_000_000_000 + chunk * 20_000_000);
        let origin = OriginTime { timestamp, recorded: timestamp };
        // Four chunks in the middle of a segment are not passed.
        let origin = (!(700..704).contains(&chunk)).then_some(origin);
        let utc = date + i64::try_from(chunk * 20_000_000).unwrap();
        let offset = feed.push(&[1; 3_840], origin, utc, &mut segmenter);
        assert_eq!(offset.is_some(), origin.is_some());
        assert!(offset.is_none_or(|offset| offset.abs() <= 30_000));
        sets.extend(std::iter::from_fn(|| segmenter.poll_output()));
    }
    assert_eq!(sets.iter().filter(|set| set.is_filled).count(), 1);
    assert_eq!((sets.len(), segmenter.stats().runs), (3, 1));
    assert_eq!(feed.push(b"", None, date, &mut segmenter), None);
}

#[test]
fn what_hls_cannot_have_is_refused_with_the_reason() {
    let spec = SampleSpec::DEFAULT;
    let of = |codec: &str, spec, segment| {
        HlsFormat::new(codec.parse::<CodecConfig>().unwrap(), spec, Frames(segment)).unwrap_err()
    };
    assert!(of("pcm", spec, 960).to_string().contains("use aac, flac or opus"));
    let slow = SampleSpec { rate: SampleRate::HZ_44100, ..spec };
    assert!(of("flac", slow, 960).to_string().contains("the station has 44100"));
    assert!(of("opus", spec, 1_000).to_string().contains("multiple of 960 samples"));
    assert_eq!(of("flac", spec, 0), UnsupportedHls::Segment(aulos_core::Codec::Flac, Frames(960)));
}

#[test]
fn packed_audio_has_the_access_units_of_the_fragments_with_their_time_and_title() {
    let formats = formats(&["aac:128k"]);
    let packed = vec![formats[0].clone().packed().unwrap()];
    let make = |_: &HlsFormat| None;
    let mut fragments = Segmenter::new(formats, SEGMENT, true, make).unwrap();
    let mut segmenter = Segmenter::new(packed.clone(), SEGMENT, true, make).unwrap();
    segmenter.set_title(1, begin(SEGMENT.0), "a title");
    segmenter.set_title(2, begin(2 * SEGMENT.0 + 5), "late");
    let expected = play(&mut fragments, begin(0), 4 * SEGMENT.0);
    let sets = play(&mut segmenter, begin(0), 4 * SEGMENT.0);
    assert!(sets.len() >= 3 && sets.len() == expected.len());
    for (set, other) in sets.iter().zip(&expected) {
        let mut rest = &*set.bodies[0];
        let size = usize::from(rest[8]) << 7 | usize::from(rest[9]);
        let (tag, behind) = rest.split_at(10 + size);
        rest = behind;
        // 90 kHz, of which 33 bits count; a segment is 5.76 s.
        let ticks = set.number * 518_400 % (1 << 33);
        assert!(tag.windows(8).any(|eight| eight == ticks.to_be_bytes()), "{}", set.number);
        let title = match set.number - 307_000_000 {
            0 => "",
            1 | 2 => "a title",
            _ => "late",
        };
        assert!(tag.ends_with(title.as_bytes()), "{}", set.number);
        assert_eq!(tag.windows(4).any(|four| four == b"TIT2"), !title.is_empty());
        for unit in frames_of(&other.bodies[0]) {
            assert_eq!(rest[..2], [0xff, 0xf1], "a header of ADTS");
            let length = usize::from(rest[3] & 3) << 11
                | usize::from(rest[4]) << 3
                | usize::from(rest[5] >> 5);
            assert_eq!(&rest[7..length], unit);
            rest = &rest[length..];
        }
        assert_eq!(rest, b"", "nothing else");
    }
    let config = WindowConfig { formats: packed, segment: SEGMENT, listed: 4, first_listed: 1 };
    let mut window = HlsWindow::new(config).unwrap();
    sets.into_iter().for_each(|set| window.push(set));
    assert!(window.body("aac", "307000001.aac").is_some());
    assert!(window.body("aac", "307000001.m4s").is_none() && window.inits().next().is_none());
    let text = String::from_utf8(window.playlist("aac").unwrap().bytes.to_vec()).unwrap();
    assert!(text.contains("\n307000001.aac\n") && text.contains("VERSION:3\n"), "{text}");
    let flac = self::formats(&["flac"])[0].clone().packed();
    assert_eq!(flac, Err(UnsupportedHls::Packed(aulos_core::Codec::Flac)));
}
