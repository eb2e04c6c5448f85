//! `aulosfallback`: the best of several inputs.

mod element;
mod mixer;
mod pad;
mod properties;
mod track;

use gst::glib;
use gst::prelude::StaticType;

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    let element = element::Fallback::static_type();
    gst::Element::register(Some(plugin), "aulosfallback", gst::Rank::NONE, element)
}
