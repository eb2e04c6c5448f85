//! An input of the switch.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;

use crate::lock::lock;
use crate::pcm::PcmSpec;

glib::wrapper! {
    /// The pad.
    pub(super) struct FallbackPad(ObjectSubclass<FallbackPadImp>)
        @extends gst_base::AggregatorPad, gst::Pad, gst::Object;
}

#[derive(Default)]
pub(super) struct FallbackPadImp {
    priority: AtomicU32,
    healthy: AtomicBool,
    format: Mutex<Option<(gst::Caps, PcmSpec)>>,
}

#[glib::object_subclass]
impl ObjectSubclass for FallbackPadImp {
    const NAME: &'static str = "GstAulosFallbackPad";
    type Type = FallbackPad;
    type ParentType = gst_base::AggregatorPad;
}

impl ObjectImpl for FallbackPadImp {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            vec![
                glib::ParamSpecUInt::builder("priority")
                    .nick("Priority")
                    .blurb("Priority of the input; the lowest number has the highest priority")
                    .mutable_playing()
                    .build(),
                glib::ParamSpecBoolean::builder("is-healthy")
                    .nick("Is healthy")
                    .blurb("Whether the input may be played")
                    .read_only()
                    .build(),
            ]
        });
        &PROPERTIES
    }

    fn set_property(&self, _id: usize, value: &glib::Value, _pspec: &glib::ParamSpec) {
        // Only the priority can be written.
        self.priority.store(value.get().unwrap_or_default(), Ordering::Relaxed);
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        match pspec.name() {
            "priority" => self.priority.load(Ordering::Relaxed).to_value(),
            _ => self.healthy.load(Ordering::Relaxed).to_value(),
        }
    }
}

impl GstObjectImpl for FallbackPadImp {}
impl PadImpl for FallbackPadImp {}
impl AggregatorPadImpl for FallbackPadImp {}

impl FallbackPad {
    pub(super) fn priority(&self) -> u32 {
        self.imp().priority.load(Ordering::Relaxed)
    }

    /// Caps of the buffer that is taken next; those of the pad itself are of what comes last.
    pub(super) fn format(&self) -> Option<(gst::Caps, PcmSpec)> {
        lock(&self.imp().format).clone()
    }

    pub(super) fn set_format(&self, caps: Option<&gst::CapsRef>) {
        let format = caps.and_then(|caps| Some((caps.to_owned(), PcmSpec::from_caps(caps)?)));
        *lock(&self.imp().format) = format;
    }

    /// Sets whether it is healthy, and emits the notification of a change.
    pub(super) fn set_healthy(&self, healthy: bool) {
        if self.imp().healthy.swap(healthy, Ordering::Relaxed) != healthy {
            self.notify("is-healthy");
        }
    }
}
