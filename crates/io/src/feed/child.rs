//! A child process with its process group.

use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use aulos_rt::isolate_child;
use rustix::process::{Pid, Signal, kill_process_group};

use super::process_log::set_nonblocking;

/// A child process that is ended, with its own children, when this is dropped.
#[derive(Debug)]
pub(super) struct ChildGroup(Child);

impl ChildGroup {
    /// Starts a program as a group of its own; returns its output, which does not block, and its
    /// standard error.
    pub(super) fn start(command: &mut Command) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        isolate_child(command);
        let mut group = Self(command.spawn()?);
        let output = group.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let log = group.0.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        set_nonblocking(output.as_fd())?;
        Ok((group, output, log))
    }

    /// Its input, if that is a pipe and was not taken.
    pub(super) const fn take_input(&mut self) -> Option<ChildStdin> {
        self.0.stdin.take()
    }

    /// Its exit status, once it has ended.
    pub(super) fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // The group may be gone already.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::TERM);
        // Without it, a child that ignores TERM would block here.
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}
