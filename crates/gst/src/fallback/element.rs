//! Pads, buffers, events and properties of the switch.

use std::sync::{LazyLock, Mutex};

use aulos_core::Span;
use aulos_dsp::Dither;
use aulos_engine::switch::{InputChange, SwitchCause};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::prelude::*;

use super::mixer::{LATENCY, Mixer, RenderResult, Selection, running_time};
use super::pad::FallbackPad;
use super::properties::FallbackProperties;
use crate::failure::Failure;
use crate::lock::lock;
use crate::pcm::{CAPS, PcmSpec};
use crate::time_map::{clock_time, nanoseconds, span};

/// State of the stream.
#[derive(Default)]
struct FallbackStream {
    output: Option<Output>,
    /// The inputs of the mixer, in the order of priority.
    pads: Vec<FallbackPad>,
    active_pad: Option<FallbackPad>,
    samples: Vec<f32>,
}

struct Output {
    spec: PcmSpec,
    mixer: Option<Mixer>,
    dither: Dither,
}

/// A rendered buffer, and what changed with it.
struct OutputBuffer {
    buffer: gst::Buffer,
    change: Option<PadChange>,
    healthy: Vec<(FallbackPad, bool)>,
}

struct PadChange {
    from: Option<FallbackPad>,
    to: Option<FallbackPad>,
    cause: SwitchCause,
    at: Option<gst::ClockTime>,
}

glib::wrapper! {
    /// The element.
    pub(super) struct Fallback(ObjectSubclass<FallbackImp>)
        @extends gst_base::Aggregator, gst::Element, gst::Object,
        @implements gst::ChildProxy;
}

#[derive(Default)]
pub(super) struct FallbackImp {
    properties: Mutex<FallbackProperties>,
    /// Locked while a buffer is rendered, not while one is pushed.
    stream: Mutex<FallbackStream>,
}

static CATEGORY: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    let color = gst::DebugColorFlags::empty();
    gst::DebugCategory::new("aulosfallback", color, Some("Fallback switch"))
});

#[glib::object_subclass]
impl ObjectSubclass for FallbackImp {
    const NAME: &'static str = "GstAulosFallback";
    type Type = Fallback;
    type ParentType = gst_base::Aggregator;
    type Interfaces = (gst::ChildProxy,);
}

impl ObjectImpl for FallbackImp {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> =
            LazyLock::new(FallbackProperties::specs);
        &PROPERTIES
    }

    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        // An input that is dead must not stop the others, live or not.
        element.set_force_live(true);
        element.set_start_time_selection(gst_base::AggregatorStartTimeSelection::First);
        let latency = nanoseconds(LATENCY);
        element.set_latency(latency, latency);
    }

    fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        if pspec.name() == "force-live" {
            return self.obj().set_force_live(value.get().unwrap_or(true));
        }
        lock(&self.properties).set(pspec.name(), value);
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        if pspec.name() == "active-pad" {
            let pad = lock(&self.stream).active_pad.clone();
            return pad.map(Cast::upcast::<gst::Pad>).to_value();
        }
        if pspec.name() == "force-live" {
            return self.obj().is_force_live().to_value();
        }
        lock(&self.properties).get(pspec.name())
    }
}

impl GstObjectImpl for FallbackImp {}

impl ElementImpl for FallbackImp {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Fallback switch",
                "Generic/Audio",
                "Plays the input of the highest priority that is neither dead nor late nor silent, \
                 without a gap, and posts messages `aulosfallback` with from, to, cause and \
                 running-time when that changes",
                "The aulos developers",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let sink = gst::PadTemplate::with_gtype(
                "sink_%u",
                gst::PadDirection::Sink,
                gst::PadPresence::Request,
                &CAPS,
                FallbackPad::static_type(),
            );
            let src = gst::PadTemplate::with_gtype(
                "src",
                gst::PadDirection::Src,
                gst::PadPresence::Always,
                &CAPS,
                gst_base::AggregatorPad::static_type(),
            );
            [sink, src].into_iter().flatten().collect()
        });
        &TEMPLATES
    }

    fn request_new_pad(
        &self,
        template: &gst::PadTemplate,
        name: Option<&str>,
        caps: Option<&gst::Caps>,
    ) -> Option<gst::Pad> {
        let pad = self.parent_request_new_pad(template, name, caps)?;
        self.obj().child_added(&pad, &pad.name());
        Some(pad)
    }

    fn release_pad(&self, pad: &gst::Pad) {
        let is_released = |wanted: &FallbackPad| wanted.upcast_ref::<gst::Pad>() == pad;
        lock(&self.properties)
            .active_pad
            .take_if(|wanted| wanted.as_ref().is_some_and(is_released));
        self.obj().child_removed(pad, &pad.name());
        self.parent_release_pad(pad);
    }
}

impl ChildProxyImpl for FallbackImp {
    fn children_count(&self) -> u32 {
        u32::try_from(self.obj().pads().len()).unwrap_or(u32::MAX)
    }

    fn child_by_name(&self, name: &str) -> Option<glib::Object> {
        self.obj().pads().into_iter().find(|pad| pad.name() == name).map(Cast::upcast)
    }

    fn child_by_index(&self, index: u32) -> Option<glib::Object> {
        self.obj().pads().into_iter().nth(usize::try_from(index).ok()?).map(Cast::upcast)
    }
}

impl AggregatorImpl for FallbackImp {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        *lock(&self.stream) = FallbackStream::default();
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *lock(&self.stream) = FallbackStream::default();
        Ok(())
    }

    /// All inputs were flushed: the next buffer starts anew.
    fn flush(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        let mut stream = lock(&self.stream);
        stream.pads.clear();
        if let Some(output) = &mut stream.output {
            output.mixer = None;
        }
        drop(stream);
        // Aggregator goes on where it was, unless the first buffer is later.
        self.obj().set_position(gst::ClockTime::NONE);
        Ok(gst::FlowSuccess::Ok)
    }

    /// Without a format nothing is due.
    fn next_time(&self) -> Option<gst::ClockTime> {
        let has_format = self.obj().src_pad().has_current_caps() || self.preferred_spec().is_some();
        has_format.then(|| self.obj().simple_get_next_time())?
    }

    fn update_src_caps(&self, caps: &gst::Caps) -> Result<gst::Caps, gst::FlowError> {
        if self.preferred_spec().is_none() {
            return Err(gst_base::AGGREGATOR_FLOW_NEED_DATA);
        }
        Ok(caps.clone())
    }

    /// As the input of the highest priority, as far as downstream allows it; later as it was: with
    /// another format the audio that is buffered would be lost.
    fn fixate_src_caps(&self, mut caps: gst::Caps) -> gst::Caps {
        let current = self.obj().src_pad().current_caps();
        if let Some(current) = current.filter(|current| current.is_subset(&caps)) {
            return current;
        }
        caps.truncate();
        let preferred = self.preferred_spec();
        if let (Some((preferred, _)), Some(structure)) =
            (preferred, caps.make_mut().structure_mut(0))
        {
            let text = |name| preferred.structure(0).and_then(|s| s.get::<&str>(name).ok());
            let number = |name| preferred.structure(0).and_then(|s| s.get::<i32>(name).ok());
            for name in ["rate", "channels"] {
                if let Some(number) = number(name) {
                    structure.fixate_field_nearest_int(name, number);
                }
            }
            if let Some(format) = text("format") {
                structure.fixate_field_str("format", format);
            }
            let same_channels = structure.get::<i32>("channels").ok() == number("channels");
            let mask =
                preferred.structure(0).and_then(|s| s.get::<gst::Bitmask>("channel-mask").ok());
            if let (true, Some(mask), false) =
                (same_channels, mask, structure.has_field("channel-mask"))
            {
                structure.set("channel-mask", mask);
            }
        }
        set_default_mask(&mut caps);
        self.parent_fixate_src_caps(caps)
    }

    fn negotiated_src_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let spec = PcmSpec::from_caps(caps)
            .ok_or_else(|| gst::loggable_error!(CATEGORY, "unsupported caps {caps}"))?;
        let mut stream = lock(&self.stream);
        if stream.output.as_ref().is_none_or(|output| output.spec != spec) {
            gst::debug!(CATEGORY, imp = self, "{spec:?}");
            stream.pads.clear();
            stream.output = Some(Output { spec, mixer: None, dither: Dither::default() });
        }
        drop(stream);
        self.parent_negotiated_src_caps(caps)
    }

    /// Called in turn with the buffers, but for flushes.
    fn sink_event(&self, pad: &gst_base::AggregatorPad, event: gst::Event) -> bool {
        if let Some(pad) = pad.downcast_ref::<FallbackPad>() {
            match event.view() {
                gst::EventView::StreamStart(_) => pad.set_format(None),
                gst::EventView::Caps(caps) => pad.set_format(Some(caps.caps())),
                gst::EventView::FlushStop(_) => self.clear(pad),
                _ => {}
            }
        }
        self.parent_sink_event(pad, event)
    }

    fn aggregate(&self, timeout: bool) -> Result<gst::FlowSuccess, gst::FlowError> {
        // Aggregator calls again when there is more.
        let output = self.next_output(timeout).map_err(|failure| failure.post(&*self.obj()))?;
        let Some(output) = output else { return Ok(gst::FlowSuccess::Ok) };
        self.report(&output);
        let end = output.buffer.pts().zip(output.buffer.duration());
        let flow = self.obj().finish_buffer(output.buffer);
        if let Some((start, duration)) = end {
            self.obj().set_position(start.saturating_add(duration));
        }
        flow
    }
}

impl FallbackImp {
    fn next_output(&self, timeout: bool) -> Result<Option<OutputBuffer>, Failure> {
        let properties = lock(&self.properties).clone();
        let mut stream = lock(&self.stream);
        self.prepare(&mut stream, &properties)?;
        Self::collect(&mut stream)?;
        let rendered = stream.render(&properties, timeout)?;
        if rendered.is_some() && properties.auto_switch {
            // A request is for once, where the switch chooses; there may be another one by now.
            let done = properties.active_pad.as_ref();
            lock(&self.properties).active_pad.take_if(|wanted| done == Some(&*wanted));
        }
        Ok(rendered.map(|rendered| self.output(&mut stream, rendered)).transpose()?)
    }

    /// Discards what has arrived from this pad.
    fn clear(&self, pad: &FallbackPad) {
        let mut stream = lock(&self.stream);
        let index = stream.pads.iter().position(|known| known == pad);
        let mixer = stream.output.as_mut().and_then(|output| output.mixer.as_mut());
        if let Some(track) = mixer.zip(index).and_then(|(mixer, index)| mixer.track(index)) {
            track.clear();
        }
    }

    /// The caps of the best input that has some.
    fn preferred_spec(&self) -> Option<(gst::Caps, PcmSpec)> {
        self.pads_by_priority().iter().find_map(FallbackPad::format)
    }

    fn pads_by_priority(&self) -> Vec<FallbackPad> {
        let pads = self.obj().sink_pads().into_iter();
        let mut pads: Vec<_> = pads.filter_map(|pad| pad.downcast::<FallbackPad>().ok()).collect();
        // Stable: of equal ones, the first that was requested.
        pads.sort_by_key(FallbackPad::priority);
        pads
    }

    /// Takes over new, removed and reordered pads.
    fn prepare(
        &self,
        stream: &mut FallbackStream,
        properties: &FallbackProperties,
    ) -> Result<(), gst::FlowError> {
        let pads = self.pads_by_priority();
        let FallbackStream { output, pads: known, .. } = stream;
        let Some(output) = output else { return Err(self.await_format(&pads, properties)) };
        let mixer = match &mut output.mixer {
            Some(mixer) => mixer,
            empty => {
                known.clear();
                let start = self.start_time();
                let channels = output.spec.layout.channels();
                empty.insert(Mixer::new(properties.config(), output.spec.rate, channels, start))
            }
        };
        if *known != pads {
            let from = |pad| known.iter().position(|known| known == pad);
            mixer.rearrange(&pads.iter().map(from).collect::<Vec<_>>());
            *known = pads;
        }
        Ok(())
    }

    /// The result of the flow before any input has a format.
    fn await_format(
        &self,
        pads: &[FallbackPad],
        properties: &FallbackProperties,
    ) -> gst::FlowError {
        let mut ended = pads.iter().map(|pad| pad.is_eos() && !pad.has_buffer());
        let over = if properties.stop_on_eos {
            ended.any(|ended| ended)
        } else {
            !pads.is_empty() && ended.all(|ended| ended)
        };
        if over {
            return gst::FlowError::Eos;
        }
        self.obj().src_pad().mark_reconfigure();
        gst_base::AGGREGATOR_FLOW_NEED_DATA
    }

    /// Running time of the next buffer.
    fn start_time(&self) -> Span {
        let segment = self.obj().src_pad().segment();
        let segment = segment.downcast_ref::<gst::ClockTime>();
        let time = segment.and_then(|segment| match segment.position() {
            Some(position) => segment.to_running_time(position),
            // After a flush.
            None => self.first_buffer().or_else(|| segment.to_running_time(segment.start())),
        });
        time.map_or(Span::ZERO, span)
    }

    /// Running time of the first buffer that waits.
    fn first_buffer(&self) -> Option<gst::ClockTime> {
        let time = |pad: FallbackPad| {
            let pts = pad.peek_buffer()?.pts()?;
            pad.segment().downcast_ref::<gst::ClockTime>()?.to_running_time(pts)
        };
        self.pads_by_priority().into_iter().filter_map(time).min()
    }

    /// Moves what has arrived from the pads to the mixer, as far as it is needed soon.
    fn collect(stream: &mut FallbackStream) -> Result<(), Failure> {
        let FallbackStream {
            output: Some(Output { mixer: Some(mixer), .. }), pads, samples, ..
        } = stream
        else {
            return Ok(());
        };
        for (index, pad) in pads.iter().enumerate() {
            while mixer.is_wanted(index) {
                let Some(buffer) = pad.pop_buffer() else { break };
                Self::push(mixer, index, (pad, &buffer), samples)?;
            }
            if pad.is_eos()
                && !pad.has_buffer()
                && let Some(track) = mixer.track(index)
            {
                track.end();
            }
        }
        Ok(())
    }

    fn push(
        mixer: &mut Mixer,
        index: usize,
        (pad, buffer): (&FallbackPad, &gst::Buffer),
        samples: &mut Vec<f32>,
    ) -> Result<(), Failure> {
        let now = mixer.position();
        let Some(track) = mixer.track(index) else { return Ok(()) };
        let (_, spec) = pad.format().ok_or_else(Failure::before_caps)?;
        let segment = pad.segment();
        let segment = segment.downcast_ref::<gst::ClockTime>();
        let time = buffer.pts().map(|pts| segment.and_then(|it| it.to_running_time(pts)));
        // Outside of the segment: not to be played.
        if time == Some(None) {
            return Ok(());
        }
        if !track.takes(spec.layout.channels()) {
            return Err(Failure::not_negotiated(gst::error_msg!(
                gst::CoreError::Negotiation,
                ["{} has {}, which cannot be remixed", pad.name(), spec.layout]
            )));
        }
        track.set_format(&spec);
        if buffer.size() == 0 {
            // Aggregator's form of a gap.
            let length = buffer.duration().unwrap_or(gst::ClockTime::ZERO).min(LONGEST_GAP);
            let frames = spec.rate.frames(span(length)).as_usize();
            samples.clear();
            samples.resize(frames * spec.layout.channels(), 0.0);
        } else {
            spec.read(buffer, samples)?;
        }
        track.push(samples, time.flatten().map(gst::ClockTime::nseconds), now);
        Ok(())
    }

    /// The buffer of what was rendered.
    fn output(
        &self,
        stream: &mut FallbackStream,
        (rendered, frame): (RenderResult, u64),
    ) -> Result<OutputBuffer, gst::FlowError> {
        let FallbackStream { output, pads, active_pad, samples } = stream;
        let output = output.as_mut().ok_or(gst::FlowError::NotNegotiated)?;
        let Output { spec, mixer: Some(mixer), dither } = output else {
            return Err(gst::FlowError::NotNegotiated);
        };
        let mut buffer = spec.buffer(dither, samples).ok_or(gst::FlowError::Error)?;
        let (start, end) =
            (running_time(spec.rate, frame), running_time(spec.rate, mixer.position()));
        let at = clock_time(start);
        if let Some(buffer) = buffer.get_mut() {
            let segment = self.obj().src_pad().segment();
            let segment = segment.downcast_ref::<gst::ClockTime>();
            buffer.set_pts(segment.and_then(|segment| segment.position_from_running_time(at)));
            buffer.set_duration(clock_time(end - start));
            if rendered.empty {
                buffer.set_flags(gst::BufferFlags::GAP);
            }
        }
        let change = rendered.change.map(|InputChange { cause, .. }| {
            let to = mixer.chosen().and_then(|input| pads.get(input)).cloned();
            let from = core::mem::replace(active_pad, to.clone());
            PadChange { from, to, cause, at }
        });
        let healthy = |(index, pad): (usize, &FallbackPad)| (pad.clone(), mixer.is_healthy(index));
        let healthy = pads.iter().enumerate().map(healthy).collect();
        Ok(OutputBuffer { buffer, change, healthy })
    }

    /// Reports changes to the application.
    fn report(&self, output: &OutputBuffer) {
        for (pad, healthy) in &output.healthy {
            pad.set_healthy(*healthy);
        }
        let Some(PadChange { from, to, cause, at }) = &output.change else { return };
        let name = |pad: &Option<FallbackPad>| pad.as_ref().map(|pad| pad.name().to_string());
        gst::info!(CATEGORY, imp = self, "{:?} -> {:?}: {cause:?}", name(from), name(to));
        let structure = gst::Structure::builder("aulosfallback")
            .field("from", name(from))
            .field("to", name(to))
            .field("cause", cause.name())
            .field("running-time", at)
            .build();
        let message = gst::message::Element::builder(structure).src(&*self.obj()).build();
        // Fails without a bus.
        let _posted = self.obj().post_message(message);
        self.obj().notify("active-pad");
    }
}

impl FallbackStream {
    /// Renders into `samples`; gives what changed and the first frame. `None` while an input may
    /// still be in time.
    fn render(
        &mut self,
        properties: &FallbackProperties,
        timeout: bool,
    ) -> Result<Option<(RenderResult, u64)>, gst::FlowError> {
        let Some(Output { mixer: Some(mixer), .. }) = &mut self.output else { return Ok(None) };
        if !timeout && mixer.is_starved() {
            return Ok(None);
        }
        let over = if properties.stop_on_eos { mixer.has_any_ended() } else { mixer.has_ended() };
        if over {
            return Err(gst::FlowError::Eos);
        }
        let input = |pad: &FallbackPad| self.pads.iter().position(|known| known == pad);
        let requested = properties.active_pad.as_ref().map(|pad| pad.as_ref().and_then(input));
        if properties.auto_switch {
            mixer.select(Selection::Auto);
            requested.into_iter().for_each(|input| mixer.prefer(input));
        } else {
            mixer.select(Selection::Manual(requested.flatten().or(mixer.chosen())));
        }
        let frame = mixer.position();
        self.samples.resize(mixer.samples(), 0.0);
        Ok(Some((mixer.render(&mut self.samples), frame)))
    }
}

/// Two channels and more need positions.
fn set_default_mask(caps: &mut gst::Caps) {
    let Some(structure) = caps.make_mut().structure_mut(0) else { return };
    let channels = structure.get::<i32>("channels").ok().and_then(|n| u32::try_from(n).ok());
    let Some(channels) = channels.filter(|channels| *channels > 1) else { return };
    if !structure.has_field("channel-mask") {
        let mask = gst_audio::AudioChannelPosition::fallback_mask(channels);
        structure.set("channel-mask", gst::Bitmask::new(mask));
    }
}

/// More silence than this at once is not kept in memory; the rest of the gap is missing audio.
const LONGEST_GAP: gst::ClockTime = gst::ClockTime::from_seconds(10);
