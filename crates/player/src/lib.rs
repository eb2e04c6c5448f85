//! A synchronised player for Snapcast servers, small enough for a router.
//!
//! ```text
//!  server <-- tcp --> link --- bytes ---> aulos_session::player::Player --- frames ---> output
//!                       \________________________ one thread, ppoll ______________________/
//!                                                      |
//!                                 PlayerHandle: stop, events, status (rt::channel, rt::latest)
//! ```
//!
//! What is decided is decided in `aulos-session`, in virtual time; this crate has the clock, the
//! socket and the files, and neither an async runtime nor a file decoder, and TLS only with the
//! feature `tls`. The programs `aulos play` and `aulos-player` are [`play`] with a parser of
//! arguments.
//!
//! # Examples
//! ```no_run
//! use aulos_player::{PlayOptions, PlayerHandle};
//!
//! let options = PlayOptions {
//!     server: "tcp://kitchen.local".parse()?,
//!     ..PlayOptions::new("file:heard.wav".parse()?)
//! };
//! let (config, _) = options.into_config()?;
//! let mut player = PlayerHandle::start(config)?;
//! std::thread::sleep(std::time::Duration::from_secs(10));
//! println!("{:?}", player.status.read().sync_error);
//! player.stop();
//! player.join()?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

// Unsafe code is in `output::alsa::sys`, which calls ALSA's library, and `output::alsa::ioctl`,
// which calls the kernel.

mod address;
#[cfg(any(feature = "alsa", feature = "pulse"))]
mod capture;
mod clock;
mod command;
mod connect_race;
mod discovery;
mod hooks;
mod identity;
mod inbox;
mod link;
mod messages;
mod mixer;
mod options;
mod output;
mod report;
mod thread;
mod tls;
mod transport;

pub use address::{InvalidAddress, Scheme, ServerAddress};
#[cfg(any(feature = "alsa", feature = "pulse"))]
pub use capture::{CaptureBackend, CaptureConfig, CaptureDevice, CaptureError};
pub use command::{
    InvalidOption, PlayError, PlayOutput, parse_format, parse_instance, parse_latency,
    parse_seconds, play, print_devices, print_failure,
};
pub use hooks::HookConfig;
pub use identity::hello;
pub use mixer::{InvalidMixer, Mixer};
pub use options::{DEFAULT_STOP_AFTER, PlayOptions};
pub use output::{DeviceInfo, InvalidOutput, OutputConfig, OutputError, list_devices};
pub use report::{event_message, status_json, status_line};
pub use thread::{PlayConfig, PlayerEvent, PlayerHandle};
pub use tls::{PlayerTlsError, TlsClient, TlsFiles};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
