//! The title of a running station, on its way to its job.

use std::sync::{Arc, Mutex, PoisonError};

/// Both ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct HlsTitle(Arc<Mutex<Option<Arc<str>>>>);

impl HlsTitle {
    /// Passes a title; one that has not been taken is replaced.
    pub(crate) fn set(&self, title: &Arc<str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(title));
    }

    pub(super) fn take(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
