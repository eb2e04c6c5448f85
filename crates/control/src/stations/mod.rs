//! The stations: what each plays, its titles, sound, inputs and outputs, and the streams that calls add.

pub(crate) mod activity;
pub(crate) mod art;
pub(crate) mod djs;
pub(crate) mod event_log;
pub(crate) mod fallback;
pub(crate) mod level_json;
pub(crate) mod log;
pub(crate) mod playback;
pub mod plugin;
pub(crate) mod pushes;
pub(crate) mod radio;
pub(crate) mod rtp;
pub(crate) mod slot;
pub(crate) mod sound;
pub(crate) mod streams;
pub mod titles;
