//! System calls that none of the safe libraries in use offers.

#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod imp;

#[cfg(not(target_os = "linux"))]
#[path = "fallback.rs"]
mod imp;

#[cfg(target_os = "linux")]
#[path = "udp_linux.rs"]
mod udp;

#[cfg(not(target_os = "linux"))]
#[path = "udp_fallback.rs"]
mod udp;

mod lame;

use std::net::SocketAddr;
use std::ops::Range;

pub(crate) use imp::{
    CloseWatch, enable_zero_copy, map_allocations_from, read_error, release_free_memory,
    send_zero_copy, set_notsent_lowat, take_inherited, tcp_account,
};
pub(crate) use lame::{Lame, LameConfig};
pub(crate) use udp::{
    Receiver, Sender, receive_joined, report_losses, share_by_ssrc, stamp_arrivals,
    timestamp_clock_offset_nanos,
};

/// One or more datagrams to one destination.
#[derive(Clone, Debug)]
pub(crate) struct SendMessage {
    pub(crate) to: SocketAddr,
    /// The range of their bytes.
    pub(crate) bytes: Range<usize>,
    /// The length of each datagram if there are several; the last one may be shorter.
    pub(crate) segment: Option<u16>,
}

/// The kernel's statistics of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    pub(crate) round_trip_us: u32,
    pub(crate) round_trip_variation_us: u32,
    pub(crate) retransmitted: u32,
    pub(crate) unsent_bytes: u32,
}
