//! Black box tests of the built server: code shared by tests, load generator and benchmarks.
//!
//! Nothing here uses another crate of the project. A test that shares code with its subject shares
//! its bugs; the few messages of the protocol that are needed are therefore parsed independently.
//!
//! ```text
//!  AulosServer, Snapserver  running servers    Snapclient, browser, load   clients
//!  signal                   test signals       capture_check               comparison of captures
//!  process_usage            resource usage     alloc           calls of the allocator
//!  icecast                  a real icecast2    stream_load     many listeners of an HTTP stream
//!  ports                    ports for peers          sendspin        clients and servers of Sendspin
//!  sync                     when players sound     syscalls        filter of system calls
//! ```

#![deny(unsafe_code)]

pub mod alloc;
pub mod bench;
pub mod browser;
pub mod capture_check;
pub mod client;
pub mod golden;
pub mod http;
pub mod icecast;
pub mod listeners;
pub mod load;
pub mod lossy_proxy;
pub mod nats;
pub mod nats_cluster;
pub mod net;
pub mod paced_writer;
pub mod peer;
pub mod ports;
pub mod process_usage;
pub mod rtp_calls;
pub mod scratch;
pub mod sendspin;
pub mod server;
pub mod signal;
pub mod stream_load;
pub mod sync;
#[cfg(target_os = "linux")]
pub mod syscalls;
pub mod wire;
