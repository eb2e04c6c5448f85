//! `aulosnormalize`.

use std::process::Command;

use gst::prelude::*;
use gst_check::Harness;

use crate::init;
use crate::signals::{
    aulos, bytes, ffmpeg_loudness, floats, folder, programme, wave_data, write_wave,
};

const STEREO: &str = "audio/x-raw,format=F32LE,rate=48000,channels=2,layout=interleaved";

fn caps(format: &str, rate: u32, channels: u32) -> String {
    let mask = match channels {
        1 => "",
        2 => ",channel-mask=(bitmask)0x3",
        6 => ",channel-mask=(bitmask)0x3f",
        8 => ",channel-mask=(bitmask)0xc3f",
        _ => ",channel-mask=(bitmask)0",
    };
    format!("audio/x-raw,format={format},rate={rate},channels={channels},layout=interleaved{mask}")
}

fn harness(description: &str, caps: &str) -> Harness {
    init();
    let element = gst::parse::launch(description).expect("one element");
    let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
    harness.set_src_caps_str(caps);
    harness
}

fn buffer(bytes: Vec<u8>, time_ms: Option<u64>) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(bytes);
    buffer.get_mut().unwrap().set_pts(time_ms.map(gst::ClockTime::from_mseconds));
    buffer
}

fn pull(harness: &mut Harness) -> Vec<gst::Buffer> {
    std::iter::from_fn(|| harness.try_pull()).collect()
}

fn content(buffers: &[gst::Buffer]) -> Vec<u8> {
    buffers.iter().flat_map(|buffer| buffer.map_readable().unwrap().to_vec()).collect()
}

/// Pushes F32 stereo in blocks of 10 ms from `start_ms` on.
fn push(harness: &mut Harness, samples: &[f32], start_ms: u64) {
    for (index, block) in samples.chunks(960).enumerate() {
        let time = start_ms + 10 * index as u64;
        harness.push(buffer(bytes(block), Some(time))).expect("a buffer is taken");
    }
}

/// The elements and `aulos normalize` are one normalizer: the same bits.
#[test]
fn output_is_that_of_aulos_normalize() {
    init();
    let Some(program) = aulos() else { return };
    let folder = folder("bit-equal");
    for (mode, lra, rate, channels) in [
        ("full", 7.0, 48_000, 2),
        ("mid", 12.0, 44_100, 1),
        ("low", 5.0, 96_000, 2),
        ("full", 4.0, 48_000, 6),
    ] {
        let name = |what: &str| folder.join(format!("{mode}-{channels}-{what}.wav"));
        let (input, expected, output) = (name("in"), name("aulos"), name("gst"));
        write_wave(&input, rate, channels, &programme(rate as usize, channels.into(), 20));
        let status = Command::new(&program)
            .args(["-q", "normalize", "--mode", mode, "--lra", &lra.to_string(), "--target", "-18"])
            .args([&input, &expected])
            .status()
            .unwrap();
        assert!(status.success());
        let description = format!(
            "filesrc location={} ! wavparse ! aulosnormalize mode={mode} lra={lra} target=-18 \
             ! wavenc ! filesink location={}",
            input.display(),
            output.display()
        );
        run(&description);
        let (ours, theirs) = (wave_data(&output), wave_data(&expected));
        assert_eq!(ours.len(), theirs.len(), "{mode} {channels}");
        assert!(ours == theirs, "{mode} {rate} {channels}: the samples differ");
    }
}

/// Runs a pipeline until it ends.
fn run(description: &str) {
    let pipeline = gst::parse::launch(description).expect("a pipeline");
    pipeline.set_state(gst::State::Playing).expect("it plays");
    let bus = pipeline.bus().unwrap();
    for message in bus.iter_timed(gst::ClockTime::from_seconds(120)) {
        match message.view() {
            gst::MessageView::Eos(_) => break,
            gst::MessageView::Error(error) => panic!("{description}: {error:?}"),
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).expect("it stops");
}

#[test]
fn ffmpeg_measures_the_target() {
    init();
    let folder = folder("judge");
    let (input, output) = (folder.join("in.wav"), folder.join("out.wav"));
    write_wave(&input, 48_000, 2, &programme(48_000, 2, 60));
    for (mode, target) in [("full", -23.0), ("mid", -16.0), ("low", -20.0)] {
        run(&format!(
            "filesrc location={} ! wavparse ! aulosnormalize mode={mode} target={target} \
             ! wavenc ! filesink location={}",
            input.display(),
            output.display()
        ));
        let Some((integrated, peak)) = ffmpeg_loudness(&output) else { return };
        assert!((integrated - target).abs() <= 0.5, "{mode}: {integrated} LUFS, not {target}");
        assert!(peak <= -1.0 + 0.1, "{mode}: {peak} dBTP");
    }
}

#[test]
fn as_long_as_the_input_and_at_its_times() {
    for (format, size) in [("F32LE", 4), ("F64LE", 8), ("S16LE", 2), ("S24LE", 3), ("S32LE", 4)] {
        for (rate, channels) in [(8_000, 1), (48_000, 2), (44_100, 6), (192_000, 8)] {
            let mut harness = harness("aulosnormalize", &caps(format, rate, channels));
            let frames = [1, rate as usize / 100, rate as usize, rate as usize * 4 / 3, 7];
            let mut total = 0;
            for frames in frames {
                let time = total as u64 * 1_000_000_000 / u64::from(rate);
                let mut buffer = buffer(vec![0; frames * channels as usize * size], None);
                buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(time));
                harness.push(buffer).unwrap();
                total += frames;
            }
            assert!(harness.push_event(gst::event::Eos::new()));
            let out = pull(&mut harness);
            let bytes: usize = out.iter().map(|buffer| buffer.size()).sum();
            assert_eq!(bytes, total * channels as usize * size, "{format} {rate} {channels}");
            let mut at = gst::ClockTime::ZERO;
            for buffer in &out {
                let pts = buffer.pts().unwrap();
                assert!(pts.nseconds().abs_diff(at.nseconds()) < 2_000, "{pts} {at}");
                at = pts + buffer.duration().unwrap();
            }
        }
    }
}

#[test]
fn latency_is_reported_for_live_and_other_sources() {
    for (mode, rate, expected_ms) in
        [("full", 48_000, 3_000), ("mid", 44_100, 400), ("low", 48_000, 5)]
    {
        let mut harness = harness(&format!("aulosnormalize mode={mode}"), &caps("F32LE", rate, 2));
        harness.push(buffer(vec![0; 8 * 480], Some(0))).unwrap();
        for (live, upstream) in [(true, 20), (false, 0)] {
            harness.set_upstream_latency(gst::ClockTime::from_mseconds(upstream));
            let latency = harness.query_latency().unwrap().mseconds();
            let expected = expected_ms + upstream;
            assert!(latency.abs_diff(expected) <= 1, "{mode} {live}: {latency} ms, not {expected}");
        }
    }
}

#[test]
fn a_pipeline_with_a_live_source_waits_for_the_look_ahead() {
    init();
    let description = "audiotestsrc is-live=true num-buffers=20 samplesperbuffer=480 \
        ! audio/x-raw,rate=48000 ! aulosnormalize mode=low ! fakesink sync=true name=sink";
    let pipeline = gst::parse::launch(description).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let bus = pipeline.bus().unwrap();
    let end = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(20), &end).expect("an end");
    assert_eq!(message.type_(), gst::MessageType::Eos);
    let mut query = gst::query::Latency::new();
    assert!(pipeline.query(&mut query));
    let (live, min, _) = query.result();
    assert!(live && min >= gst::ClockTime::from_mseconds(14), "{min}");
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn a_flush_discards_and_a_seek_starts_anew() {
    let mut harness = harness("aulosnormalize mode=mid bypass=true", STEREO);
    push(&mut harness, &vec![0.25; 2 * 48_000], 0);
    pull(&mut harness);
    harness.push_event(gst::event::FlushStart::new());
    harness.push_event(gst::event::FlushStop::new(true));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    harness.push_event(gst::event::Segment::new(&segment));
    let input = programme(48_000, 2, 1);
    push(&mut harness, &input, 70_000);
    harness.push_event(gst::event::Eos::new());
    let out = pull(&mut harness);
    assert!(floats(&content(&out)) == input);
    assert_eq!(out[0].pts(), Some(gst::ClockTime::from_seconds(70)));
}

#[test]
fn a_jump_of_the_time_ends_what_was_before_it() {
    let mut harness = harness("aulosnormalize mode=full bypass=true", STEREO);
    let input = programme(48_000, 2, 3);
    let third = input.len() / 3;
    for (part, start) in [(0, 0), (1, 500_000), (2, 1_000)] {
        push(&mut harness, &input[part * third..(part + 1) * third], start);
    }
    harness.push_event(gst::event::Eos::new());
    let out = pull(&mut harness);
    assert!(floats(&content(&out)) == input);
    let starts = [0, 500_000, 1_000].map(gst::ClockTime::from_mseconds);
    let seen: Vec<_> = out.iter().filter_map(|buffer| buffer.pts()).collect();
    assert!(starts.iter().all(|start| seen.contains(start)), "{seen:?}");
    assert_eq!(seen.iter().max().unwrap().mseconds(), 500_900);
}

#[test]
fn a_short_gap_is_silence_and_a_long_one_is_passed_on() {
    let mut harness = harness("aulosnormalize mode=low bypass=true", STEREO);
    let second = programme(48_000, 2, 1);
    push(&mut harness, &second, 0);
    let ms = gst::ClockTime::from_mseconds;
    harness.push_event(gst::event::Gap::builder(ms(1_000)).duration(ms(100)).build());
    push(&mut harness, &second, 1_100);
    harness.push_event(gst::event::Gap::builder(ms(2_100)).duration(ms(3_600_000)).build());
    let out = pull(&mut harness);
    let mut expected = second.clone();
    expected.extend(vec![0.0; 9_600]);
    expected.extend(&second);
    assert!(floats(&content(&out)) == expected);
    let mut events = std::iter::from_fn(|| harness.try_pull_event());
    assert!(events.any(|event| event.type_() == gst::EventType::Gap));
}

#[test]
fn the_format_may_change_in_mid_stream() {
    let mut harness = harness("aulosnormalize mode=mid bypass=true", STEREO);
    let mut expected = Vec::new();
    let mut frames = 0;
    let formats =
        [("F32LE", 48_000, 2), ("S16LE", 48_000, 2), ("F64LE", 44_100, 1), ("S24LE", 96_000, 6)];
    for (index, (format, rate, channels)) in formats.into_iter().enumerate() {
        if index > 0 {
            harness.set_src_caps_str(&caps(format, rate, channels));
        }
        let bytes = channels as usize
            * match format {
                "F64LE" => 8,
                "S24LE" => 3,
                "S16LE" => 2,
                _ => 4,
            };
        for block in 0..100 {
            let time = index as u64 * 1_000 + block * 10;
            let size = rate as usize / 100 * bytes;
            harness.push(buffer(vec![0; size], Some(time))).unwrap();
            expected.push(size);
            frames += rate / 100;
        }
    }
    harness.push_event(gst::event::Eos::new());
    let out = pull(&mut harness);
    assert_eq!(content(&out).len(), expected.iter().sum::<usize>(), "{frames} frames");
    let last = out.last().unwrap();
    assert_eq!((last.pts().unwrap() + last.duration().unwrap()).mseconds(), 4_000);
    let caps: Vec<_> = std::iter::from_fn(|| harness.try_pull_event())
        .filter(|event| event.type_() == gst::EventType::Caps)
        .collect();
    assert_eq!(caps.len(), 4);
}

#[test]
fn integers_are_dithered_as_by_the_encoders() {
    let mut harness = harness("aulosnormalize mode=low target=-5", &caps("S16LE", 48_000, 1));
    let input = programme(48_000, 1, 20);
    let integers: Vec<u8> =
        input.iter().flat_map(|sample| ((sample * 3_000.0) as i16).to_le_bytes()).collect();
    for (index, block) in integers.chunks(960).enumerate() {
        harness.push(buffer(block.to_vec(), Some(10 * index as u64))).unwrap();
    }
    harness.push_event(gst::event::Eos::new());
    let ours = pull(&mut harness);
    let expected = reference(&integers, ours.iter().map(|buffer| buffer.size() / 2));
    assert!(content(&ours) == expected, "the same normalizer and dither give the same bytes");
    assert_ne!(expected, integers);
}

/// What `dsp` makes of mono integers of 16 bits with the element's settings, dithered in blocks of
/// these sizes: blocks that need no rounding get no dither.
fn reference(integers: &[u8], sizes: impl Iterator<Item = usize>) -> Vec<u8> {
    use aulos_core::{ChannelLayout, Db, Lufs, SampleFormat, SampleRate};
    use aulos_dsp::normalize::{LookAhead, Normalizer, Settings};
    let settings = Settings {
        target: Lufs::new(-5.0),
        min_gain: Db::new(-60.0),
        max_gain: Db::new(60.0),
        ..Settings::default()
    };
    let mono = ChannelLayout::MONO;
    let mut normalizer =
        Normalizer::new(LookAhead::Low, settings, SampleRate::HZ_48000, mono).unwrap();
    let latency = normalizer.latency().as_usize();
    let mut samples = vec![0.0; integers.len() / 2 + latency];
    aulos_dsp::convert::decode(SampleFormat::S16Le, integers, &mut samples);
    normalizer.process(&mut samples);
    let (mut dither, mut rest) = (aulos_dsp::Dither::default(), &samples[latency..]);
    let mut out = Vec::new();
    for size in sizes {
        let (block, behind) = rest.split_at(size);
        let at = out.len();
        out.resize(at + 2 * size, 0);
        dither.encode(SampleFormat::S16Le, block, &mut out[at..]);
        rest = behind;
    }
    out
}

#[test]
fn hostile_buffers_are_played_or_refused_by_name() {
    let mut harness = harness("aulosnormalize", STEREO);
    let nan = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE / 8.0, f32::MAX];
    let hostile: Vec<f32> = nan.into_iter().cycle().take(2 * 48_000).collect();
    harness.push(buffer(Vec::new(), Some(0))).unwrap();
    harness.push(buffer(bytes(&hostile), Some(0))).unwrap();
    harness.push(buffer(bytes(&programme(48_000, 2, 10)), Some(1_000))).unwrap();
    harness.push(buffer(bytes(&programme(48_000, 2, 1)), None)).unwrap();
    let mut late = buffer(bytes(&programme(48_000, 2, 1)), None);
    late.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(u64::MAX - 1));
    harness.push(late).unwrap();
    harness.push_event(gst::event::Eos::new());
    let out = floats(&content(&pull(&mut harness)));
    assert_eq!(out.len(), 2 * 48_000 * 13);
    assert!(out.iter().all(|sample| sample.abs() <= 0.9));

    let mut harness = self::harness("aulosnormalize", STEREO);
    let bus = gst::Bus::new();
    harness.element().unwrap().set_bus(Some(&bus));
    assert_eq!(harness.push(buffer(vec![0; 9], Some(0))), Err(gst::FlowError::Error));
    let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error by name");
    let gst::MessageView::Error(error) = message.view() else { unreachable!() };
    assert!(error.error().matches(gst::StreamError::Format), "{error:?}");
}

#[test]
fn properties_out_of_range_are_refused() {
    init();
    let element = gst::ElementFactory::make("aulosnormalize").build().unwrap();
    for (name, value) in [("target", -3.0), ("true-peak", 1.0), ("lra", 0.5)] {
        let range = element.find_property(name).unwrap();
        let range = range.downcast::<gst::glib::ParamSpecDouble>().unwrap();
        assert!(!(range.minimum()..=range.maximum()).contains(&value), "{name}");
        let spec = element.find_property(name).unwrap();
        assert!(spec.flags().contains(gst::PARAM_FLAG_CONTROLLABLE), "{name}");
    }
    element.set_property("target", -16.0);
    assert_eq!(element.property::<f64>("target"), -16.0);
    element.set_property_from_str("mode", "low");
}

#[test]
fn settings_change_while_it_plays() {
    let mut harness = harness("aulosnormalize mode=mid target=-30", STEREO);
    let input = programme(48_000, 2, 30);
    push(&mut harness, &input, 0);
    harness.element().unwrap().set_property("target", -16.0);
    push(&mut harness, &input, 30_000);
    harness.push_event(gst::event::Eos::new());
    let out = floats(&content(&pull(&mut harness)));
    let power = |samples: &[f32]| samples.iter().map(|x| f64::from(x * x)).sum::<f64>();
    let (early, late) = (&out[20 * 96_000..29 * 96_000], &out[50 * 96_000..59 * 96_000]);
    let change = 10.0 * (power(late) / power(early)).log10();
    assert!((change - 14.0).abs() < 1.5, "{change} dB");
}

#[test]
fn any_thread_may_change_settings_while_another_one_pushes() {
    let mut harness = harness("aulosnormalize mode=low", STEREO);
    let element = harness.element().unwrap();
    let changes = std::thread::spawn(move || {
        for round in 0..2_000 {
            element.set_property("bypass", round % 2 == 0);
            element.set_property("target", -30.0 + f64::from(round % 10));
            element.set_property("true-peak", -1.0 - f64::from(round % 5));
        }
    });
    let input = programme(48_000, 2, 20);
    push(&mut harness, &input, 0);
    changes.join().unwrap();
    harness.push_event(gst::event::Eos::new());
    assert_eq!(floats(&content(&pull(&mut harness))).len(), input.len());
}

#[test]
fn gains_of_tags_no_longer_apply() {
    let mut harness = harness("aulosnormalize", STEREO);
    let mut tags = gst::TagList::new();
    let list = tags.make_mut();
    list.add::<gst::tags::Title>(&"title", gst::TagMergeMode::Append);
    list.add::<gst::tags::TrackGain>(&-7.0, gst::TagMergeMode::Append);
    harness.push_event(gst::event::Tag::new(tags));
    let event = std::iter::from_fn(|| harness.try_pull_event())
        .find(|event| event.type_() == gst::EventType::Tag)
        .expect("tags are passed on");
    let gst::EventView::Tag(tag) = event.view() else { unreachable!() };
    assert!(tag.tag().get::<gst::tags::Title>().is_some());
    assert!(tag.tag().get::<gst::tags::TrackGain>().is_none());
}

#[test]
fn playbin_takes_it_as_its_filter() {
    init();
    let folder = folder("playbin");
    let input = folder.join("in.wav");
    write_wave(&input, 44_100, 2, &programme(44_100, 2, 5));
    let filter = gst::ElementFactory::make("aulosnormalize").build().unwrap();
    let sink = gst::ElementFactory::make("fakesink").property("sync", false).build().unwrap();
    let playbin = gst::ElementFactory::make("playbin")
        .property("uri", format!("file://{}", input.display()))
        .property("audio-filter", &filter)
        .property("audio-sink", &sink)
        .build()
        .unwrap();
    playbin.set_state(gst::State::Playing).unwrap();
    let end = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = playbin.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &end);
    assert_eq!(message.expect("an end").type_(), gst::MessageType::Eos);
    assert!(filter.static_pad("src").unwrap().current_caps().is_some(), "it was in use");
    playbin.set_state(gst::State::Null).unwrap();
}

/// The call comes from within the element: it would wait for ever for a lock that it holds.
#[test]
fn a_handler_of_an_error_may_ask_for_the_latency() {
    let mut harness = harness("aulosnormalize", STEREO);
    let element = harness.element().unwrap();
    let (bus, pad) = (gst::Bus::new(), element.static_pad("src").unwrap());
    element.set_bus(Some(&bus));
    let (sender, answers) = std::sync::mpsc::channel();
    bus.set_sync_handler(move |_, message| {
        if message.type_() == gst::MessageType::Error {
            sender.send(pad.query(&mut gst::query::Latency::new())).unwrap();
        }
        gst::BusSyncReply::Drop
    });
    assert_eq!(harness.push(buffer(vec![0; 9], None)), Err(gst::FlowError::Error));
    assert!(answers.try_recv().expect("an error is posted"));
}

#[test]
fn nothing_is_held_back_at_the_end_of_a_segment() {
    let mut harness = harness("aulosnormalize bypass=true", STEREO);
    let input = programme(48_000, 2, 1);
    push(&mut harness, &input, 0);
    harness.push_event(gst::event::SegmentDone::new(gst::ClockTime::from_seconds(1)));
    assert!(floats(&content(&pull(&mut harness))) == input);
}

#[test]
fn audio_that_is_missing_is_silence() {
    let mut harness = harness("aulosnormalize bypass=true", STEREO);
    let input = programme(48_000, 2, 1);
    for part in 0..4 {
        // 250 ms of each 300 ms.
        push(&mut harness, &input[part * 24_000..(part + 1) * 24_000], 300 * part as u64);
    }
    let before = pull(&mut harness).len();
    assert_eq!(before, 0, "what was before a gap is not ended by it");
    harness.push_event(gst::event::Eos::new());
    let out = pull(&mut harness);
    let expected: Vec<_> = input.chunks(24_000).collect();
    assert!(floats(&content(&out)) == expected.join(&[0.0; 4_800][..]));
}
