//! The elements in pipelines, beside other programs.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod fallback;
mod guide;
mod meter;
mod normalize;
mod plugin;
mod signals;

/// Initializes GStreamer with our elements.
fn init() {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        gst::init().expect("GStreamer starts");
        gstaulos::plugin_register_static().expect("the plug-in registers");
    });
}
