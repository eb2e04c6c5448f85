//! A clock that stands still: models have no time.

pub(crate) fn now() -> u64 {
    0
}
