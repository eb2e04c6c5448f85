//! The built server, seen from outside: what its tests, its load generator and its bench share.
//!
//! Nothing here uses a crate of the house. A judge that shares code with what it judges shares its
//! mistakes; so the few bytes of the wire that are needed are parsed once more, plainly.
//!
//! ```text
//!  Aulos, Snapserver      a running server          Snapclient, browser, load   who listens to it
//!  signal                 what is put in            judge                       what came out
//!  account                what it cost
//! ```

#![forbid(unsafe_code)]

pub mod bench;
pub mod browser;
pub mod capture_check;
pub mod client;
pub mod golden;
pub mod http;
pub mod load;
pub mod net;
pub mod paced_writer;
pub mod peer;
pub mod process_usage;
pub mod rtp_calls;
pub mod scratch;
pub mod server;
pub mod signal;
pub mod wire;
