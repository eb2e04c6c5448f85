//! ALSA's library, loaded when it is wanted: the program is neither linked with it nor built
//! against it.
//!
//! The functions and their types are those of `alsa/pcm.h`, `alsa/control.h` and `alsa/error.h`;
//! soname 2 has had them since 1.0.27. All calls are here, behind functions that are safe.

#![allow(unsafe_code, reason = "a library of C functions")]
#![allow(clippy::useless_conversion, reason = "a long has 32 bits on some systems")]

use core::fmt;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use aulos_core::{ChannelLayout, Frames, Instant, SampleFormat, SampleRate, SampleSpec};
use aulos_rt::DynamicLibrary;

use super::pcm::{self, PcmConfig, PcmStatus, format_number};

/// What the library allocates and knows alone.
type Handle = *mut c_void;
type New = unsafe extern "C" fn(*mut Handle) -> c_int;
type Free = unsafe extern "C" fn(Handle);
type Call = unsafe extern "C" fn(Handle) -> c_int;
type Call2 = unsafe extern "C" fn(Handle, Handle) -> c_int;
type Set = unsafe extern "C" fn(Handle, Handle, c_int) -> c_int;
type SetUnsigned = unsafe extern "C" fn(Handle, Handle, c_uint) -> c_int;
type SetFrames = unsafe extern "C" fn(Handle, Handle, c_ulong) -> c_int;
type SetNear = unsafe extern "C" fn(Handle, Handle, *mut c_uint, *mut c_int) -> c_int;
type SetFramesNear = unsafe extern "C" fn(Handle, Handle, *mut c_ulong) -> c_int;
type SetPeriodNear = unsafe extern "C" fn(Handle, Handle, *mut c_ulong, *mut c_int) -> c_int;
type ErrorHandler = unsafe extern "C" fn(*const c_char, c_int, *const c_char, c_int, *const c_char);

/// The functions in use, each with its type.
macro_rules! functions {
    ($($field:ident: $name:literal, $type:ty;)*) => {
        /// The loaded library.
        pub(super) struct Alsa {
            $($field: $type,)*
            /// Behind the functions: it is closed last.
            _library: DynamicLibrary,
        }

        impl Alsa {
            /// Loads the library; `None` if it is missing or too old.
            pub(super) fn load() -> Option<Arc<Self>> {
                // SAFETY: ALSA's initializers have no conditions.
                let library = unsafe { DynamicLibrary::open(SONAME) }?;
                let this = Self {
                    // SAFETY: the functions have these types.
                    $($field: unsafe { library.function::<$type>($name) }?,)*
                    _library: library,
                };
                // SAFETY: the function that is set takes the first arguments of those that the
                // library passes, and callers remove their arguments themselves.
                unsafe { (this.set_error_handler)(Some(ignore)) };
                Some(Arc::new(this))
            }
        }
    };
}

functions! {
    open: c"snd_pcm_open", unsafe extern "C" fn(*mut Handle, *const c_char, c_int, c_int) -> c_int;
    close: c"snd_pcm_close", Call;
    strerror: c"snd_strerror", unsafe extern "C" fn(c_int) -> *const c_char;
    set_error_handler: c"snd_lib_error_set_handler",
        unsafe extern "C" fn(Option<ErrorHandler>) -> c_int;
    hw_new: c"snd_pcm_hw_params_malloc", New;
    hw_free: c"snd_pcm_hw_params_free", Free;
    hw_any: c"snd_pcm_hw_params_any", Call2;
    hw_access: c"snd_pcm_hw_params_set_access", Set;
    hw_format: c"snd_pcm_hw_params_set_format", Set;
    hw_channels: c"snd_pcm_hw_params_set_channels", SetUnsigned;
    hw_channels_near: c"snd_pcm_hw_params_set_channels_near",
        unsafe extern "C" fn(Handle, Handle, *mut c_uint) -> c_int;
    hw_rate: c"snd_pcm_hw_params_set_rate_near", SetNear;
    hw_buffer: c"snd_pcm_hw_params_set_buffer_size_near", SetFramesNear;
    hw_period: c"snd_pcm_hw_params_set_period_size_near", SetPeriodNear;
    hw_install: c"snd_pcm_hw_params", Call2;
    sw_new: c"snd_pcm_sw_params_malloc", New;
    sw_free: c"snd_pcm_sw_params_free", Free;
    sw_current: c"snd_pcm_sw_params_current", Call2;
    sw_start: c"snd_pcm_sw_params_set_start_threshold", SetFrames;
    sw_tstamp_mode: c"snd_pcm_sw_params_set_tstamp_mode", Set;
    sw_tstamp_type: c"snd_pcm_sw_params_set_tstamp_type", Set;
    sw_install: c"snd_pcm_sw_params", Call2;
    prepare: c"snd_pcm_prepare", Call;
    start: c"snd_pcm_start", Call;
    drop: c"snd_pcm_drop", Call;
    avail: c"snd_pcm_avail_update", unsafe extern "C" fn(Handle) -> c_long;
    writei: c"snd_pcm_writei", unsafe extern "C" fn(Handle, *const c_void, c_ulong) -> c_long;
    readi: c"snd_pcm_readi", unsafe extern "C" fn(Handle, *mut c_void, c_ulong) -> c_long;
    status_new: c"snd_pcm_status_malloc", New;
    status_free: c"snd_pcm_status_free", Free;
    status: c"snd_pcm_status", Call2;
    status_state: c"snd_pcm_status_get_state", Call;
    status_delay: c"snd_pcm_status_get_delay", unsafe extern "C" fn(Handle) -> c_long;
    status_time: c"snd_pcm_status_get_htstamp", unsafe extern "C" fn(Handle, *mut Timestamp);
    hints: c"snd_device_name_hint",
        unsafe extern "C" fn(c_int, *const c_char, *mut *mut Handle) -> c_int;
    hint: c"snd_device_name_get_hint",
        unsafe extern "C" fn(Handle, *const c_char) -> *mut c_char;
    hints_free: c"snd_device_name_free_hint", unsafe extern "C" fn(*mut Handle) -> c_int;
}

/// A `timespec`, whichever size its fields have in the library: there is room for both.
#[repr(C, align(8))]
#[derive(Default)]
struct Timestamp([u8; 32]);

/// The library would print its messages to standard error, one for each attempt to open a device.
unsafe extern "C" fn ignore(
    _file: *const c_char,
    _line: c_int,
    _function: *const c_char,
    _error: c_int,
    _format: *const c_char,
) {
}

impl fmt::Debug for Alsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alsa")
    }
}

impl Alsa {
    /// An error of the library, which has the system's numbers and some of its own.
    fn error(&self, code: c_int) -> io::Error {
        if code == -libc::ENOENT {
            return io::Error::new(io::ErrorKind::NotFound, "no such device");
        }
        let system = io::Error::from_raw_os_error(code.saturating_neg());
        if code > FIRST_OWN_ERROR {
            return system;
        }
        // SAFETY: the function takes any number.
        let text = unsafe { (self.strerror)(code) };
        if text.is_null() {
            return system;
        }
        // SAFETY: it is a text of the library that lasts as long as that.
        io::Error::other(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    fn check(&self, code: c_int) -> io::Result<()> {
        if code < 0 { Err(self.error(code)) } else { Ok(()) }
    }

    /// The devices of a direction, with their descriptions.
    pub(super) fn devices(&self, direction: Direction) -> io::Result<Vec<(String, String)>> {
        let mut hints = null_mut();
        // SAFETY: the name ends with 0, and the result has room for the pointer.
        self.check(unsafe { (self.hints)(ALL_CARDS, c"pcm".as_ptr(), &raw mut hints) })?;
        let mut devices = Vec::new();
        let mut at = hints;
        // SAFETY: the list ends with a null pointer.
        while let Some(hint) = NonNull::new(unsafe { *at }) {
            // Without a direction it has both.
            if self.hint(hint, c"IOID").is_none_or(|name| name == direction.name()) {
                let description = self.hint(hint, c"DESC").unwrap_or_default();
                devices.extend(self.hint(hint, c"NAME").map(|name| (name, description)));
            }
            // SAFETY: the end of the list was not reached.
            at = unsafe { at.add(1) };
        }
        // SAFETY: the list is that of the library, and is not used after this.
        unsafe { (self.hints_free)(hints) };
        Ok(devices)
    }

    fn hint(&self, hint: NonNull<c_void>, name: &CStr) -> Option<String> {
        // SAFETY: the hint is one of a list that exists, and the name ends with 0.
        let text = NonNull::new(unsafe { (self.hint)(hint.as_ptr(), name.as_ptr()) })?;
        // SAFETY: the library has made it, with a 0 at its end.
        let owned = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
        // SAFETY: the caller of the library frees it, and it is not used after this.
        unsafe { libc::free(text.as_ptr().cast()) };
        Some(owned)
    }
}

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// It must take what it is given.
    Playback,
    /// It delivers the nearest of what is asked for.
    Capture,
}

impl Direction {
    /// As the library calls it in its lists.
    const fn name(self) -> &'static str {
        match self {
            Self::Playback => "Output",
            Self::Capture => "Input",
        }
    }

    /// `snd_pcm_stream_t`.
    const fn number(self) -> c_int {
        match self {
            Self::Playback => 0,
            Self::Capture => 1,
        }
    }
}

/// An open device. It does not block.
#[derive(Debug)]
pub(super) struct Pcm {
    alsa: Arc<Alsa>,
    direction: Direction,
    handle: NonNull<c_void>,
    status: Allocated,
}

// SAFETY: a handle has no ties to the thread that opened it. It is not `Sync`, which keeps two
// threads from using it at once.
unsafe impl Send for Pcm {}

/// One of the library's opaque structures.
#[derive(Debug)]
struct Allocated {
    pointer: NonNull<c_void>,
    free: Free,
}

impl Allocated {
    fn new(new: New, free: Free) -> io::Result<Self> {
        let mut pointer = null_mut();
        // SAFETY: the result has room for the pointer.
        unsafe { new(&raw mut pointer) };
        let pointer = NonNull::new(pointer).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { pointer, free })
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: `new` has made it, and it is not used after this.
        unsafe { (self.free)(self.pointer.as_ptr()) };
    }
}

impl Pcm {
    /// Opens a device.
    pub(super) fn open(alsa: &Arc<Alsa>, device: &str, direction: Direction) -> io::Result<Self> {
        let name = CString::new(device)?;
        let status = Allocated::new(alsa.status_new, alsa.status_free)?;
        let mut handle = null_mut();
        // SAFETY: the name ends with 0, and the result has room for the pointer.
        let code =
            unsafe { (alsa.open)(&raw mut handle, name.as_ptr(), direction.number(), NONBLOCK) };
        alsa.check(code)?;
        let handle = NonNull::new(handle).ok_or_else(|| io::Error::other("no handle"))?;
        Ok(Self { alsa: Arc::clone(alsa), direction, handle, status })
    }

    /// Sets what it plays or records: `spec` in the first of the formats that it takes. A device
    /// that plays has exactly its rate and channels, one that records the nearest.
    pub(super) fn configure(
        &self,
        wanted: PcmConfig,
        formats: &[SampleFormat],
    ) -> io::Result<PcmConfig> {
        let params = Allocated::new(self.alsa.hw_new, self.alsa.hw_free)?;
        let granted = self.set_hardware(&params, wanted, formats)?;
        let params = Allocated::new(self.alsa.sw_new, self.alsa.sw_free)?;
        self.set_software(&params)?;
        Ok(granted)
    }

    fn set_hardware(
        &self,
        params: &Allocated,
        wanted: PcmConfig,
        formats: &[SampleFormat],
    ) -> io::Result<PcmConfig> {
        let (alsa, pcm, params) = (&self.alsa, self.handle.as_ptr(), params.pointer.as_ptr());
        let mut spec = wanted.spec;
        // SAFETY: here and below, both pointers are those of an open device and of parameters.
        alsa.check(unsafe { (alsa.hw_any)(pcm, params) })?;
        // SAFETY: as above.
        alsa.check(unsafe { (alsa.hw_access)(pcm, params, RW_INTERLEAVED) })?;
        spec.layout = self.set_channels(params, spec.layout)?;
        let takes = |format: &&SampleFormat| {
            // SAFETY: as above.
            unsafe { (alsa.hw_format)(pcm, params, format_number(**format).into()) >= 0 }
        };
        spec.format =
            *formats.iter().find(takes).ok_or_else(|| unsupported("16, 24 or 32 bits", ""))?;
        let mut hz = spec.rate.hz();
        // SAFETY: as above, and the rate is read and written.
        let code = unsafe { (alsa.hw_rate)(pcm, params, &raw mut hz, null_mut()) };
        alsa.check(code)?;
        if hz != spec.rate.hz() && self.direction == Direction::Playback {
            return Err(unsupported(&spec.rate.to_string(), &format!(", the nearest is {hz} Hz")));
        }
        spec.rate = SampleRate::new(hz).map_err(io::Error::other)?;
        let mut buffer = frames_number(wanted.buffer);
        // SAFETY: as above, and the number is read and written.
        alsa.check(unsafe { (alsa.hw_buffer)(pcm, params, &raw mut buffer) })?;
        let mut period = frames_number(wanted.period);
        // SAFETY: as above.
        let code = unsafe { (alsa.hw_period)(pcm, params, &raw mut period, null_mut()) };
        alsa.check(code)?;
        // SAFETY: as above.
        alsa.check(unsafe { (alsa.hw_install)(pcm, params) })?;
        let frames = |number: c_ulong| Frames(u64::from(number).max(1));
        Ok(PcmConfig { spec, buffer: frames(buffer), period: frames(period) })
    }

    fn set_channels(&self, params: Handle, wanted: ChannelLayout) -> io::Result<ChannelLayout> {
        let (alsa, pcm) = (&self.alsa, self.handle.as_ptr());
        let mut channels = c_uint::try_from(wanted.channels()).unwrap_or(c_uint::MAX);
        // SAFETY: here and below, both pointers are those of an open device and of parameters.
        if unsafe { (alsa.hw_channels)(pcm, params, channels) } >= 0 {
            return Ok(wanted);
        }
        if self.direction == Direction::Playback {
            return Err(unsupported(&format!("{channels} channels"), ""));
        }
        // SAFETY: as above, and the number is read and written.
        alsa.check(unsafe { (alsa.hw_channels_near)(pcm, params, &raw mut channels) })?;
        ChannelLayout::new(usize::try_from(channels).unwrap_or(usize::MAX))
            .map_err(io::Error::other)
    }

    fn set_software(&self, params: &Allocated) -> io::Result<()> {
        let (alsa, pcm, params) = (&self.alsa, self.handle.as_ptr(), params.pointer.as_ptr());
        // SAFETY: here and below, both pointers are those of an open device and of parameters.
        alsa.check(unsafe { (alsa.sw_current)(pcm, params) })?;
        // SAFETY: as above. It begins when it is told to.
        alsa.check(unsafe { (alsa.sw_start)(pcm, params, c_ulong::MAX >> 1) })?;
        // A device that cannot stamp its status gives no time.
        // SAFETY: as above.
        let _ = unsafe { (alsa.sw_tstamp_mode)(pcm, params, TSTAMP_ENABLE) };
        // SAFETY: as above.
        let _ = unsafe { (alsa.sw_tstamp_type)(pcm, params, TSTAMP_MONOTONIC) };
        // SAFETY: as above.
        alsa.check(unsafe { (alsa.sw_install)(pcm, params) })
    }

    fn call(&mut self, function: Call) -> io::Result<()> {
        // SAFETY: the callers pass functions of an open device.
        self.alsa.check(unsafe { function(self.handle.as_ptr()) })
    }

    /// Prepares it for a start, also after an interruption.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        self.call(self.alsa.prepare)
    }

    pub(super) fn start(&mut self) -> io::Result<()> {
        self.call(self.alsa.start)
    }

    /// Stops at once.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.call(self.alsa.drop)
    }

    /// Frames that it takes now.
    pub(super) fn writable_frames(&mut self) -> io::Result<Frames> {
        // SAFETY: the handle is that of an open device.
        let avail = unsafe { (self.alsa.avail)(self.handle.as_ptr()) };
        self.frames(avail)
    }

    /// Writes whole frames of the granted spec; returns how many it took.
    pub(super) fn write(&mut self, bytes: &[u8], spec: SampleSpec) -> io::Result<Frames> {
        let frames = frames_number(Frames::from(bytes.len() / spec.frame_bytes()));
        let (handle, bytes) = (self.handle.as_ptr(), bytes.as_ptr().cast());
        // SAFETY: `bytes` has so many frames of the spec that was granted.
        let written = unsafe { (self.alsa.writei)(handle, bytes, frames) };
        if written == c_long::from(-libc::EAGAIN) {
            return Ok(Frames::ZERO);
        }
        self.frames(written)
    }

    /// Reads whole frames of the granted spec; returns how many there were.
    pub(super) fn read(&mut self, into: &mut [u8], spec: SampleSpec) -> io::Result<Frames> {
        let frames = frames_number(Frames::from(into.len() / spec.frame_bytes()));
        let (handle, into) = (self.handle.as_ptr(), into.as_mut_ptr().cast());
        // SAFETY: `into` has room for so many frames of the spec that was granted.
        let read = unsafe { (self.alsa.readi)(handle, into, frames) };
        if read == c_long::from(-libc::EAGAIN) {
            return Ok(Frames::ZERO);
        }
        self.frames(read)
    }

    fn frames(&self, result: c_long) -> io::Result<Frames> {
        let code = c_int::try_from(result.min(0)).unwrap_or(c_int::MIN);
        self.alsa.check(code)?;
        Ok(Frames(u64::try_from(result).unwrap_or(0)))
    }

    pub(super) fn status(&self) -> io::Result<PcmStatus> {
        let (alsa, pcm, status) = (&self.alsa, self.handle.as_ptr(), self.status.pointer.as_ptr());
        // SAFETY: both pointers are those of an open device and of a status.
        alsa.check(unsafe { (alsa.status)(pcm, status) })?;
        let mut time = Timestamp::default();
        // SAFETY: the status was filled, and the result has room for a time.
        unsafe { (alsa.status_time)(status, &raw mut time) };
        // SAFETY: the status was filled.
        let state = unsafe { (alsa.status_state)(status) };
        // SAFETY: the status was filled.
        let delay = unsafe { (alsa.status_delay)(status) };
        Ok(PcmStatus { is_running: state == RUNNING, delay: i64::from(delay), at: time.instant() })
    }
}

impl pcm::Pcm for Pcm {
    fn configure(&mut self, wanted: PcmConfig, formats: &[SampleFormat]) -> io::Result<PcmConfig> {
        Self::configure(self, wanted, formats)
    }

    fn prepare(&mut self) -> io::Result<()> {
        Self::prepare(self)
    }

    fn start(&mut self) -> io::Result<()> {
        Self::start(self)
    }

    fn stop(&mut self) -> io::Result<()> {
        Self::stop(self)
    }

    fn writable_frames(&mut self) -> io::Result<Frames> {
        Self::writable_frames(self)
    }

    fn write(&mut self, bytes: &[u8], spec: SampleSpec) -> io::Result<Frames> {
        Self::write(self, bytes, spec)
    }

    fn status(&mut self) -> io::Result<PcmStatus> {
        Self::status(self)
    }
}

impl Timestamp {
    /// The time in the library's fields, as the C library for which this program is built has them.
    fn instant(&self) -> Instant {
        const FIELD: usize = size_of::<libc::timespec>() / 2;
        let field = |at: usize| {
            let mut bytes = [0; 8];
            let value = &self.0[at * FIELD..(at + 1) * FIELD];
            if cfg!(target_endian = "little") {
                bytes[..FIELD].copy_from_slice(value);
            } else {
                bytes[8 - FIELD..].copy_from_slice(value);
            }
            u64::from_ne_bytes(bytes)
        };
        Instant::from_nanos(field(0).saturating_mul(1_000_000_000).saturating_add(field(1)))
    }
}

impl Drop for Pcm {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and is not used after this.
        unsafe { (self.alsa.close)(self.handle.as_ptr()) };
    }
}

fn unsupported(what: &str, nearest: &str) -> io::Error {
    let text = format!("it does not take {what}{nearest}; a `plug` device converts");
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn frames_number(frames: Frames) -> c_ulong {
    c_ulong::try_from(frames.0).unwrap_or(c_ulong::MAX >> 1)
}

const SONAME: &CStr = c"libasound.so.2";

/// The mode of opening, `snd_pcm_access_t`, `snd_pcm_tstamp_t`, `snd_pcm_tstamp_type_t`,
/// `snd_pcm_state_t`.
const NONBLOCK: c_int = 1;
const RW_INTERLEAVED: c_int = 3;
const TSTAMP_ENABLE: c_int = 1;
const TSTAMP_MONOTONIC: c_int = 1;
const RUNNING: c_int = 3;

const ALL_CARDS: c_int = -1;

/// `SND_ERROR_BEGIN`: below are the library's own errors.
const FIRST_OWN_ERROR: c_int = -500_000;
