//! Without the peers: their rows say so.

pub(crate) fn missing(role: &str) -> Option<String> {
    role.ends_with("udpsrc").then(|| "not built: --features gstreamer".into())
}

pub(crate) fn receive(_: &str, _: usize, _: u16, _: impl FnOnce()) {}
