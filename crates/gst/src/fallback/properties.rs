//! The properties of the switch.

use aulos_core::{Db, Span};
use aulos_dsp::silence::SilenceConfig;
use aulos_engine::switch::{FailbackMode, SwitchConfig};
use gst::glib;
use gst::prelude::*;

use super::mixer::MixerConfig;
use super::pad::FallbackPad;
use crate::time_map::{clock_time, nanoseconds, span};

/// Values of the properties.
#[derive(Clone, Debug)]
pub(super) struct FallbackProperties {
    pub(super) timeout: gst::ClockTime,
    pub(super) failback_delay: gst::ClockTime,
    pub(super) crossfade: gst::ClockTime,
    pub(super) silence_threshold: f64,
    pub(super) silence_timeout: gst::ClockTime,
    pub(super) immediate_fallback: bool,
    pub(super) auto_switch: bool,
    pub(super) stop_on_eos: bool,
    /// A request of the application, until it is carried out: for a pad, or to choose again.
    pub(super) active_pad: Option<Option<FallbackPad>>,
}

impl Default for FallbackProperties {
    fn default() -> Self {
        let (silence, switch) = (SilenceConfig::default(), SwitchConfig::default());
        Self {
            timeout: gst::ClockTime::SECOND,
            failback_delay: nanoseconds(switch.failback_delay),
            crossfade: gst::ClockTime::from_mseconds(20),
            silence_threshold: silence.threshold.get(),
            silence_timeout: nanoseconds(silence.duration),
            immediate_fallback: false,
            auto_switch: true,
            stop_on_eos: false,
            active_pad: None,
        }
    }
}

impl FallbackProperties {
    pub(super) fn config(&self) -> MixerConfig {
        let wait = if self.immediate_fallback { Span::ZERO } else { span(self.timeout) };
        let silence = SilenceConfig {
            threshold: Db::new(self.silence_threshold),
            duration: span(self.silence_timeout),
            ..SilenceConfig::default()
        };
        MixerConfig {
            switch: SwitchConfig {
                failback_delay: span(self.failback_delay),
                failback: FailbackMode::Auto,
                startup_wait: Some(wait),
            },
            crossfade: span(self.crossfade),
            silence: (!self.silence_timeout.is_zero()).then_some(silence),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: &glib::Value) {
        // GObject has checked type and range; what is not a property never comes here.
        let time = |into: &mut gst::ClockTime| {
            *into = value.get().ok().and_then(clock_time).unwrap_or(gst::ClockTime::MAX);
        };
        match name {
            "timeout" => time(&mut self.timeout),
            "failback-delay" => time(&mut self.failback_delay),
            "crossfade" => time(&mut self.crossfade),
            "silence-timeout" => time(&mut self.silence_timeout),
            "silence-threshold" => self.silence_threshold = value.get().unwrap_or(-60.0),
            "immediate-fallback" => self.immediate_fallback = value.get().unwrap_or(false),
            "auto-switch" => self.auto_switch = value.get().unwrap_or(true),
            "stop-on-eos" => self.stop_on_eos = value.get().unwrap_or(false),
            _ => {
                let pad = value.get::<Option<gst::Pad>>().ok().flatten();
                self.active_pad = Some(pad.and_then(|pad| pad.downcast().ok()));
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> glib::Value {
        match name {
            "timeout" => self.timeout.nseconds().to_value(),
            "failback-delay" => self.failback_delay.nseconds().to_value(),
            "crossfade" => self.crossfade.nseconds().to_value(),
            "silence-timeout" => self.silence_timeout.nseconds().to_value(),
            "silence-threshold" => self.silence_threshold.to_value(),
            "immediate-fallback" => self.immediate_fallback.to_value(),
            "auto-switch" => self.auto_switch.to_value(),
            _ => self.stop_on_eos.to_value(),
        }
    }

    pub(super) fn specs() -> Vec<glib::ParamSpec> {
        let mut all = switches();
        all.extend(times());
        all.push(
            glib::ParamSpecDouble::builder("silence-threshold")
                .nick("Silence threshold")
                .blurb("RMS level in dBFS below which an input is silent")
                .minimum(-120.0)
                .maximum(0.0)
                .default_value(Self::default().silence_threshold)
                .mutable_ready()
                .build(),
        );
        all
    }
}

fn switches() -> Vec<glib::ParamSpec> {
    let switch = |name, nick, blurb, default| {
        let builder = glib::ParamSpecBoolean::builder(name).nick(nick).blurb(blurb);
        builder.default_value(default).mutable_playing().build()
    };
    vec![
        glib::ParamSpecObject::builder::<gst::Pad>("active-pad")
            .nick("Active pad")
            .blurb(
                "The input that is played; one that is set is played until it fails or ends, or \
                 none is set",
            )
            .mutable_playing()
            .build(),
        switch(
            "auto-switch",
            "Automatic switch",
            "Choose by priority and health; otherwise only by the property active-pad",
            true,
        ),
        switch(
            "immediate-fallback",
            "Immediate fallback",
            "Do not wait for the input of the highest priority at the start",
            false,
        ),
        glib::ParamSpecBoolean::builder("force-live")
            .nick("Force live")
            .blurb(
                "Do not wait for an input that is late, even if no input is live; otherwise all \
                 inputs are awaited then, as for files that are processed in full",
            )
            .default_value(true)
            .mutable_ready()
            .build(),
        switch(
            "stop-on-eos",
            "Stop on EOS",
            "End when one input has ended, not when all have",
            false,
        ),
    ]
}

fn times() -> Vec<glib::ParamSpec> {
    let default = FallbackProperties::default();
    let time = |name, nick, blurb, default: gst::ClockTime| {
        let builder = glib::ParamSpecUInt64::builder(name).nick(nick).blurb(blurb);
        builder.default_value(default.nseconds()).mutable_ready().build()
    };
    vec![
        time(
            "timeout",
            "Timeout",
            "Time to wait for the input of the highest priority at the start, in nanoseconds; \
             later, audio that is missing when it is due is taken from another input at once",
            default.timeout,
        ),
        time(
            "failback-delay",
            "Failback delay",
            "Time that an input must run after a failure before it takes over again, in \
             nanoseconds; doubled with each further failure",
            default.failback_delay,
        ),
        glib::ParamSpecUInt64::builder("crossfade")
            .nick("Cross-fade")
            .blurb("Length of the cross-fade in nanoseconds")
            .maximum(LONGEST_CROSSFADE.nseconds())
            .default_value(default.crossfade.nseconds())
            .mutable_ready()
            .build(),
        time(
            "silence-timeout",
            "Silence timeout",
            "Silence after which an input counts as failed, in nanoseconds; 0 is never",
            default.silence_timeout,
        ),
    ]
}

/// Longer, and two programmes are heard at once.
const LONGEST_CROSSFADE: gst::ClockTime = gst::ClockTime::from_seconds(60);
