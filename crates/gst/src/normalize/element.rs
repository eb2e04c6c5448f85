//! Buffers, events and properties of the normalizer.

use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex};

use aulos_core::{Db, Lufs, Span};
use aulos_dsp::Dither;
use aulos_dsp::normalize::{NormalizerError, Settings};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::BaseTransform;
use gst_base::prelude::*;
use gst_base::subclass::base_transform::{BaseTransformImplExt, GenerateOutputSuccess};
use gst_base::subclass::prelude::*;

use super::delayed::{DelayedNormalizer, OutputSpan};
use super::mode::Mode;
use crate::failure::Failure;
use crate::lock::lock;
use crate::pcm::{PcmSpec, always_templates};
use crate::time_map::{clock_time, nanoseconds, span};

/// Values of the properties.
#[derive(Clone, Debug)]
struct NormalizeProperties {
    target: f64,
    true_peak: f64,
    lra: f64,
    mode: Mode,
    bypass: bool,
}

/// The stream that is processed.
struct NormalizeStream {
    spec: PcmSpec,
    normalizer: DelayedNormalizer,
    dither: Dither,
    samples: Vec<f32>,
    /// Output that is not yet sent: more than one buffer after a jump of the time.
    ready: VecDeque<gst::Buffer>,
}

glib::wrapper! {
    /// The element.
    pub(super) struct Normalize(ObjectSubclass<NormalizeImp>)
        @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

#[derive(Default)]
pub(super) struct NormalizeImp {
    properties: Mutex<NormalizeProperties>,
    /// Locked while a buffer is processed, not while one is pushed.
    stream: Mutex<Option<NormalizeStream>>,
}

static CATEGORY: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    let color = gst::DebugColorFlags::empty();
    gst::DebugCategory::new("aulosnormalize", color, Some("Loudness normalizer"))
});

impl Default for NormalizeProperties {
    fn default() -> Self {
        let Settings { target, ceiling, tolerance, .. } = Settings::default();
        Self {
            target: target.get(),
            true_peak: ceiling.get(),
            lra: tolerance.get(),
            mode: Mode::default(),
            bypass: false,
        }
    }
}

impl NormalizeProperties {
    /// As `aulos normalize` has them: a programme may need any gain.
    fn settings(&self) -> Settings {
        Settings {
            target: Lufs::new(self.target),
            ceiling: Db::new(self.true_peak),
            tolerance: Db::new(self.lra),
            min_gain: Db::new(-60.0),
            max_gain: Db::new(60.0),
            ..Settings::default()
        }
    }
}

impl NormalizeStream {
    fn new(
        properties: &NormalizeProperties,
        spec: PcmSpec,
        old: Option<&Self>,
    ) -> Result<Self, gst::LoggableError> {
        let normalizer = match old {
            Some(old) => old.normalizer.successor(&spec),
            None => {
                let settings = properties.settings();
                DelayedNormalizer::new(properties.mode.into(), settings, &spec, properties.bypass)
            }
        }
        .map_err(|error| gst::loggable_error!(CATEGORY, "{error}"))?;
        Ok(Self {
            spec,
            normalizer,
            dither: Dither::default(),
            samples: Vec::new(),
            ready: VecDeque::new(),
        })
    }

    /// Processes the samples at hand; gives the buffer that comes out, if there is one.
    fn process(&mut self, time: Option<gst::ClockTime>) -> Option<gst::Buffer> {
        let span = self.normalizer.process(&mut self.samples, time.map(gst::ClockTime::nseconds));
        self.output(self.samples.len(), span)
    }

    /// Processes silence, where audio is missing.
    fn fill(
        &mut self,
        time: Option<gst::ClockTime>,
        duration: gst::ClockTime,
    ) -> Option<gst::Buffer> {
        let frames = self.spec.rate.frames(span(duration)).as_usize();
        self.samples.clear();
        self.samples.resize(frames * self.spec.layout.channels(), 0.0);
        self.process(time)
    }

    /// Everything that is delayed.
    fn drain(&mut self) -> Vec<gst::Buffer> {
        let samples =
            self.spec.rate.frames(DRAINED_AT_ONCE).as_usize() * self.spec.layout.channels();
        self.samples.resize(samples, 0.0);
        let mut buffers = Vec::new();
        while let Some((end, span)) = self.normalizer.drain(&mut self.samples) {
            buffers.extend(self.output(end, span));
        }
        buffers
    }

    fn output(&mut self, end: usize, span: OutputSpan) -> Option<gst::Buffer> {
        let samples = self.samples.get(span.start..end).filter(|samples| !samples.is_empty())?;
        let mut buffer = self.spec.buffer(&mut self.dither, samples)?;
        if let (Some(buffer), Some((start, end))) = (buffer.get_mut(), span.times) {
            buffer.set_pts(clock_time(start));
            buffer.set_duration(clock_time(end - start));
        }
        Some(buffer)
    }

    fn latency(&self) -> gst::ClockTime {
        nanoseconds(self.spec.rate.span(self.normalizer.latency()))
    }
}

#[glib::object_subclass]
impl ObjectSubclass for NormalizeImp {
    const NAME: &'static str = "GstAulosNormalize";
    type Type = Normalize;
    type ParentType = BaseTransform;
}

impl ObjectImpl for NormalizeImp {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            let NormalizeProperties { target, true_peak, lra, .. } = NormalizeProperties::default();
            let double = |name, nick, blurb, (minimum, maximum), default| {
                glib::ParamSpecDouble::builder(name)
                    .nick(nick)
                    .blurb(blurb)
                    .minimum(minimum)
                    .maximum(maximum)
                    .default_value(default)
                    .mutable_playing()
                    .controllable()
                    .build()
            };
            vec![
                double("target", "Target", "Target loudness in LUFS", (-70.0, -5.0), target),
                double(
                    "true-peak",
                    "True peak",
                    "Maximum true peak in dBTP",
                    (-9.0, 0.0),
                    true_peak,
                ),
                double(
                    "lra",
                    "Loudness range",
                    "Loudness range in LU that is kept: quiet passages stay up to this far below \
                     the target, loud ones up to half of it above",
                    (1.0, 50.0),
                    lra,
                ),
                glib::ParamSpecEnum::builder_with_default("mode", Mode::default())
                    .nick("Mode")
                    .blurb("Look-ahead of the gain, which is the latency of the element")
                    .mutable_ready()
                    .build(),
                glib::ParamSpecBoolean::builder("bypass")
                    .nick("Bypass")
                    .blurb("Pass the input, as late as the normalized audio; a change is faded")
                    .mutable_playing()
                    .controllable()
                    .build(),
            ]
        });
        &PROPERTIES
    }

    fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        let mut properties = lock(&self.properties);
        // GObject has checked type and range; what is not a property never comes here.
        let number = |into: &mut f64| *into = value.get().unwrap_or(*into);
        match pspec.name() {
            "target" => number(&mut properties.target),
            "true-peak" => number(&mut properties.true_peak),
            "lra" => number(&mut properties.lra),
            "mode" => properties.mode = value.get().unwrap_or(properties.mode),
            _ => properties.bypass = value.get().unwrap_or(properties.bypass),
        }
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        let properties = lock(&self.properties);
        match pspec.name() {
            "target" => properties.target.to_value(),
            "true-peak" => properties.true_peak.to_value(),
            "lra" => properties.lra.to_value(),
            "mode" => properties.mode.to_value(),
            _ => properties.bypass.to_value(),
        }
    }
}

impl GstObjectImpl for NormalizeImp {}

impl ElementImpl for NormalizeImp {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Loudness normalizer",
                "Filter/Effect/Audio",
                "Keeps a programme at a target loudness (EBU R 128) and below a true peak, at its \
                 own rate",
                "The aulos developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        always_templates()
    }
}

impl BaseTransformImpl for NormalizeImp {
    const MODE: gst_base::subclass::BaseTransformMode =
        gst_base::subclass::BaseTransformMode::NeverInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *lock(&self.stream) = None;
        Ok(())
    }

    fn set_caps(&self, caps: &gst::Caps, _out: &gst::Caps) -> Result<(), gst::LoggableError> {
        let spec = PcmSpec::from_caps(caps)
            .ok_or_else(|| gst::loggable_error!(CATEGORY, "unsupported caps {caps}"))?;
        let properties = lock(&self.properties).clone();
        let mut stream = lock(&self.stream);
        if stream.as_ref().is_some_and(|stream| stream.spec == spec) {
            return Ok(());
        }
        gst::debug!(CATEGORY, imp = self, "{spec:?}");
        let before = stream.as_ref().map(NormalizeStream::latency);
        let new = NormalizeStream::new(&properties, spec, stream.as_ref())?;
        let changed = before != Some(new.latency());
        *stream = Some(new);
        drop(stream);
        if changed {
            let message = gst::message::Latency::builder().src(&*self.obj()).build();
            // Fails without a bus.
            let _posted = self.obj().post_message(message);
        }
        Ok(())
    }

    fn query(&self, direction: gst::PadDirection, query: &mut gst::QueryRef) -> bool {
        if direction != gst::PadDirection::Src {
            return BaseTransformImplExt::parent_query(self, direction, query);
        }
        let gst::QueryViewMut::Latency(query) = query.view_mut() else {
            return BaseTransformImplExt::parent_query(self, direction, query);
        };
        let mut upstream = gst::query::Latency::new();
        if !self.obj().sink_pad().peer_query(&mut upstream) {
            return false;
        }
        let (live, min, max) = upstream.result();
        let own =
            lock(&self.stream).as_ref().map_or(gst::ClockTime::ZERO, NormalizeStream::latency);
        query.set(live, min.saturating_add(own), max.map(|max| max.saturating_add(own)));
        true
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        use gst::EventView;
        let event = match event.view() {
            EventView::Eos(_)
            | EventView::SegmentDone(_)
            | EventView::Segment(_)
            | EventView::StreamStart(_) => {
                self.push_delayed();
                event
            }
            EventView::Caps(caps) => {
                let spec = PcmSpec::from_caps(caps.caps());
                let changes = |stream: &NormalizeStream| spec.as_ref() != Some(&stream.spec);
                if lock(&self.stream).as_ref().is_some_and(changes) {
                    self.push_delayed();
                }
                event
            }
            EventView::FlushStop(_) => {
                if let Some(stream) = lock(&self.stream).as_mut() {
                    stream.normalizer.interrupt();
                    stream.ready.clear();
                }
                event
            }
            EventView::Gap(gap) => {
                let (start, duration) = gap.get();
                if let Some(duration) = duration.filter(|length| *length <= FILLED_GAP)
                    && self.fill_gap(start, duration)
                {
                    return true;
                }
                self.push_delayed();
                event
            }
            EventView::Tag(tag) => without_gains(tag).unwrap_or(event),
            _ => event,
        };
        BaseTransformImplExt::parent_sink_event(self, event)
    }

    fn generate_output(&self) -> Result<GenerateOutputSuccess, gst::FlowError> {
        if let Some(input) = self.take_queued_buffer() {
            self.sync_properties(input.pts());
            let warning = self.process(&input).map_err(|failure| failure.post(&*self.obj()))?;
            if let Some(warning) = warning {
                gst::element_imp_warning!(self, gst::LibraryError::Settings, ["{warning}"]);
            }
        }
        let next = lock(&self.stream).as_mut().and_then(|stream| stream.ready.pop_front());
        Ok(next.map_or(GenerateOutputSuccess::NoOutput, GenerateOutputSuccess::Buffer))
    }
}

impl NormalizeImp {
    /// Gives the reason why properties could not be taken over, if they could not.
    fn process(&self, input: &gst::Buffer) -> Result<Option<NormalizerError>, Failure> {
        let properties = lock(&self.properties).clone();
        let mut stream = lock(&self.stream);
        let stream = stream.as_mut().ok_or_else(Failure::before_caps)?;
        stream.normalizer.set_bypass(properties.bypass);
        let refused = stream.normalizer.set_settings(&properties.settings()).err();
        let time = input.pts().map(gst::ClockTime::nseconds);
        let gap = stream.normalizer.gap_before(time).and_then(clock_time);
        if let Some(gap) = gap.filter(|gap| *gap <= FILLED_GAP) {
            let filled = stream.fill(None, gap);
            stream.ready.extend(filled);
        } else if stream.normalizer.is_jump(time) {
            let drained = stream.drain();
            stream.ready.extend(drained);
        }
        stream.spec.read(input, &mut stream.samples)?;
        let output = stream.process(input.pts());
        stream.ready.extend(output);
        Ok(refused)
    }

    /// Sets the properties that a controller changes with time.
    fn sync_properties(&self, time: Option<gst::ClockTime>) {
        let segment = self.obj().segment();
        let segment = segment.downcast_ref::<gst::ClockTime>();
        if let Some(time) = segment.and_then(|segment| segment.to_stream_time(time)) {
            // An error means that a controller could not be asked; the properties stay.
            let _synced = self.obj().sync_values(time);
        }
    }

    /// Sends what is delayed, so that what follows can be something else.
    fn push_delayed(&self) {
        let drained = lock(&self.stream).as_mut().map(NormalizeStream::drain).unwrap_or_default();
        for buffer in drained {
            if let Err(error) = self.obj().src_pad().push(buffer) {
                gst::debug!(CATEGORY, imp = self, "cannot push delayed audio: {error}");
                return;
            }
        }
    }

    /// A short gap that continues the audio is silence in it; returns whether it was.
    fn fill_gap(&self, start: gst::ClockTime, duration: gst::ClockTime) -> bool {
        let output = {
            let mut stream = lock(&self.stream);
            let Some(stream) = stream.as_mut() else { return false };
            if stream.normalizer.is_jump(Some(start.nseconds())) {
                return false;
            }
            stream.fill(Some(start), duration)
        };
        // The flow's result comes again with the next buffer.
        let _flow = output.map(|buffer| self.obj().src_pad().push(buffer));
        true
    }
}

/// The tags without gains and peaks, which no longer apply: a player would apply them again.
fn without_gains(event: &gst::event::Tag) -> Option<gst::Event> {
    let mut tags = event.tag().to_owned();
    let list = tags.make_mut();
    list.remove::<gst::tags::TrackGain>();
    list.remove::<gst::tags::TrackPeak>();
    list.remove::<gst::tags::AlbumGain>();
    list.remove::<gst::tags::AlbumPeak>();
    list.remove::<gst::tags::ReferenceLevel>();
    let changed = list.n_tags() != event.tag().n_tags();
    changed.then(|| gst::event::Tag::builder(tags).seqnum(event.seqnum()).build())
}

const DRAINED_AT_ONCE: Span = Span::from_millis(100);
/// Longer gaps end what was before them, which takes as long as the look-ahead does.
const FILLED_GAP: gst::ClockTime = gst::ClockTime::SECOND;
