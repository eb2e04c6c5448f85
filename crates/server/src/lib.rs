//! One small server that takes any live audio in, keeps it steady, and plays it in sync everywhere.
//!
//! This is the top floor: configuration, registry, control API, page and command line. Everything
//! here runs on one control thread and decides nothing about sound; the floors below run the
//! stations and meet this one in [`house`].

#![forbid(unsafe_code)]

pub mod access;
pub mod audio;
pub mod backend;
pub mod control;
mod dial;
pub mod exit;
pub mod hooks;
pub mod http;
mod icecast;
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
