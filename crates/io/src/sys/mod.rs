//! The few calls that no safe library of ours offers.

#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod imp;

#[cfg(not(target_os = "linux"))]
#[path = "fallback.rs"]
mod imp;

pub(crate) use imp::{
    enable_zero_copy, end_with_parent, read_error, send_zero_copy, set_notsent_lowat,
    take_descriptor, tcp_account,
};

/// What the kernel knows of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpAccount {
    pub(crate) round_trip_us: u32,
    pub(crate) variation_us: u32,
    pub(crate) retransmitted: u32,
    pub(crate) unsent_bytes: u32,
}
