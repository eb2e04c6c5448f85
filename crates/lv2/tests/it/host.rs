//! A host: loads the library or calls the one that is linked, connects ports, runs blocks.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;

use aulos_lv2::table::{ControlPort, PLUGINS, PluginInfo};

/// `LV2_Descriptor` (LV2 core 18.0).
#[repr(C)]
pub(crate) struct Descriptor {
    uri: *const c_char,
    instantiate:
        unsafe extern "C" fn(*const Self, f64, *const c_char, *const *const c_void) -> *mut c_void,
    connect_port: unsafe extern "C" fn(*mut c_void, u32, *mut c_void),
    activate: Option<unsafe extern "C" fn(*mut c_void)>,
    run: unsafe extern "C" fn(*mut c_void, u32),
    deactivate: Option<unsafe extern "C" fn(*mut c_void)>,
    cleanup: unsafe extern "C" fn(*mut c_void),
    extension_data: Option<unsafe extern "C" fn(*const c_char) -> *const c_void>,
}

type Entry = unsafe extern "C" fn(u32) -> *const Descriptor;

/// The library as a host loads it.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// What cargo has built beside this test.
    pub(crate) fn path() -> PathBuf {
        std::env::current_exe().unwrap().with_file_name("libaulos_lv2.so")
    }

    pub(crate) fn load() -> Self {
        let path = CString::new(Self::path().to_str().unwrap()).unwrap();
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{}", Self::path().display());
        Self(library)
    }

    pub(crate) fn entry(&self) -> Entry {
        let symbol = unsafe { libc::dlsym(self.0, c"lv2_descriptor".as_ptr()) };
        assert!(!symbol.is_null());
        unsafe { std::mem::transmute::<*mut c_void, Entry>(symbol) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// The library that is linked, with the allocator of this program.
pub(crate) fn linked() -> Entry {
    let entry: extern "C" fn(u32) -> *const aulos_lv2::Descriptor = aulos_lv2::lv2_descriptor;
    unsafe { std::mem::transmute(entry) }
}

/// One instance, with a buffer for each control port.
pub(crate) struct Host {
    pub(crate) plugin: &'static PluginInfo,
    descriptor: &'static Descriptor,
    pub(crate) instance: *mut c_void,
    controls: Box<[f32]>,
}

impl Host {
    /// An instance at 48 kHz with all controls at their defaults, activated.
    pub(crate) fn new(entry: Entry, uri: &str) -> Self {
        let mut host = Self::instantiate(entry, uri, 48_000.0).unwrap();
        host.activate();
        host
    }

    /// `None` if the plug-in refuses the rate.
    pub(crate) fn instantiate(entry: Entry, uri: &str, rate: f64) -> Option<Self> {
        let plugin = PLUGINS.iter().find(|plugin| plugin.uri.to_str() == Ok(uri)).unwrap();
        let all = (0..).map(|index| unsafe { entry(index).as_ref() }).map_while(|found| found);
        let uri_of = |found: &&Descriptor| unsafe { CStr::from_ptr(found.uri) } == plugin.uri;
        let descriptor = all.into_iter().find(uri_of).unwrap();
        assert!(descriptor.extension_data.is_none() && descriptor.deactivate.is_none());
        let features = [std::ptr::null::<c_void>()];
        let instance = unsafe {
            (descriptor.instantiate)(descriptor, rate, c"/tmp/".as_ptr(), features.as_ptr())
        };
        let ports = plugin.inputs().iter().chain(plugin.outputs());
        let controls: Box<[f32]> = ports.map(|port| port.default).collect();
        let mut host = Self { plugin, descriptor, instance, controls };
        if host.instance.is_null() {
            return None;
        }
        for place in 0..host.controls.len() {
            let data = &raw mut host.controls[place];
            host.connect(host.first_control() + place, data);
        }
        Some(host)
    }

    pub(crate) fn activate(&mut self) {
        unsafe { (self.descriptor.activate.unwrap())(self.instance) };
    }

    pub(crate) fn connect(&mut self, port: usize, data: *mut f32) {
        let port = u32::try_from(port).unwrap();
        unsafe { (self.descriptor.connect_port)(self.instance, port, data.cast()) };
    }

    pub(crate) fn first_control(&self) -> usize {
        2 * self.plugin.channels
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = &'static ControlPort> + use<> {
        self.plugin.inputs().iter().chain(self.plugin.outputs())
    }

    pub(crate) fn control(&mut self, symbol: &str) -> &mut f32 {
        let place = self.ports().position(|port| port.symbol == symbol).unwrap();
        &mut self.controls[place]
    }

    /// Runs one block of planes, from some buffers to others.
    pub(crate) fn run(&mut self, input: &mut [Vec<f32>], output: &mut [Vec<f32>], frames: usize) {
        let channels = self.plugin.channels;
        for channel in 0..channels {
            assert!(input[channel].len() >= frames && output[channel].len() >= frames);
            self.connect(channel, input[channel].as_mut_ptr());
            self.connect(channels + channel, output[channel].as_mut_ptr());
        }
        self.run_connected(frames);
    }

    pub(crate) fn run_connected(&mut self, frames: usize) {
        unsafe { (self.descriptor.run)(self.instance, u32::try_from(frames).unwrap()) };
    }

    /// Plays an interleaved programme in blocks of these sizes, in turn.
    pub(crate) fn play(&mut self, programme: &[f32], sizes: &[usize]) -> Vec<f32> {
        let channels = self.plugin.channels;
        let longest = sizes.iter().copied().max().unwrap();
        let mut input = vec![vec![0.0; longest]; channels];
        let mut output = input.clone();
        let (mut out, mut at) = (Vec::with_capacity(programme.len()), 0);
        for size in sizes.iter().copied().cycle() {
            let frames = size.min((programme.len() - at) / channels);
            if frames == 0 {
                return out;
            }
            let block = &programme[at..at + frames * channels];
            for (place, sample) in block.iter().enumerate() {
                input[place % channels][place / channels] = *sample;
            }
            self.run(&mut input, &mut output, frames);
            for frame in 0..frames {
                out.extend(output.iter().map(|plane| plane[frame]));
            }
            at += block.len();
        }
        out
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        unsafe { (self.descriptor.cleanup)(self.instance) };
    }
}
