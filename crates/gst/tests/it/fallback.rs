//! `aulosfallback`, in real time: sources die, are late and come back. A latency of a second
//! keeps a busy machine from being taken for a dead source.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;
use gst_base::prelude::*;
use gst_check::Harness;

use crate::init;
use crate::signals::floats;

/// A pipeline that ends in `aulosfallback` and keeps what comes out.
struct Scenario {
    pipeline: gst::Pipeline,
    samples: Arc<Mutex<Vec<f32>>>,
    /// Where buffers did not follow each other.
    breaks: Arc<Mutex<Vec<gst::ClockTime>>>,
}

impl Scenario {
    /// `inputs` are sources, each up to the switch; `properties` those of the switch.
    fn new(properties: &str, inputs: &[&str]) -> Self {
        init();
        let mut description = format!(
            "aulosfallback name=switch latency=1000000000 {properties} \
             ! audio/x-raw,format=F32LE,rate=48000,channels=1 ! fakesink name=out sync=false \
             signal-handoffs=true"
        );
        for (index, input) in inputs.iter().enumerate() {
            description += &format!(" {input} ! valve name=valve{index} ! switch.sink_{index}");
        }
        let pipeline = gst::parse::launch(&description).unwrap();
        let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
        for index in 0..inputs.len() {
            let switch = pipeline.by_name("switch").unwrap();
            let pad = switch.static_pad(&format!("sink_{index}")).unwrap();
            pad.set_property("priority", index as u32);
        }
        let samples = Arc::new(Mutex::new(Vec::new()));
        let breaks = Arc::new(Mutex::new(Vec::new()));
        let (into, gaps, next) = (samples.clone(), breaks.clone(), Mutex::new(None));
        pipeline.by_name("out").unwrap().connect("handoff", false, move |values| {
            let buffer = values[1].get::<gst::Buffer>().unwrap();
            into.lock().unwrap().extend(floats(&buffer.map_readable().unwrap()));
            let pts = buffer.pts().unwrap();
            let end = pts + buffer.duration().unwrap();
            if let Some(expected) = next.lock().unwrap().replace(end)
                && expected != pts
            {
                gaps.lock().unwrap().push(pts);
            }
            None
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        Self { pipeline, samples, breaks }
    }

    fn switch(&self) -> gst::Element {
        self.pipeline.by_name("switch").unwrap()
    }

    /// Lets a source through, or nothing of it.
    fn set_sending(&self, index: usize, sends: bool) {
        self.pipeline.by_name(&format!("valve{index}")).unwrap().set_property("drop", !sends);
    }

    /// Waits for the change to this input; gives its cause.
    fn wait_for(&self, input: Option<&str>) -> String {
        let kinds = [gst::MessageType::Element, gst::MessageType::Error];
        let bus = self.pipeline.bus().unwrap();
        while let Some(message) = bus.timed_pop_filtered(gst::ClockTime::from_seconds(20), &kinds) {
            let structure = message.structure().expect("no error").to_owned();
            assert_eq!(message.type_(), gst::MessageType::Element, "{structure}");
            let to = structure.get::<Option<String>>("to").unwrap();
            if structure.name() == "aulosfallback" && to.as_deref() == input {
                return structure.get("cause").unwrap();
            }
        }
        panic!("no change to {input:?}");
    }

    /// Waits until 300 ms more have come out, and sound.
    fn play_on(&self) {
        let start = self.samples.lock().unwrap().len();
        for _ in 0..2_000 {
            let samples = self.samples.lock().unwrap();
            let sounds = samples.iter().skip(start).any(|sample| sample.abs() > 0.01);
            if sounds && samples.len() >= start + 14_400 {
                return;
            }
            drop(samples);
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nothing comes out");
    }

    /// Stops; the longest silence after the first sound, in frames.
    fn finish(self) -> usize {
        self.pipeline.set_state(gst::State::Null).unwrap();
        let breaks = self.breaks.lock().unwrap();
        assert!(breaks.is_empty(), "the timeline breaks at {breaks:?}");
        let samples = self.samples.lock().unwrap();
        let start = samples.iter().position(|sample| sample.abs() > 0.01).unwrap();
        let runs = samples[start..].split(|sample| sample.abs() > 0.002).map(<[f32]>::len);
        runs.max().unwrap()
    }
}

/// Also after a failure: elements must not be freed while they play.
impl Drop for Scenario {
    fn drop(&mut self) {
        let _stopped = self.pipeline.set_state(gst::State::Null);
    }
}

const MAIN: &str = "audiotestsrc is-live=true freq=1000 volume=0.3 ! audio/x-raw,rate=48000";
const OTHER: &str = "audiotestsrc is-live=true freq=1500 volume=0.3 ! audio/x-raw,rate=44100";
const FAST: &str = "failback-delay=500000000 timeout=1000000000";

#[test]
fn the_main_input_dies_and_comes_back_without_a_hole() {
    let scenario = Scenario::new(FAST, &[MAIN, OTHER]);
    assert_eq!(scenario.wait_for(Some("sink_0")), "first");
    scenario.play_on();
    scenario.set_sending(0, false);
    assert_eq!(scenario.wait_for(Some("sink_1")), "late");
    let pad = scenario.switch().static_pad("sink_0").unwrap();
    assert!(!pad.property::<bool>("is-healthy"));
    scenario.set_sending(0, true);
    assert_eq!(scenario.wait_for(Some("sink_0")), "better");
    let active = scenario.switch().property::<Option<gst::Pad>>("active-pad");
    assert_eq!(active.unwrap().name(), "sink_0");
    assert!(pad.property::<bool>("is-healthy"));
    scenario.play_on();
    let hole = scenario.finish();
    assert!(hole < 48, "{hole} frames of silence");
}

#[test]
fn a_main_input_that_is_late_at_the_start_is_awaited_and_then_replaced() {
    let scenario = Scenario::new(FAST, &[MAIN, OTHER]);
    scenario.set_sending(0, false);
    scenario.wait_for(Some("sink_1"));
    scenario.set_sending(0, true);
    scenario.wait_for(Some("sink_0"));
    scenario.play_on();
    let hole = scenario.finish();
    assert!(hole < 48, "{hole} frames of silence");
}

#[test]
fn with_both_dead_the_timeline_goes_on() {
    let scenario = Scenario::new(FAST, &[MAIN, OTHER]);
    scenario.wait_for(Some("sink_0"));
    scenario.set_sending(0, false);
    scenario.set_sending(1, false);
    scenario.wait_for(None);
    std::thread::sleep(Duration::from_millis(300));
    scenario.set_sending(1, true);
    scenario.wait_for(Some("sink_1"));
    scenario.play_on();
    scenario.finish();
}

#[test]
fn a_silent_main_input_is_left() {
    let properties = format!("{FAST} silence-timeout=500000000");
    let scenario = Scenario::new(&properties, &[&format!("{MAIN} ! volume name=gain"), OTHER]);
    scenario.wait_for(Some("sink_0"));
    scenario.pipeline.by_name("gain").unwrap().set_property("volume", 0.0);
    assert_eq!(scenario.wait_for(Some("sink_1")), "silent");
    scenario.finish();
}

#[test]
fn the_application_chooses() {
    let scenario = Scenario::new("auto-switch=false", &[MAIN, OTHER]);
    let pad = |name: &str| scenario.switch().static_pad(name).unwrap();
    scenario.switch().set_property("active-pad", pad("sink_1"));
    assert_eq!(scenario.wait_for(Some("sink_1")), "manual");
    scenario.switch().set_property("active-pad", pad("sink_0"));
    assert_eq!(scenario.wait_for(Some("sink_0")), "manual");
    scenario.play_on();
    scenario.finish();
}

#[test]
fn pads_come_and_go_while_it_plays() {
    let scenario = Scenario::new(FAST, &[MAIN]);
    scenario.wait_for(Some("sink_0"));
    let source =
        gst::ElementFactory::make("audiotestsrc").property("is-live", true).build().unwrap();
    // The pipeline must not start it before it is linked.
    source.set_locked_state(true);
    scenario.pipeline.add(&source).unwrap();
    let switch = scenario.switch();
    let pad = switch.request_pad_simple("sink_%u").unwrap();
    pad.set_property("priority", 0u32);
    switch.static_pad("sink_0").unwrap().set_property("priority", 7u32);
    source.static_pad("src").unwrap().link(&pad).unwrap();
    source.set_locked_state(false);
    source.sync_state_with_parent().unwrap();
    scenario.wait_for(Some(&pad.name()));
    source.set_state(gst::State::Null).unwrap();
    scenario.pipeline.remove(&source).unwrap();
    switch.release_request_pad(&pad);
    scenario.wait_for(Some("sink_0"));
    let hole = scenario.finish();
    assert!(hole < 600, "{hole} frames of silence");
}

/// Files are played as fast as they can be read, and in full.
#[test]
fn files_follow_each_other_and_the_end_comes_at_last() {
    init();
    let description = "aulosfallback name=switch force-live=false \
        ! audio/x-raw,format=S16LE,rate=48000 ! fakesink name=out sync=false signal-handoffs=true \
        audiotestsrc num-buffers=50 samplesperbuffer=480 ! audio/x-raw,rate=48000 ! switch. \
        audiotestsrc num-buffers=200 samplesperbuffer=480 ! audio/x-raw,rate=48000 ! switch.";
    for (stop, expected_ms) in [(false, 2_000), (true, 500)] {
        let pipeline = gst::parse::launch(description).unwrap();
        let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
        pipeline.by_name("switch").unwrap().set_property("stop-on-eos", stop);
        let end = Arc::new(Mutex::new(gst::ClockTime::ZERO));
        let last = end.clone();
        pipeline.by_name("out").unwrap().connect("handoff", false, move |values| {
            let buffer = values[1].get::<gst::Buffer>().unwrap();
            *last.lock().unwrap() = buffer.pts().unwrap() + buffer.duration().unwrap();
            None
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let message =
            pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(20), &kinds);
        assert_eq!(message.expect("an end").type_(), gst::MessageType::Eos);
        let end = end.lock().unwrap().mseconds();
        assert!(end.abs_diff(expected_ms) <= 20, "{end} ms, not {expected_ms}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn a_seek_flushes_all_inputs_and_starts_anew() {
    init();
    let description = "aulosfallback name=switch force-live=false \
        ! audio/x-raw,format=F32LE,channels=1,rate=48000 ! fakesink name=out sync=false \
        signal-handoffs=true \
        audiotestsrc num-buffers=2000 samplesperbuffer=480 ! audio/x-raw,rate=48000 ! switch. \
        audiotestsrc num-buffers=2000 samplesperbuffer=441 ! audio/x-raw,rate=44100 ! switch.";
    let pipeline = gst::parse::launch(description).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let seen: Arc<Mutex<Vec<(gst::ClockTime, bool)>>> = Arc::default();
    let into = seen.clone();
    pipeline.by_name("out").unwrap().connect("handoff", false, move |values| {
        let buffer = values[1].get::<gst::Buffer>().unwrap();
        let sounds = floats(&buffer.map_readable().unwrap()).iter().any(|x| x.abs() > 0.01);
        into.lock().unwrap().push((buffer.pts().unwrap(), sounds));
        None
    });
    pipeline.set_state(gst::State::Paused).unwrap();
    let (result, ..) = pipeline.state(gst::ClockTime::from_seconds(20));
    result.expect("it prerolls");
    pipeline.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::from_seconds(15)).unwrap();
    let (result, ..) = pipeline.state(gst::ClockTime::from_seconds(20));
    result.expect("it prerolls again");
    seen.lock().unwrap().clear();
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message =
        pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(20), &kinds);
    assert_eq!(message.expect("an end").type_(), gst::MessageType::Eos);
    pipeline.set_state(gst::State::Null).unwrap();
    let seen = seen.lock().unwrap();
    let (first, last) = (seen[0], seen[seen.len() - 1]);
    assert!((15_000..15_050).contains(&first.0.mseconds()) && first.1, "{first:?}");
    // The sources count their buffers anew.
    assert!((34_900..35_050).contains(&last.0.mseconds()), "{last:?}");
    let silent: Vec<_> = seen.iter().filter(|(_, sounds)| !sounds).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

/// A switch that waits for its inputs, which a test feeds.
struct FedSwitch {
    element: gst::Element,
    inputs: Vec<Harness>,
    output: Harness,
}

impl FedSwitch {
    /// One input for each of the caps.
    fn new(properties: &str, caps: &[&str]) -> Self {
        init();
        let description = format!("aulosfallback force-live=false {properties}");
        let element = gst::parse::launch(&description).unwrap();
        let output = Harness::with_element(&element, None, Some("src"));
        let mut inputs: Vec<_> = (0..caps.len())
            .map(|n| Harness::with_element(&element, Some(&format!("sink_{n}")), None))
            .collect();
        inputs.iter_mut().zip(caps).for_each(|(input, caps)| input.set_src_caps_str(caps));
        Self { element, inputs, output }
    }

    fn push(&mut self, input: usize, bytes: Vec<u8>, time_ms: u64) {
        let mut buffer = gst::Buffer::from_mut_slice(bytes);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(time_ms));
        self.inputs[input].push(buffer).unwrap();
    }

    fn end(&mut self) {
        self.inputs.iter_mut().for_each(|input| {
            input.push_event(gst::event::Eos::new());
        });
    }

    /// Everything until the end.
    fn finish(mut self) -> Vec<gst::Buffer> {
        self.end();
        while self.output.pull_event().expect("an end").type_() != gst::EventType::Eos {}
        std::iter::from_fn(|| self.output.try_pull()).collect()
    }
}

const MONO: &str = "audio/x-raw,format=F32LE,rate=48000,channels=1,layout=interleaved";

/// As long as this, every sample is 0.25.
fn steady_f32(ms: usize) -> Vec<u8> {
    0.25f32.to_le_bytes().repeat(48 * ms)
}

/// The call comes from within the element: it would wait for ever for a lock that it holds.
#[test]
fn a_handler_of_an_error_may_read_the_active_pad() {
    let mut switch = FedSwitch::new("", &[MONO]);
    let (bus, element) = (gst::Bus::new(), switch.element.clone());
    switch.element.set_bus(Some(&bus));
    let (sender, answers) = std::sync::mpsc::channel();
    bus.set_sync_handler(move |_, message| {
        if message.type_() == gst::MessageType::Error {
            sender.send(element.property::<Option<gst::Pad>>("active-pad")).unwrap();
        }
        gst::BusSyncReply::Drop
    });
    switch.push(0, vec![0; 9], 0);
    answers.recv_timeout(Duration::from_secs(20)).expect("an error is posted");
}

#[test]
fn each_buffer_has_the_caps_that_came_before_it() {
    const S16: &str =
        "audio/x-raw,format=S16LE,rate=48000,channels=2,layout=interleaved,channel-mask=(bitmask)3";
    let mut switch = FedSwitch::new("", &[S16, MONO]);
    switch.output.set_sink_caps_str(MONO);
    switch.push(0, 8_192i16.to_le_bytes().repeat(2 * 4_800), 0);
    // The switch takes nothing before each input has something.
    switch.inputs[0].set_src_caps_str(MONO);
    switch.push(1, steady_f32(100), 0);
    let out: Vec<_> =
        switch.finish().iter().flat_map(|buffer| floats(&buffer.map_readable().unwrap())).collect();
    assert!(out.len() >= 4_800, "{}", out.len());
    assert!(out[480..4_320].iter().all(|sample| (sample - 0.25).abs() < 0.001));
}

#[test]
fn inputs_that_end_before_any_caps_end_the_stream() {
    for properties in ["", "stop-on-eos=true", "force-live=true"] {
        let mut switch = FedSwitch::new(properties, &[]);
        let element = switch.element.clone();
        let input = |n| Harness::with_element(&element, Some(&format!("sink_{n}")), None);
        switch.inputs.extend([0, 1].map(input));
        let bus = gst::Bus::new();
        switch.element.set_bus(Some(&bus));
        for input in &mut switch.inputs {
            input.push_event(gst::event::StreamStart::new("without caps"));
        }
        assert!(switch.finish().is_empty(), "{properties}");
        assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none(), "{properties}");
    }
}

#[test]
fn a_choice_is_kept_until_something_can_be_played() {
    let mut switch = FedSwitch::new("", &[MONO, MONO]);
    let (bus, pad) = (gst::Bus::new(), switch.element.static_pad("sink_1").unwrap());
    switch.element.set_bus(Some(&bus));
    pad.set_property("priority", 1u32);
    switch.element.set_property("active-pad", &pad);
    // The first of these are not enough to play.
    for (time, length) in [(0, 5), (5, 100)] {
        (0..2).for_each(|input| switch.push(input, steady_f32(length), time));
        let pad = pad.downcast_ref::<gst_base::AggregatorPad>().unwrap();
        while time == 0 && pad.has_buffer() {
            std::thread::yield_now();
        }
    }
    switch.finish();
    let message = bus.pop_filtered(&[gst::MessageType::Element]).unwrap();
    assert_eq!(message.structure().unwrap().get::<&str>("to"), Ok("sink_1"));
}

#[test]
fn a_flush_may_go_back_in_time() {
    let mut switch = FedSwitch::new("", &[MONO]);
    switch.push(0, steady_f32(100), 10_000);
    assert_eq!(switch.output.pull().unwrap().pts(), Some(gst::ClockTime::from_seconds(10)));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    for event in [
        gst::event::FlushStart::new(),
        gst::event::FlushStop::new(true),
        gst::event::Segment::new(&segment),
    ] {
        assert!(switch.inputs[0].push_event(event));
    }
    switch.push(0, steady_f32(100), 5_000);
    let out = switch.finish();
    let first = out.iter().filter_map(|buffer| buffer.pts()).min();
    assert_eq!(first, Some(gst::ClockTime::from_seconds(5)));
}

#[test]
fn the_format_stays_while_downstream_takes_it() {
    const OTHER_RATE: &str = "audio/x-raw,format=F32LE,rate=44100,channels=1,layout=interleaved";
    let mut switch = FedSwitch::new("", &[MONO, OTHER_RATE]);
    switch.push(0, steady_f32(100), 0);
    switch.push(1, steady_f32(100), 0);
    switch.output.pull().unwrap();
    switch.element.static_pad("sink_0").unwrap().set_property("priority", 2u32);
    switch.output.push_upstream_event(gst::event::Reconfigure::new());
    switch.push(0, steady_f32(100), 100);
    switch.push(1, steady_f32(100), 100);
    switch.end();
    let events = std::iter::from_fn(|| switch.output.pull_event().ok());
    let types = events.map(|event| event.type_());
    let types: Vec<_> = types.take_while(|event| *event != gst::EventType::Eos).collect();
    assert_eq!(types.iter().filter(|event| **event == gst::EventType::Caps).count(), 1);
}

#[test]
fn channels_that_cannot_be_remixed_are_refused_by_name() {
    const THREE: &str = "audio/x-raw,format=F32LE,rate=48000,channels=3,layout=interleaved,\
        channel-mask=(bitmask)0x7";
    let mut switch = FedSwitch::new("", &[MONO, THREE]);
    let bus = gst::Bus::new();
    switch.element.set_bus(Some(&bus));
    switch.output.set_sink_caps_str(MONO);
    switch.push(0, steady_f32(100), 0);
    switch.push(1, vec![0; 12 * 480], 0);
    let wait = gst::ClockTime::from_seconds(20);
    let message = bus.timed_pop_filtered(wait, &[gst::MessageType::Error]).unwrap();
    let gst::MessageView::Error(error) = message.view() else { unreachable!() };
    assert!(error.error().matches(gst::CoreError::Negotiation), "{error:?}");
    assert!(error.debug().unwrap().contains("sink_1 has 3 channels"), "{error:?}");
}
