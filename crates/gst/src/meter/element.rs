//! Buffers, events and properties of the meter.

use std::sync::{LazyLock, Mutex};

use aulos_core::{Db, Span};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_transform::BaseTransformImplExt;
use gst_base::subclass::prelude::*;

use super::reading::{IntervalMeter, Reading};
use crate::failure::Failure;
use crate::lock::lock;
use crate::pcm::{PcmSpec, always_templates};
use crate::time_map::{clock_time, span};

/// Values of the properties.
#[derive(Clone, Copy, Debug)]
struct MeterProperties {
    interval: gst::ClockTime,
    post_messages: bool,
}

/// The stream that is measured.
struct MeterStream {
    meter: IntervalMeter,
    samples: Vec<f32>,
}

glib::wrapper! {
    /// The element.
    pub(super) struct Meter(ObjectSubclass<MeterImp>)
        @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

#[derive(Default)]
pub(super) struct MeterImp {
    properties: Mutex<MeterProperties>,
    stream: Mutex<Option<MeterStream>>,
}

static CATEGORY: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    let color = gst::DebugColorFlags::empty();
    gst::DebugCategory::new("aulosmeter", color, Some("Loudness meter"))
});

impl Default for MeterProperties {
    fn default() -> Self {
        Self { interval: gst::ClockTime::from_mseconds(100), post_messages: true }
    }
}

#[glib::object_subclass]
impl ObjectSubclass for MeterImp {
    const NAME: &'static str = "GstAulosMeter";
    type Type = Meter;
    type ParentType = gst_base::BaseTransform;
}

impl ObjectImpl for MeterImp {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            vec![
                glib::ParamSpecUInt64::builder("interval")
                    .nick("Interval")
                    .blurb("Interval between messages in nanoseconds")
                    .minimum(MIN_INTERVAL_NS)
                    .default_value(MeterProperties::default().interval.nseconds())
                    .mutable_playing()
                    .build(),
                glib::ParamSpecBoolean::builder("post-messages")
                    .nick("Post messages")
                    .blurb("Post an element message `aulosmeter` at each interval")
                    .default_value(true)
                    .mutable_playing()
                    .build(),
            ]
        });
        &PROPERTIES
    }

    fn signals() -> &'static [glib::subclass::Signal] {
        static SIGNALS: LazyLock<Vec<glib::subclass::Signal>> = LazyLock::new(|| {
            let reset = |values: &[glib::Value]| {
                if let Some(Ok(meter)) = values.first().map(glib::Value::get::<Meter>) {
                    meter.imp().reset();
                }
                None
            };
            vec![glib::subclass::Signal::builder("reset").action().class_handler(reset).build()]
        });
        &SIGNALS
    }

    fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        let mut properties = lock(&self.properties);
        // GObject has checked type and range; what is not a property never comes here.
        match pspec.name() {
            "interval" => {
                let nanos = value.get().ok().and_then(clock_time);
                properties.interval = nanos.unwrap_or(gst::ClockTime::MAX);
            }
            _ => properties.post_messages = value.get().unwrap_or(true),
        }
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        let properties = lock(&self.properties);
        match pspec.name() {
            "interval" => properties.interval.nseconds().to_value(),
            _ => properties.post_messages.to_value(),
        }
    }
}

impl GstObjectImpl for MeterImp {}

impl ElementImpl for MeterImp {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Loudness meter",
                "Filter/Analyzer/Audio",
                "Measures loudness and true peak (ITU-R BS.1770, EBU R 128) and posts messages \
                 `aulosmeter` with momentary-loudness, shortterm-loudness and global-loudness in \
                 LUFS, loudness-range in LU, true-peak and sample-peak of each channel in dB",
                "The aulos developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        always_templates()
    }
}

impl BaseTransformImpl for MeterImp {
    const MODE: gst_base::subclass::BaseTransformMode =
        gst_base::subclass::BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = true;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = true;

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *lock(&self.stream) = None;
        Ok(())
    }

    fn set_caps(&self, caps: &gst::Caps, _out: &gst::Caps) -> Result<(), gst::LoggableError> {
        let spec = PcmSpec::from_caps(caps)
            .ok_or_else(|| gst::loggable_error!(CATEGORY, "unsupported caps {caps}"))?;
        let refused = |error| gst::loggable_error!(CATEGORY, "{error}");
        let mut stream = lock(&self.stream);
        match stream.as_mut() {
            Some(stream) if *stream.meter.spec() == spec => {}
            Some(stream) => stream.meter.change_format(spec).map_err(refused)?,
            None => {
                let meter = IntervalMeter::new(spec).map_err(refused)?;
                *stream = Some(MeterStream { meter, samples: Vec::new() });
            }
        }
        Ok(())
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        match event.type_() {
            gst::EventType::Eos => {
                let posts = lock(&self.properties).post_messages;
                let rest = lock(&self.stream).as_mut().and_then(|stream| stream.meter.finish());
                rest.filter(|_| posts).into_iter().for_each(|reading| self.post(&reading));
            }
            gst::EventType::StreamStart | gst::EventType::FlushStop => self.reset(),
            _ => {}
        }
        BaseTransformImplExt::parent_sink_event(self, event)
    }

    fn transform_ip_passthrough(
        &self,
        buffer: &gst::Buffer,
    ) -> Result<gst::FlowSuccess, gst::FlowError> {
        let properties = *lock(&self.properties);
        let readings = self.measure(buffer, span(properties.interval));
        let readings = readings.map_err(|failure| failure.post(&*self.obj()))?;
        if properties.post_messages {
            readings.iter().for_each(|reading| self.post(reading));
        }
        Ok(gst::FlowSuccess::Ok)
    }
}

impl MeterImp {
    fn measure(&self, buffer: &gst::Buffer, interval: Span) -> Result<Vec<Reading>, Failure> {
        let mut readings = Vec::new();
        if let Some(stream) = lock(&self.stream).as_mut() {
            stream.meter.spec().read(buffer, &mut stream.samples)?;
            let time = buffer.pts().map(gst::ClockTime::nseconds);
            stream.meter.add(&stream.samples, time, interval, &mut |it| readings.push(it));
        }
        Ok(readings)
    }

    fn reset(&self) {
        if let Some(stream) = lock(&self.stream).as_mut() {
            stream.meter.reset();
        }
    }

    fn post(&self, reading: &Reading) {
        let segment = self.obj().segment();
        let segment = segment.downcast_ref::<gst::ClockTime>();
        let start = reading.start.and_then(clock_time);
        let duration = u64::try_from(reading.duration.as_nanos()).ok().and_then(clock_time);
        let end = start.zip(duration).map(|(start, duration)| start.saturating_add(duration));
        let in_segment = segment.zip(start);
        let decibels = |peaks: &[Db]| gst::Array::new(peaks.iter().map(|peak| peak.get()));
        let structure = gst::Structure::builder("aulosmeter")
            .field("timestamp", start)
            .field("endtime", end)
            .field("stream-time", in_segment.and_then(|(segment, at)| segment.to_stream_time(at)))
            .field("running-time", in_segment.and_then(|(segment, at)| segment.to_running_time(at)))
            .field("duration", duration)
            .field("momentary-loudness", reading.momentary.get())
            .field("shortterm-loudness", reading.short_term.get())
            .field("global-loudness", reading.integrated.get())
            .field("loudness-range", reading.range.get())
            .field("true-peak", decibels(&reading.true_peaks))
            .field("sample-peak", decibels(&reading.sample_peaks))
            .build();
        let message = gst::message::Element::builder(structure).src(&*self.obj()).build();
        // Fails without a bus.
        let _posted = self.obj().post_message(message);
    }
}

/// A long buffer must not flood the bus.
const MIN_INTERVAL_NS: u64 = 1_000_000;
