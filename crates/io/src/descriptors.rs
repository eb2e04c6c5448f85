//! File descriptors in reserve.
//!
//! Clients must not take the last descriptor: the state could not be saved, and no request for the
//! server's health be answered. A new descriptor gets the lowest free number (POSIX.1-2017, 2.14),
//! so the numbers below the limit can be divided: a port accepts no connection whose number would
//! be in the range that others have in reserve. Counting the open descriptors was rejected: it
//! takes a directory read for each connection.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixDatagram;

use rustix::process::{Resource, getrlimit};

/// What opens a descriptor, by what it leaves free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptorUse {
    /// Requests over HTTP; they leave what files need: the saved state and its folder.
    Http,
    /// The control API and live sources; they also leave some for HTTP.
    Control,
    /// Clients and listeners; they also leave some for control.
    Sound,
}

impl DescriptorUse {
    /// Descriptors that this use leaves free.
    const fn reserve(self) -> u64 {
        RESERVE_STEP
            * match self {
                Self::Http => 1,
                Self::Control => 2,
                Self::Sound => 3,
            }
    }

    /// Whether a descriptor of this number leaves the reserve free.
    #[must_use]
    pub fn allows(self, number: RawFd) -> bool {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        u64::try_from(number).unwrap_or(0) < limit.saturating_sub(self.reserve())
    }

    /// Whether the next descriptor leaves the reserve free.
    ///
    /// # Errors
    /// The error of a system call that finds none.
    pub fn check_next(self) -> io::Result<()> {
        // A container may have no file that can be opened, not even `/dev/null`.
        let next = UnixDatagram::unbound()?;
        if self.allows(next.as_raw_fd()) {
            Ok(())
        } else {
            Err(io::ErrorKind::QuotaExceeded.into())
        }
    }
}

/// Descriptors that each use has beside the reserve of the others. Saving needs three at once.
const RESERVE_STEP: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_leaves_some_numbers_to_those_before_it() {
        let limit = RawFd::try_from(getrlimit(Resource::Nofile).current.unwrap()).unwrap();
        let uses = [DescriptorUse::Http, DescriptorUse::Control, DescriptorUse::Sound];
        for (number, allowed) in [
            (limit - 1, [false, false, false]),
            (limit - 5, [true, false, false]),
            (limit - 9, [true, true, false]),
            (limit - 13, [true, true, true]),
            (0, [true, true, true]),
        ] {
            assert_eq!(uses.map(|one| one.allows(number)), allowed, "{number} of {limit}");
        }
        DescriptorUse::Sound.check_next().unwrap();
    }
}
