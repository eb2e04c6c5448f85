//! A child process with its process group.

use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, kill_process_group};

/// A child process that is ended, with its own children, when this is dropped.
#[derive(Debug)]
pub(super) struct ChildGroup(Child);

impl ChildGroup {
    /// The child was made a group of its own by [`isolate_child`](aulos_rt::isolate_child).
    pub(super) const fn new(child: Child) -> Self {
        Self(child)
    }

    /// Its exit status, once it has ended.
    pub(super) fn exit_status(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // The group may be gone already.
            let _ = kill_process_group(group, Signal::TERM);
        }
        // Without it, a child that ignores TERM would block here.
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}
