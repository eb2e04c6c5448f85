//! Waveforms of recordings: read where they are kept, computed where they are not.
//!
//! One is computed at a time, in steps with a pause as long as each step, so that it takes at most
//! half of one processor and no thread of its own. A request does not wait for it: the page asks
//! again.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aulos_files::record::{Waveform, WaveformScan};
use serde_json::{Value, json};

use crate::http::pages::{FileServer, PageError};

/// The shortest pause between two steps.
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// The one that is being computed, and the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waveforms(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    computing: Option<Recording>,
    /// So that a folder that cannot be written to is not read for each request.
    last: Option<(Recording, Waveform)>,
}

/// A file of a recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recording {
    pub(crate) folder: PathBuf,
    pub(crate) recorder: String,
    pub(crate) name: PathBuf,
}

impl Waveforms {
    /// The waveform of a file, or that it is being computed: `state`, `seconds` and `points`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) async fn answer(
        &self,
        files: &FileServer,
        recording: Recording,
    ) -> Result<Value, PageError> {
        let wanted = recording.clone();
        let read = move || Waveform::read(&wanted.folder, &wanted.recorder, &wanted.name);
        if let Some(waveform) = files.run(read).await? {
            return Ok(answer(Some(&waveform)));
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, waveform)) = state.last.as_ref().filter(|(last, _)| *last == recording) {
            return Ok(answer(Some(waveform)));
        }
        if state.computing.is_none() {
            state.computing = Some(recording.clone());
            let (waveforms, files) = (self.clone(), files.clone());
            tokio::spawn(async move { waveforms.compute(&files, recording).await });
        }
        Ok(answer(None))
    }

    async fn compute(&self, files: &FileServer, recording: Recording) {
        let computed = compute(files, &recording).await;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.computing = None;
        match computed {
            Ok(waveform) => state.last = Some((recording, waveform)),
            Err(PageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                let name = recording.name.display();
                tracing::warn!(%name, %error, "a recording has no waveform");
                state.last = Some((recording, Waveform::default()));
            }
            // The next request tries again.
            Err(PageError::Io(_) | PageError::Busy | PageError::Slow) => {}
        }
    }
}

async fn compute(files: &FileServer, recording: &Recording) -> Result<Waveform, PageError> {
    let Recording { folder, recorder, name } = recording.clone();
    let mut scan = files.run(move || WaveformScan::open(&folder, &recorder, &name)).await?;
    loop {
        let begin = Instant::now();
        let (moved, found) = files
            .run(move || {
                let found = scan.step();
                if let Some(Err(error)) = found.as_ref().map(|waveform| scan.keep(waveform)) {
                    tracing::warn!(%error, "cannot keep the waveform of a recording");
                }
                Ok((scan, found))
            })
            .await?;
        if let Some(waveform) = found {
            return Ok(waveform);
        }
        scan = moved;
        tokio::time::sleep(begin.elapsed().max(MIN_PAUSE)).await;
    }
}

fn answer(waveform: Option<&Waveform>) -> Value {
    match waveform {
        Some(Waveform { seconds, points }) => {
            json!({ "state": "ready", "seconds": seconds, "points": points })
        }
        None => json!({ "state": "computing", "seconds": null, "points": [] }),
    }
}
