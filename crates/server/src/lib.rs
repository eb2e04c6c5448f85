//! The server: takes any live audio in, normalizes it, and plays it in sync everywhere.
//!
//! This crate has the registry, the control API and the web page, and starts everything else.
//! The control plane runs on one control thread and makes no decision about audio; the layers
//! below run the stations, and [`backend`] is the interface to them.

#![forbid(unsafe_code)]

pub mod access;
pub mod audio;
pub mod backend;
pub mod control;
mod dial;
pub mod exit;
pub mod feeder;
pub mod hooks;
pub mod http;
mod icecast;
mod markup;
pub mod mdns;
pub mod push;
pub mod radio;
pub mod recording;
pub mod registry;
pub mod relay;
mod saver;
pub mod server;
pub mod state_lock;
pub mod systemd;
pub mod tls;
pub mod upload;
