//! GStreamer's own source, with a thread for each stream, and its thread-sharing one from the
//! published crate, with its best setting.

use gstreamer as gst;
use gstreamer::prelude::*;

/// Why a receiver cannot run.
pub(crate) fn missing(role: &str) -> Option<String> {
    let element = match role {
        "udpsrc" => "udpsrc",
        "ts-udpsrc" | "ts-job" => "ts-udpsrc",
        "gst-job" => "rtpjitterbuffer",
        _ => return None,
    };
    if let Err(error) = start() {
        return Some(error);
    }
    let found = gst::ElementFactory::find(element).is_some();
    (!found).then(|| format!("GStreamer has no {element} here"))
}

fn start() -> Result<(), String> {
    gst::init().map_err(|e| e.to_string())?;
    gstthreadshare::plugin_register_static().map_err(|e| e.to_string())
}

pub(crate) fn receive(
    role: &str,
    streams: usize,
    first: u16,
    sink: u16,
    until_stop: impl FnOnce(),
) {
    start().expect("GStreamer starts");
    if role == "gst-job" || role == "ts-job" {
        return relay(role, streams, first, sink, until_stop);
    }
    let pipeline = gst::Pipeline::new();
    let sinks: Vec<gst::Element> = (0..streams)
        .map(|stream| {
            let port = i32::from(first) + i32::try_from(stream).expect("a port");
            let source = gst::ElementFactory::make(role)
                .property("address", "127.0.0.1")
                .property("port", port);
            let source = if role == "ts-udpsrc" {
                source.property("context", "bench").property("context-wait", 20u32)
            } else {
                source
            };
            let source = source.build().expect("a source");
            let sink = gst::ElementFactory::make("fakesink")
                .property("sync", false)
                .property("async", false)
                .build()
                .expect("a sink");
            pipeline.add_many([&source, &sink]).expect("new elements");
            source.link(&sink).expect("they fit");
            sink
        })
        .collect();
    pipeline.set_state(gst::State::Playing).expect("it plays");
    let (result, ..) = pipeline.state(gst::ClockTime::from_seconds(60));
    result.expect("it plays within a minute");
    println!("{first}");
    until_stop();
    let received: u64 = sinks
        .iter()
        .map(|sink| {
            let stats = sink.property::<gst::Structure>("stats");
            stats.get::<u64>("rendered").unwrap_or(0)
        })
        .sum();
    println!("{received}");
    // Taking thousands of elements down in order is nobody's question.
    std::process::exit(0);
}

/// The whole job, in the words of `gst-launch-1.0`.
fn relay(role: &str, streams: usize, first: u16, sink: u16, until_stop: impl FnOnce()) {
    let caps = "application/x-rtp,media=audio,clock-rate=8000,encoding-name=PCMU,payload=0";
    let codec = "rtppcmudepay ! mulawdec ! alawenc ! rtppcmapay";
    let pipeline = gst::Pipeline::new();
    for stream in 0..streams {
        let port = usize::from(first) + stream;
        let words = if role == "gst-job" {
            format!(
                "udpsrc address=127.0.0.1 port={port} caps=\"{caps}\" ! rtpjitterbuffer latency=60 \
                 ! {codec} ! udpsink host=127.0.0.1 port={sink} sync=false async=false"
            )
        } else {
            format!(
                "ts-udpsrc address=127.0.0.1 port={port} caps=\"{caps}\" context=bench \
                 context-wait=20 ! {codec} ! ts-udpsink clients=127.0.0.1:{sink} sync=false \
                 context=bench context-wait=20"
            )
        };
        let bin = gst::parse::bin_from_description(&words, false).expect("a chain");
        pipeline.add(&bin).expect("a new bin");
    }
    pipeline.set_state(gst::State::Playing).expect("it plays");
    let (result, ..) = pipeline.state(gst::ClockTime::from_seconds(60));
    result.expect("it plays within a minute");
    println!("{first}");
    until_stop();
    println!("0");
    std::process::exit(0);
}
