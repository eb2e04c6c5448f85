//! `aulosmeter`.

use gst::prelude::*;
use gst_check::Harness;

use crate::init;
use crate::signals::{bytes, ffmpeg_loudness, folder, programme, write_wave};

const STEREO: &str = "audio/x-raw,format=F32LE,rate=48000,channels=2,layout=interleaved";

fn harness(description: &str) -> (Harness, gst::Bus) {
    init();
    let element = gst::parse::launch(description).unwrap();
    let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
    harness.set_src_caps_str(STEREO);
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    (harness, bus)
}

fn push(harness: &mut Harness, samples: &[f32], frames: usize) {
    for (index, block) in samples.chunks(2 * frames).enumerate() {
        let mut buffer = gst::Buffer::from_mut_slice(bytes(block));
        let time = index as u64 * frames as u64 * 1_000_000_000 / 48_000;
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(time));
        harness.push(buffer).unwrap();
    }
}

fn readings(bus: &gst::Bus) -> Vec<gst::Structure> {
    std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Element]))
        .filter_map(|message| message.structure().map(ToOwned::to_owned))
        .filter(|structure| structure.name() == "aulosmeter")
        .collect()
}

fn peak(reading: &gst::Structure) -> f64 {
    let peaks = reading.get::<gst::Array>("true-peak").unwrap();
    peaks.iter().map(|value| value.get::<f64>().unwrap()).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn ffmpeg_measures_the_same() {
    let input = programme(48_000, 2, 30);
    let path = folder("meter").join("in.wav");
    write_wave(&path, 48_000, 2, &input);
    let (mut harness, bus) = harness("aulosmeter");
    push(&mut harness, &input, 1_000);
    harness.push_event(gst::event::Eos::new());
    let readings = readings(&bus);
    assert_eq!(readings.len(), 300);
    let last = readings.last().unwrap();
    let Some((integrated, true_peak)) = ffmpeg_loudness(&path) else { return };
    let ours = last.get::<f64>("global-loudness").unwrap();
    assert!((ours - integrated).abs() <= 0.11, "{ours} {integrated}");
    assert!((peak(last) - true_peak).abs() <= 0.2, "{} {true_peak}", peak(last));
}

#[test]
fn samples_pass_unchanged_and_messages_have_times() {
    let input = programme(48_000, 2, 2);
    let (mut harness, bus) = harness("aulosmeter interval=250000000");
    push(&mut harness, &input, 48_000);
    let out: Vec<u8> = std::iter::from_fn(|| harness.try_pull())
        .flat_map(|buffer| buffer.map_readable().unwrap().to_vec())
        .collect();
    assert!(out == bytes(&input));
    let readings = readings(&bus);
    let times: Vec<_> = readings
        .iter()
        .map(|reading| reading.get::<gst::ClockTime>("running-time").unwrap().mseconds())
        .collect();
    assert_eq!(times, [0, 250, 500, 750, 1_000, 1_250, 1_500, 1_750]);
    for name in ["timestamp", "endtime", "stream-time", "duration"] {
        assert!(readings[0].get::<gst::ClockTime>(name).is_ok(), "{name}");
    }
    for name in ["momentary-loudness", "shortterm-loudness", "loudness-range"] {
        assert!(readings[7].get::<f64>(name).unwrap().is_finite(), "{name}");
    }
}

#[test]
fn reset_and_a_flush_start_again() {
    for by_signal in [true, false] {
        let (mut harness, bus) = harness("aulosmeter");
        push(&mut harness, &vec![0.5; 96_000], 480);
        if by_signal {
            harness.element().unwrap().emit_by_name::<()>("reset", &[]);
        } else {
            harness.push_event(gst::event::FlushStart::new());
            harness.push_event(gst::event::FlushStop::new(true));
            let segment = gst::FormattedSegment::<gst::ClockTime>::new();
            harness.push_event(gst::event::Segment::new(&segment));
        }
        assert!(peak(readings(&bus).last().unwrap()) > -7.0);
        push(&mut harness, &vec![0.0; 96_000], 480);
        assert!(peak(readings(&bus).last().unwrap()) < -100.0);
    }
}

#[test]
fn no_messages_where_none_are_wanted() {
    let (mut harness, bus) = harness("aulosmeter post-messages=false");
    push(&mut harness, &programme(48_000, 2, 2), 480);
    // A part of an interval.
    push(&mut harness, &[0.5; 960], 480);
    harness.push_event(gst::event::Eos::new());
    assert!(readings(&bus).is_empty());
}

#[test]
fn the_programme_continues_in_another_format() {
    let (mut harness, bus) = harness("aulosmeter");
    let loud = vec![0.5; 2 * 96_000];
    push(&mut harness, &loud, 480);
    harness.set_src_caps_str("audio/x-raw,format=S16LE,rate=44100,channels=2,layout=interleaved");
    harness.push(gst::Buffer::from_mut_slice(vec![0u8; 44_100 * 4])).unwrap();
    harness.push(gst::Buffer::new()).unwrap();
    let last = readings(&bus).pop().unwrap();
    assert!(peak(&last) > -7.0, "{last}");
}

/// The call comes from within the element: it would wait for ever for a lock that it holds.
#[test]
fn a_handler_of_an_error_may_reset_the_meter() {
    let (mut harness, bus) = harness("aulosmeter");
    push(&mut harness, &vec![0.5; 960], 480);
    let element = harness.element().unwrap();
    let (sender, resets) = std::sync::mpsc::channel();
    bus.set_sync_handler(move |_, message| {
        if message.type_() == gst::MessageType::Error {
            element.emit_by_name::<()>("reset", &[]);
            sender.send(()).unwrap();
        }
        gst::BusSyncReply::Drop
    });
    assert_eq!(harness.push(gst::Buffer::from_slice([0u8; 9])), Err(gst::FlowError::Error));
    resets.try_recv().expect("an error is posted");
}
