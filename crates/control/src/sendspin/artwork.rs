//! The pictures of stations in the formats and sizes in which Sendspin clients want them.
//!
//! Only pictures that the server holds itself are shown: it never fetches the address of one. A
//! picture is made from its original once for all clients that want the same, by a task beside the
//! control plane, and kept while a client shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_proto::sendspin::ArtworkRendition;
use bytes::Bytes;
use tokio::sync::Notify;

/// A picture by its name, and the form in which it is wanted.
pub(crate) type ArtworkKey = (Arc<str>, ArtworkRendition);

/// Pictures that are made, and those that are wanted.
#[derive(Default)]
pub struct ArtworkRenditions {
    state: Mutex<State>,
    wanted: Notify,
}

#[derive(Default)]
struct State {
    renditions: BTreeMap<ArtworkKey, RenditionState>,
}

enum RenditionState {
    /// To be made from this original.
    Queued(Bytes),
    Running,
    /// `None` if it could not be made.
    Done(Option<Arc<[u8]>>),
}

/// A picture to make.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "there to be taken apart")]
pub struct ArtworkJob {
    key: ArtworkKey,
    /// The original, as it came from a source: any bytes.
    pub original: Bytes,
}

impl ArtworkJob {
    /// The format and size to make.
    #[must_use]
    pub const fn rendition(&self) -> ArtworkRendition {
        self.key.1
    }
}

impl ArtworkRenditions {
    /// Waits for a picture to make; then call [`ArtworkRenditions::finish`].
    pub async fn next_job(&self) -> ArtworkJob {
        loop {
            if let Some(job) = self.take_job() {
                return job;
            }
            self.wanted.notified().await;
        }
    }

    /// A job is done: the encoded picture, or `None` if it could not be made.
    pub fn finish(&self, job: &ArtworkJob, picture: Option<Vec<u8>>) {
        let picture = picture.map(Arc::from);
        // One that is wanted no more is forgotten.
        if let Some(state) = self.lock().renditions.get_mut(&job.key) {
            *state = RenditionState::Done(picture);
        }
    }

    /// A picture, or `None` while it is being made. One that cannot be made, or for which there is
    /// no room, is the inner `None`.
    pub(crate) fn get(
        &self,
        key: &ArtworkKey,
        original: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Option<Arc<[u8]>>> {
        let mut state = self.lock();
        match state.renditions.get(key) {
            Some(RenditionState::Done(picture)) => return Some(picture.clone()),
            Some(_) => return None,
            None if state.renditions.len() >= MAX_RENDITIONS => return Some(None),
            None => {}
        }
        let Some(original) = original() else { return Some(None) };
        state.renditions.insert(key.clone(), RenditionState::Queued(original));
        drop(state);
        self.wanted.notify_one();
        None
    }

    /// Forgets those that no client wants.
    pub(crate) fn retain(&self, wanted: &BTreeSet<ArtworkKey>) {
        self.lock().renditions.retain(|key, _| wanted.contains(key));
    }

    fn take_job(&self) -> Option<ArtworkJob> {
        let mut state = self.lock();
        state.renditions.iter_mut().find_map(|(key, state)| {
            let RenditionState::Queued(original) = state else { return None };
            let job = ArtworkJob { key: key.clone(), original: std::mem::take(original) };
            *state = RenditionState::Running;
            Some(job)
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ArtworkRenditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtworkRenditions").finish_non_exhaustive()
    }
}

/// Pictures that are made and kept: of a few hundred kilobytes each, one for each kind of display.
const MAX_RENDITIONS: usize = 64;

#[cfg(test)]
mod tests {
    use aulos_proto::sendspin::ArtworkFormat;

    use super::*;

    fn key(name: &str, width: u32) -> ArtworkKey {
        (name.into(), ArtworkRendition { format: ArtworkFormat::Jpeg, width, height: 9 })
    }

    #[test]
    fn a_picture_is_made_once_for_all_that_want_it() {
        let artwork = ArtworkRenditions::default();
        let (a, b) = (key("a", 1), key("a", 2));
        let original = || Some(Bytes::from_static(b"a"));
        assert_eq!((artwork.get(&a, original), artwork.get(&a, original)), (None, None));
        assert_eq!(artwork.get(&b, original), None);
        let (first, second) = (artwork.take_job().unwrap(), artwork.take_job().unwrap());
        assert_eq!((first.original.as_ref(), first.rendition()), (&b"a"[..], a.1));
        assert!(artwork.take_job().is_none());
        artwork.finish(&first, Some(vec![7]));
        artwork.finish(&second, None);
        assert_eq!(artwork.get(&a, || panic!()), Some(Some([7].into())));
        assert_eq!(artwork.get(&b, || panic!()), Some(None), "it is not tried again");
        artwork.retain(&[a].into());
        assert_eq!(artwork.get(&b, || None), Some(None), "the original is gone");
        // Another title, while the picture of the one before is being made.
        assert_eq!(artwork.get(&b, original), None);
        let late = artwork.take_job().unwrap();
        artwork.retain(&BTreeSet::new());
        artwork.finish(&late, Some(vec![8]));
        assert_eq!(artwork.lock().renditions.len(), 0);
    }

    #[test]
    fn there_are_never_more_than_a_bounded_number() {
        let artwork = ArtworkRenditions::default();
        for width in 0..10_000 {
            artwork.get(&key("a", width), || Some(Bytes::from_static(b"a")));
        }
        assert_eq!(artwork.lock().renditions.len(), MAX_RENDITIONS);
        assert_eq!(artwork.get(&key("a", 10_000), || panic!()), Some(None));
    }
}
