//! A clock that stands still: the models have no time.

use std::time::Duration;

pub(crate) fn now() -> u64 {
    0
}

pub(crate) fn deadline_after(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

pub(crate) fn remaining(at: u64) -> Duration {
    Duration::from_nanos(at)
}
