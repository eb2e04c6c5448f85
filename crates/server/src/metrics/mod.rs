//! `/metrics`: what the server publishes about itself, for Prometheus.
//!
//! One table ([`sections`]) has the name, type, labels, help and getter of every metric; the text,
//! the reference page and the bounds of the number of series follow from it. A registry of a
//! metrics library was the alternative: every value would be kept twice, because the status has
//! them already.

mod clients;
mod hls;
mod nats;
mod process;
mod sections;
mod server;
mod sources;
mod stations;
mod table;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use process::ProcessStatistics;
pub(crate) use table::{RequestCount, Scrape};
pub(crate) use text::{TextFormat, render};
