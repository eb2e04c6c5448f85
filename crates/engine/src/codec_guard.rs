//! Contains the panics of third-party codec libraries.
//!
//! A thread has many streams. A panic that unwinds through it ends all of them, so every call of a
//! library that decodes, encodes or parses goes through [`guard`] or a [`GuardedCodec`]. A panic is
//! then an ordinary failure of one packet: the library's state, which may be inconsistent, is
//! replaced, the caller conceals or encodes again, and [`panic_reports`] counts it. Catching panics
//! where the threads run their streams was rejected: a stream whose own state may be inconsistent
//! could only be ended there.
//!
//! Not contained: a panic in a program that is built with `panic = "abort"`, a panic while a panic
//! unwinds, a stack overflow, and faults of C libraries, which end the process.
//!
//! # The panic hook
//! Rust's own hook formats a message, resolves a backtrace if wanted, and writes to standard error
//! under a lock, for as long as that is not read. That must not happen on a thread of sound.
//! [`install_panic_hook`] replaces it for contained panics: it stores the text of the first one of
//! each library, and the program reports it later. All other panics go to the hook that was there
//! before. Why so: docs/decisions/codec-panics.md.

use core::cell::Cell;
use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::{PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use aulos_rt::scratch::outside_scratch;
use portable_atomic::AtomicU64;

/// A row is what a library does, `Variant = "package", "counter of its panics";`.
macro_rules! libraries {
    ($($(#[doc = $doc:literal])+ $library:ident = $name:literal, $counter:literal;)*) => {
        /// A third-party library that decodes, encodes or parses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::exhaustive_enums, reason = "the libraries in use")]
        pub enum CodecLibrary {
            $($(#[doc = $doc])+ $library,)*
        }

        impl CodecLibrary {
            /// All libraries.
            pub const ALL: &'static [Self] = &[$(Self::$library),*];
            /// The names of their packages.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
            /// The counters of their panics, each with the name of the package.
            pub const COUNTERS: &'static [(&'static str, &'static [&'static str])] =
                &[$(($counter, &[$name])),*];

            /// The name of its package.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$library => $name,)*
                }
            }
        }
    };
}

libraries! {
    /// Opus.
    UnsafeLibopus = "unsafe-libopus", "codec_panics_unsafe_libopus";
    /// Encoder of FLAC.
    FlacCodec = "flac-codec", "codec_panics_flac_codec";
    /// Encoder of MP3.
    RustyMp3 = "rusty_mp3", "codec_panics_rusty_mp3";
    /// Containers and decoders of files and web radio.
    Symphonia = "symphonia", "codec_panics_symphonia";
    /// Decoder and encoder of AAC.
    Syom = "syom", "codec_panics_syom";
    /// Tags of files.
    Lofty = "lofty", "codec_panics_lofty";
    /// Pictures.
    Image = "image", "codec_panics_image";
}

/// A library panicked. What it was working on has to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a fact without data")]
pub struct CodecPanic;

impl fmt::Display for CodecPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the codec library panicked")
    }
}

impl core::error::Error for CodecPanic {}

/// Calls a library. A panic inside is counted.
///
/// # Real-time
/// Neither allocates nor locks. A panic does both, in Rust's runtime.
///
/// # Errors
/// [`CodecPanic`] when the library panicked.
pub fn guard<R>(library: CodecLibrary, work: impl FnOnce() -> R) -> Result<R, CodecPanic> {
    let outer = CONTAINED.replace(Some(library));
    let result = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(debug_assertions)]
        fault::strike(library);
        work()
    }));
    CONTAINED.set(outer);
    result.map_err(|_| {
        library.record().count.fetch_add(1, Relaxed);
        CodecPanic
    })
}

/// An encoder or decoder of a library, replaced by a new one whenever it panics.
pub struct GuardedCodec<T> {
    library: CodecLibrary,
    make: Box<dyn Fn() -> Option<T> + Send + Sync>,
    /// None after the library has failed to make a new one.
    codec: Option<T>,
    panics: u64,
}

impl<T> GuardedCodec<T> {
    /// Creates a codec with `make`, which also makes its replacements. `None` when the library
    /// refuses.
    pub fn new(
        library: CodecLibrary,
        make: impl Fn() -> Option<T> + Send + Sync + 'static,
    ) -> Option<Self> {
        let mut codec = Self { library, make: Box::new(make), codec: None, panics: 0 };
        codec.restart();
        codec.codec.is_some().then_some(codec)
    }

    /// Calls the codec.
    ///
    /// # Real-time
    /// As [`guard`]; after a panic the new codec allocates.
    ///
    /// # Errors
    /// [`CodecPanic`] when the library panicked; the codec is a new one then.
    pub fn call<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> Result<R, CodecPanic> {
        let Some(codec) = &mut self.codec else {
            self.restart();
            return Err(CodecPanic);
        };
        let result = guard(self.library, || work(codec));
        if result.is_err() {
            self.panics += 1;
            self.restart();
        }
        result
    }

    /// Calls the codec, and after a panic the new one: for encoders, whose input is not damaged.
    ///
    /// # Real-time
    /// As [`Self::call`].
    ///
    /// # Errors
    /// [`CodecPanic`] when the library panicked twice.
    pub fn call_again<R>(&mut self, mut work: impl FnMut(&mut T) -> R) -> Result<R, CodecPanic> {
        self.call(&mut work).or_else(|CodecPanic| self.call(work))
    }

    /// Replaces the codec by a new one. Allocates.
    pub fn restart(&mut self) {
        let old = self.codec.take();
        // The destructor of a codec that panicked is the library's code as well.
        let made = guard(self.library, || {
            drop(old);
            (self.make)()
        });
        self.codec = made.ok().flatten();
    }

    /// How often the library has panicked.
    #[must_use]
    pub const fn panics(&self) -> u64 {
        self.panics
    }
}

impl<T> fmt::Debug for GuardedCodec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedCodec")
            .field("library", &self.library)
            .field("panics", &self.panics)
            .finish_non_exhaustive()
    }
}

/// The contained panics of a library in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PanicReport {
    /// The library.
    pub library: CodecLibrary,
    /// How often it has panicked.
    pub count: u64,
    /// Message and place of the first panic, if [`install_panic_hook`] was called.
    pub first: Option<&'static str>,
}

impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.library.name();
        write!(f, "the library {name} panicked, which is a bug in it")?;
        match self.first {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

/// The libraries of this process that have panicked.
pub fn panic_reports() -> impl Iterator<Item = PanicReport> {
    all_panic_reports().filter(|report| report.count > 0)
}

/// The same of all libraries.
pub fn all_panic_reports() -> impl Iterator<Item = PanicReport> {
    CodecLibrary::ALL.iter().copied().map(|library| {
        let record = library.record();
        let first = record.first.get().map(String::as_str);
        PanicReport { library, count: record.count.load(Relaxed), first }
    })
}

/// Replaces the process's panic hook by one that writes nothing for a contained panic. A program
/// calls it once, before its first thread starts.
pub fn install_panic_hook() {
    let previous = take_hook();
    set_hook(Box::new(move |panic| match CONTAINED.get() {
        // Where a panic ends the process, its message is all that remains.
        Some(library) if cfg!(panic = "unwind") => library.record().store_first(panic),
        _ => previous(panic),
    }));
}

/// What the process knows about the panics of a library. It belongs to the process and not to a
/// stream, because the hook does, and because a bug of a library is to be reported once.
struct PanicRecord {
    count: AtomicU64,
    is_first_taken: AtomicBool,
    first: OnceLock<String>,
}

impl PanicRecord {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            is_first_taken: AtomicBool::new(false),
            first: OnceLock::new(),
        }
    }

    fn store_first(&self, panic: &PanicHookInfo<'_>) {
        // Only one thread gets here, so that none waits for another at the cell. The text outlives
        // the library's call.
        if !self.is_first_taken.swap(true, Relaxed) {
            drop(self.first.set(outside_scratch(|| text_of(panic))));
        }
    }
}

/// Message and place.
fn text_of(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref().map(String::as_str))
        .unwrap_or("no message");
    // What a library says may quote its input.
    let message = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut text: String = message.take(MAX_MESSAGE_CHARS).collect();
    if let Some(place) = panic.location() {
        text += &format!(" ({}:{})", place.file(), place.line());
    }
    text
}

impl CodecLibrary {
    fn record(self) -> &'static PanicRecord {
        &PANICS[self as usize]
    }
}

static PANICS: [PanicRecord; CodecLibrary::ALL.len()] =
    [const { PanicRecord::new() }; CodecLibrary::ALL.len()];

thread_local! {
    /// The library that this thread is calling.
    static CONTAINED: Cell<Option<CodecLibrary>> = const { Cell::new(None) };
}

/// A message is for a line of the log.
const MAX_MESSAGE_CHARS: usize = 200;

/// Panics on purpose, for tests of what follows. Not in an optimized build.
#[cfg(debug_assertions)]
pub mod fault {
    use core::cell::Cell;

    use super::CodecLibrary;

    thread_local! {
        static PLANNED: Cell<Option<(CodecLibrary, u32)>> = const { Cell::new(None) };
    }

    /// Makes a call of `library` on this thread panic: the next one, or a later one after `calls`
    /// others. Replaces what was planned before.
    pub fn plan(library: CodecLibrary, calls: u32) {
        PLANNED.set(Some((library, calls)));
    }

    /// Plans nothing any more on this thread.
    pub fn cancel() {
        PLANNED.set(None);
    }

    /// Whether a panic is still planned on this thread.
    #[must_use]
    pub fn is_planned() -> bool {
        PLANNED.get().is_some()
    }

    #[allow(clippy::panic, reason = "this is what it is for")]
    pub(super) fn strike(library: CodecLibrary) {
        match PLANNED.get() {
            Some((planned, 0)) if planned == library => {
                PLANNED.set(None);
                panic!("planned by a test");
            }
            Some((planned, calls)) if planned == library => {
                PLANNED.set(Some((planned, calls - 1)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
