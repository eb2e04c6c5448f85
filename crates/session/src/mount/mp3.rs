//! MP3: a frame may need main data of the frames before it, the bit reservoir.

use aulos_proto::mp3::{MAX_RESERVOIR, MainData, whole_frames};

/// Joins MP3 streams so that no frame needs the main data of another stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mp3Splice {
    /// The main data that the frames since the splice have, up to [`MAX_RESERVOIR`].
    available: usize,
}

impl Mp3Splice {
    /// The next frame does not follow the last one.
    pub(super) const fn restart(&mut self) {
        self.available = 0;
    }

    /// Whether every frame that follows the last one has the main data that it needs.
    const fn is_complete(&self) -> bool {
        self.available == MAX_RESERVOIR
    }

    /// Appends a whole frame; true if it had to be made silent.
    pub(super) fn write(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.extend_from_slice(frame);
        // Layers I and II have no reservoir.
        let Some(data) = MainData::of_frame(frame) else { return false };
        let is_missing = data.begin > self.available;
        if is_missing && let Some(copy) = out.get_mut(start..) {
            data.silence(copy, self.available);
        }
        self.available = (self.available + data.own).min(MAX_RESERVOIR);
        is_missing
    }
}

/// Makes the first frames of an MP3 stream silent whose main data are before the place where a
/// listener joined: behind an intro, a decoder would take bytes of the intro for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct JoinSplice(Mp3Splice);

impl JoinSplice {
    /// Appends the whole frames of a chunk; true when the frames of later chunks can be sent as
    /// they are.
    pub fn write(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> bool {
        for (frame, _) in whole_frames(chunk) {
            self.0.write(frame, out);
        }
        self.0.is_complete()
    }
}
