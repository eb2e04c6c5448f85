//! `aulosmeter`: loudness and peaks as messages.

mod element;
mod reading;

use gst::glib;
use gst::prelude::StaticType;

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    let element = element::Meter::static_type();
    gst::Element::register(Some(plugin), "aulosmeter", gst::Rank::NONE, element)
}
