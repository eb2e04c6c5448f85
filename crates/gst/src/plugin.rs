//! The entry point of the plug-in.

#![allow(missing_docs, reason = "what the macro makes has no documentation")]

use gst::glib;

use crate::{fallback, meter, normalize};

fn plugin_init(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    normalize::register(plugin)?;
    meter::register(plugin)?;
    fallback::register(plugin)
}

gst::plugin_define!(
    aulos,
    env!("CARGO_PKG_DESCRIPTION"),
    plugin_init,
    env!("CARGO_PKG_VERSION"),
    // The one of the two licences whose name GStreamer knows.
    "MIT/X11",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME")
);
