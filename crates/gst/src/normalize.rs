//! `aulosnormalize`: live loudness normalization.

mod delayed;
mod element;
mod mode;

use gst::glib;
use gst::prelude::StaticType;

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(
        Some(plugin),
        "aulosnormalize",
        gst::Rank::NONE,
        element::Normalize::static_type(),
    )
}
