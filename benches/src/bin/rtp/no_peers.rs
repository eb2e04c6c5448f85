//! Without the peers: their rows say so.

pub(crate) fn missing(role: &str) -> Option<String> {
    let theirs = role.ends_with("udpsrc") || role == "gst-job" || role == "ts-job";
    theirs.then(|| "not built: --features gstreamer".into())
}

pub(crate) fn receive(_: &str, _: usize, _: u16, _: u16, _: impl FnOnce()) {}
