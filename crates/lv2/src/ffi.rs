//! The C interface: LV2 core 18.0, `LV2_Descriptor` and `lv2_descriptor` in `lv2.h`.
//!
//! A host keeps to the threading classes of the specification: it creates, activates and frees an
//! instance while no other function of it runs. Buffers of ports may be the same memory
//! (`lv2:inPlaceBroken` is not set), may be null, and may hold any bits.

#![allow(unsafe_code, reason = "this module is an FFI border")]
#![allow(unreachable_pub, reason = "the library exports it")]

use core::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use aulos_core::{ChannelLayout, SampleRate};

use crate::meter::MeterProcessor;
use crate::normalizer::NormalizerProcessor;
use crate::table::{ControlPort, PLUGINS, PluginInfo, PluginKind};
use crate::{BLOCK_FRAMES, Processor};

/// `LV2_Descriptor`, and behind it what belongs to us.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the specification's")]
pub struct Descriptor {
    pub uri: *const c_char,
    pub instantiate:
        unsafe extern "C" fn(*const Self, f64, *const c_char, *const *const c_void) -> *mut c_void,
    pub connect_port: unsafe extern "C" fn(*mut c_void, u32, *mut c_void),
    pub activate: Option<unsafe extern "C" fn(*mut c_void)>,
    pub run: unsafe extern "C" fn(*mut c_void, u32),
    pub deactivate: Option<unsafe extern "C" fn(*mut c_void)>,
    pub cleanup: unsafe extern "C" fn(*mut c_void),
    pub extension_data: Option<unsafe extern "C" fn(*const c_char) -> *const c_void>,
    plugin: &'static PluginInfo,
}

// SAFETY: constant; the pointer is to a string that lives for ever.
unsafe impl Sync for Descriptor {}

static DESCRIPTORS: [Descriptor; PLUGINS.len()] = [
    Descriptor::of(&PLUGINS[0]),
    Descriptor::of(&PLUGINS[1]),
    Descriptor::of(&PLUGINS[2]),
    Descriptor::of(&PLUGINS[3]),
    Descriptor::of(&PLUGINS[4]),
    Descriptor::of(&PLUGINS[5]),
];

/// The plug-in of an index; null behind the last one.
#[unsafe(no_mangle)]
pub extern "C" fn lv2_descriptor(index: u32) -> *const Descriptor {
    DESCRIPTORS.get(index as usize).map_or(core::ptr::null(), core::ptr::from_ref)
}

impl Descriptor {
    const fn of(plugin: &'static PluginInfo) -> Self {
        Self {
            uri: plugin.uri.as_ptr(),
            instantiate,
            connect_port,
            activate: Some(activate),
            run,
            deactivate: None,
            cleanup,
            extension_data: None,
            plugin,
        }
    }
}

/// Creates an instance; null for a sample rate that is not a whole number from 8,000 to 192,000.
unsafe extern "C" fn instantiate(
    descriptor: *const Descriptor,
    rate: f64,
    _bundle: *const c_char,
    _features: *const *const c_void,
) -> *mut c_void {
    // SAFETY: the host passes what it got from `lv2_descriptor`.
    let Some(descriptor) = (unsafe { descriptor.as_ref() }) else { return core::ptr::null_mut() };
    let created = catch_unwind(|| Instance::new(descriptor.plugin, rate)).ok().flatten();
    created.map_or(core::ptr::null_mut(), |instance| Box::into_raw(Box::new(instance)).cast())
}

unsafe extern "C" fn connect_port(instance: *mut c_void, port: u32, data: *mut c_void) {
    // SAFETY: the host passes what it got from `instantiate`.
    let Some(instance) = (unsafe { instance.cast::<Instance>().as_mut() }) else { return };
    if let Some(port) = instance.ports.get_mut(port as usize) {
        *port = data.cast();
    }
}

unsafe extern "C" fn activate(instance: *mut c_void) {
    // SAFETY: as above.
    let Some(instance) = (unsafe { instance.cast::<Instance>().as_mut() }) else { return };
    instance.guarded(|instance| instance.processor.reset());
}

unsafe extern "C" fn run(instance: *mut c_void, frames: u32) {
    // SAFETY: as above.
    let Some(instance) = (unsafe { instance.cast::<Instance>().as_mut() }) else { return };
    // SAFETY: the host has connected ports to buffers of `frames` samples, or one value, or null.
    instance.guarded(|instance| unsafe { instance.run(frames as usize) });
}

unsafe extern "C" fn cleanup(instance: *mut c_void) {
    if !instance.is_null() {
        // SAFETY: as above, and the host does not use it any more.
        drop(unsafe { Box::from_raw(instance.cast::<Instance>()) });
    }
}

/// One plug-in in a host.
struct Instance {
    plugin: &'static PluginInfo,
    /// The buffers of all ports, in the order of the table.
    ports: Vec<*mut f32>,
    processor: Box<dyn Processor>,
    block: Vec<f32>,
    controls: Vec<f32>,
    outputs: Vec<f32>,
    /// A defect of ours: its outputs stay silent.
    failed: bool,
}

impl Instance {
    fn new(plugin: &'static PluginInfo, rate: f64) -> Option<Self> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let hz = rate as u32;
        let is_whole = f64::from(hz).to_bits() == rate.to_bits();
        let is_supported = (MIN_RATE_HZ..=MAX_RATE_HZ).contains(&hz);
        let rate = SampleRate::new(hz).ok().filter(|_| is_whole && is_supported)?;
        let layout = ChannelLayout::new(plugin.channels).ok()?;
        let processor: Box<dyn Processor> = match plugin.kind {
            PluginKind::Normalizer => Box::new(NormalizerProcessor::new(rate, layout).ok()?),
            PluginKind::Meter => Box::new(MeterProcessor::new(rate, layout).ok()?),
        };
        let (inputs, outputs) = (plugin.inputs().len(), plugin.outputs().len());
        Some(Self {
            plugin,
            ports: vec![core::ptr::null_mut(); 2 * plugin.channels + inputs + outputs],
            processor,
            block: vec![0.0; BLOCK_FRAMES * plugin.channels],
            controls: vec![0.0; inputs],
            outputs: vec![0.0; outputs],
            failed: false,
        })
    }

    /// A panic, which would be a bug, must not cross the C boundary.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        self.failed |= catch_unwind(AssertUnwindSafe(|| work(self))).is_err();
    }

    /// # Real-time
    /// No allocation, no lock, no system call.
    ///
    /// # Safety
    /// Each port is null or has `frames` samples (audio) or one (control).
    unsafe fn run(&mut self, frames: usize) {
        let (inputs, outputs) = (self.plugin.inputs(), self.plugin.outputs());
        let (audio, controls) = self.ports.split_at(2 * self.plugin.channels);
        let (control_inputs, control_outputs) = controls.split_at(inputs.len());
        for ((value, port), data) in self.controls.iter_mut().zip(inputs).zip(control_inputs) {
            // SAFETY: the caller's contract.
            *value = port.clean(unsafe { data.as_ref() }.copied().unwrap_or(port.default));
        }
        self.processor.set_controls(&self.controls);
        let (audio_inputs, audio_outputs) = audio.split_at(self.plugin.channels);
        for start in (0..frames).step_by(BLOCK_FRAMES) {
            let count = BLOCK_FRAMES.min(frames - start);
            let block = &mut self.block[..count * self.plugin.channels];
            // All inputs are read before an output is written: it may be the same memory.
            for (channel, data) in audio_inputs.iter().enumerate() {
                // SAFETY: the caller's contract; no reference to an output exists now.
                let input = unsafe { samples(*data, start, count) };
                gather(block, channel, self.plugin.channels, input);
            }
            if self.failed {
                block.fill(0.0);
            } else {
                self.processor.process(block);
            }
            for (channel, data) in audio_outputs.iter().enumerate() {
                // SAFETY: the caller's contract; no other reference to a port exists now.
                let output = unsafe { samples_mut(*data, start, count) };
                let frames = block.chunks_exact(self.plugin.channels);
                output.iter_mut().zip(frames).for_each(|(out, frame)| *out = frame[channel]);
            }
        }
        self.processor.report(&mut self.outputs);
        let values = self.outputs.iter().zip(outputs).map(|(value, port)| in_range(port, *value));
        for (value, data) in values.zip(control_outputs) {
            // SAFETY: the caller's contract.
            if let Some(out) = unsafe { data.as_mut() } {
                *out = value;
            }
        }
    }
}

/// One channel into interleaved frames; an input that is not connected is silent.
fn gather(block: &mut [f32], channel: usize, channels: usize, input: &[f32]) {
    let places = block.chunks_exact_mut(channels).map(|frame| &mut frame[channel]);
    let silence = core::iter::repeat(&0.0);
    places.zip(input.iter().chain(silence)).for_each(|(place, sample)| *place = *sample);
}

/// What no meter has measured is not a number that a host can show.
const fn in_range(port: &ControlPort, value: f32) -> f32 {
    if value.is_nan() { port.default } else { value.clamp(port.min, port.max) }
}

/// # Safety
/// `data` is null or has `start + count` samples, to which no exclusive reference exists.
unsafe fn samples<'a>(data: *const f32, start: usize, count: usize) -> &'a [f32] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's contract.
    let first = unsafe { data.add(start) };
    // SAFETY: the caller's contract.
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// # Safety
/// `data` is null or has `start + count` samples, to which no other reference exists.
unsafe fn samples_mut<'a>(data: *mut f32, start: usize, count: usize) -> &'a mut [f32] {
    if data.is_null() {
        return &mut [];
    }
    // SAFETY: the caller's contract.
    let first = unsafe { data.add(start) };
    // SAFETY: the caller's contract.
    unsafe { core::slice::from_raw_parts_mut(first, count) }
}

const MIN_RATE_HZ: u32 = 8_000;
const MAX_RATE_HZ: u32 = 192_000;
