//! The server: takes any live audio in, normalizes it, and plays it in sync everywhere.
//!
//! This crate opens the ports, serves the control API and the web page, and starts everything else.
//! The control plane, [`aulos_control`], runs on one control thread and makes no decision about
//! audio; the layers below run the stations, and [`audio`] joins the two.

#![forbid(unsafe_code)]

pub mod audio;
mod codec_panics;
mod connections;
mod dial;
pub mod exit;
pub mod feeder;
mod file_warnings;
pub mod history;
mod hls;
pub mod hook_runner;
pub mod http;
mod icecast;
mod input_budget;
pub mod log_loss;
pub mod mdns;
mod metrics;
mod mqtt;
mod nats;
mod post;
pub mod push;
pub mod radio;
pub mod relay;
mod saver;
mod sendspin;
pub mod server;
pub mod state_lock;
pub mod systemd;
mod tcp;
mod titles;
pub mod tls;
pub mod upload;
mod url_auth;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
