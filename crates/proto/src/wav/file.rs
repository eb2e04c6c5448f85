//! A file that grows: its head, and the sizes in it, which are told again and again.
//!
//! It begins as RIFF with a placeholder, so that everybody can read it, and becomes RF64 in place
//! when it is longer than 32 bits can count (EBU Tech 3306, section 3.5).

use core::fmt;

use aulos_core::{SampleFormat, SampleSpec};

use super::write::{NotInWave, tag};
use super::{Broadcast, SUB_FORMAT_TAIL, TAG_EXTENSIBLE, Wave};
use crate::Patch;

/// What the head of a file says.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "all of it has to be given")]
pub struct Form<'a> {
    /// Rate, channels and how a sample is written.
    pub spec: SampleSpec,
    /// The loudspeaker of each channel, a bit for each in the order of WAVE; not told when they are
    /// not as many as the channels.
    pub speakers: Option<u32>,
    /// Whether there is room for long sizes. Without it a file ends at 4 GiB.
    pub room: bool,
    /// Where and when the sound was recorded.
    pub broadcast: Option<Broadcast<'a>>,
}

impl Form<'_> {
    /// Where the `bext` chunk begins, in bytes from the start of the file.
    #[must_use]
    pub fn broadcast_at(&self) -> Option<u64> {
        let room = if self.room { u64::from(8 + LONG_SIZES) } else { 0 };
        self.broadcast.as_ref().map(|_| RIFF_HEAD + room)
    }
}

/// The sizes in the head of a file, and how they become larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    start: u64,
    frame: u64,
    room: bool,
    most: u64,
}

impl Sizes {
    /// Begins a file: appends its head to `out`. Both sizes say "read until the end".
    ///
    /// More than two channels or 16 bits need the extensible form (Microsoft, "Multiple channel
    /// audio data and WAVE files"). All fields that change lie in sectors of their own.
    ///
    /// # Errors
    /// [`NotInWave`] for [`SampleFormat::S8`] and [`SampleFormat::S24In32Le`].
    pub fn begin(form: &Form<'_>, out: &mut Vec<u8>) -> Result<Self, NotInWave> {
        let SampleSpec { rate, layout, format } = form.spec;
        let tag = tag(format)?;
        let channels = u16::try_from(layout.channels()).unwrap_or(u16::MAX);
        let frame = u16::try_from(form.spec.frame_bytes()).unwrap_or(u16::MAX);
        let extensible = channels > 2 || !matches!(format, SampleFormat::S16Le | SampleFormat::U8);
        let begin = out.len();
        out.extend_from_slice(b"RIFF\xff\xff\xff\xffWAVE");
        if form.room {
            out.extend_from_slice(b"JUNK");
            out.extend_from_slice(&LONG_SIZES.to_le_bytes());
            out.extend_from_slice(&[0; LONG_SIZES as usize]);
        }
        if let Some(broadcast) = &form.broadcast {
            broadcast.emit(out);
        }
        out.extend_from_slice(b"fmt ");
        out.extend_from_slice(&if extensible { 40_u32 } else { 16 }.to_le_bytes());
        out.extend_from_slice(&if extensible { TAG_EXTENSIBLE } else { tag }.to_le_bytes());
        out.extend_from_slice(&channels.to_le_bytes());
        out.extend_from_slice(&rate.hz().to_le_bytes());
        out.extend_from_slice(&rate.hz().saturating_mul(u32::from(frame)).to_le_bytes());
        out.extend_from_slice(&frame.to_le_bytes());
        out.extend_from_slice(&format.bits().to_le_bytes());
        if extensible {
            let mask = form.speakers.filter(|mask| mask.count_ones() == u32::from(channels));
            out.extend_from_slice(&22_u16.to_le_bytes());
            out.extend_from_slice(&format.bits().to_le_bytes());
            out.extend_from_slice(&mask.unwrap_or(0).to_le_bytes());
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&SUB_FORMAT_TAIL);
        }
        out.extend_from_slice(b"data\xff\xff\xff\xff");
        let start = (out.len() - begin) as u64;
        Ok(Self { start, frame: u64::from(frame), room: form.room, most: SHORT })
    }

    /// The sizes in a file that begins with `front` and holds `wave`.
    #[must_use]
    pub fn of(front: &[u8], wave: &Wave) -> Self {
        let room = front.get(12..20).is_some_and(|chunk| {
            let (name, size) = chunk.split_at_checked(4).unwrap_or_default();
            [&b"JUNK"[..], b"ds64"].contains(&name) && size == LONG_SIZES.to_le_bytes()
        });
        let (start, frame) = (wave.start as u64, wave.frame_bytes() as u64);
        Self { start, frame, room, most: SHORT }
    }

    /// Where the sound begins, in bytes from the start of the file.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Where `data` bytes of sound end, with the byte that makes an odd number of them even; in bytes
    /// from the start of the file.
    #[must_use]
    pub const fn end_of(&self, data: u64) -> u64 {
        self.start.saturating_add(data).saturating_add(data % 2)
    }

    /// Bytes of a frame.
    #[must_use]
    pub const fn frame(&self) -> u64 {
        self.frame
    }

    /// Whether there is room for long sizes.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.room
    }

    /// The same, but long sizes are needed beyond `most` bytes already: to see them come without
    /// writing 4 GiB.
    #[must_use]
    #[doc(hidden)]
    pub const fn short_up_to(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// What the head has to say of a file with `data` bytes of sound and `behind` bytes after them,
    /// chunks that have their own heads and what makes an odd length even. In this order, and while
    /// only one of the two is written, a reader finds at least what it found before, and
    /// [`Sizes::declared`] no chunks that there are not.
    ///
    /// # Errors
    /// [`TooLong`] when 32 bits cannot count it and there is no room for more.
    pub fn patches(&self, data: u64, behind: u64) -> Result<[Patch; 2], TooLong> {
        let riff = self.start - 8 + data + behind;
        let data_at = self.start - 4;
        if riff < self.most {
            let [riff, data] = [riff, data].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
            // A head that counts more than its sound is one whose sound is complete.
            return Ok([
                Patch::new(data_at, &data.to_le_bytes()),
                Patch::new(4, &riff.to_le_bytes()),
            ]);
        }
        if !self.room {
            return Err(TooLong);
        }
        let mut front = [0; 48];
        let sizes = [riff, data, data / self.frame].map(u64::to_le_bytes);
        let fields: [&[u8]; 4] = [
            b"RF64\xff\xff\xff\xffWAVEds64",
            &LONG_SIZES.to_le_bytes(),
            sizes.as_flattened(),
            // No table.
            &[0; 4],
        ];
        for (to, from) in front.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        Ok([Patch::new(0, &front), Patch::new(data_at, &[0xff; 4])])
    }

    /// The bytes of sound that a file which begins with `front` and holds `wave` tells, if it counts
    /// more behind them than the byte that makes them even.
    #[must_use]
    pub fn declared(&self, front: &[u8], wave: &Wave) -> Option<u64> {
        // A head that becomes RF64 has its long sizes before the short one makes way for them.
        let long = || Some(u64::from_le_bytes(*front.get(28..)?.first_chunk()?));
        let is_long = front.starts_with(b"RF64") && front.get(12..16) == Some(b"ds64");
        let data = if is_long { long() } else { wave.length }?;
        Self::said(front).filter(|said| *said > self.end_of(data)).map(|_| data)
    }

    /// How long a file that begins with `front` says that it is, in bytes.
    #[must_use]
    pub fn said(front: &[u8]) -> Option<u64> {
        let short = u32::from_le_bytes(*front.get(4..)?.first_chunk()?);
        let long = front.get(12..16) == Some(b"ds64");
        let riff = match (short, long) {
            (u32::MAX, true) => u64::from_le_bytes(*front.get(20..)?.first_chunk()?),
            (u32::MAX, false) => return None,
            (short, _) => u64::from(short),
        };
        riff.checked_add(8)
    }
}

/// A file that has no room in its head for a length beyond 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is no more to say")]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a WAVE file beyond 4 GiB whose head has no room for its length")
    }
}

impl core::error::Error for TooLong {}

/// `RIFF`, the size and `WAVE`.
const RIFF_HEAD: u64 = 12;
/// Bytes of `ds64` with three sizes of 64 bits and an empty table, and of what keeps the place.
const LONG_SIZES: u32 = 28;
/// What 32 bits can count, without the value that says "look elsewhere".
const SHORT: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use aulos_core::Utc;

    use super::super::{Parsed, parse};
    use super::*;

    fn begun(spec: &str, room: bool) -> (Vec<u8>, Sizes) {
        let broadcast = Broadcast {
            description: "Hall",
            originator: "aulos",
            reference: "",
            begun: Utc::from_unix(0),
            time_reference: 0,
            history: "A=PCM",
        };
        let mut bytes = Vec::new();
        let spec: SampleSpec = spec.parse().unwrap();
        let speakers = Some((1 << spec.layout.channels()) - 1);
        let form = Form { spec, speakers, room, broadcast: room.then_some(broadcast) };
        let sizes = Sizes::begin(&form, &mut bytes).unwrap();
        (bytes, sizes)
    }

    fn read(bytes: &[u8]) -> Wave {
        let Ok(Parsed::Wave(wave)) = parse(bytes) else { panic!("{:?}", parse(bytes)) };
        wave
    }

    fn put(bytes: &mut [u8], patch: &Patch) {
        let at = usize::try_from(patch.at()).unwrap();
        bytes[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
        // A sector at a time.
        assert_eq!(at / 512, (at + patch.bytes().len() - 1) / 512);
    }

    #[test]
    fn a_file_that_has_just_begun_is_read_to_its_end() {
        for spec in ["48000:16:2", "44100:s24:1", "96000:f32:6", "8000:16:3"] {
            for room in [false, true] {
                let (bytes, sizes) = begun(spec, room);
                let wave = read(&bytes);
                let wanted: SampleSpec = spec.parse().unwrap();
                assert_eq!(
                    (wave.length, wave.rate, wave.layout),
                    (None, wanted.rate, wanted.layout)
                );
                assert_eq!(wave.frame_bytes(), wanted.frame_bytes());
                assert_eq!((wave.start, bytes.len() % 4), (bytes.len(), 0));
                assert_eq!((sizes, Sizes::said(&bytes)), (Sizes::of(&bytes, &wave), None));
                let told = wanted.layout.channels() > 2 || !spec.contains(":16:");
                assert_eq!(wave.speakers.is_some(), told, "{spec}");
            }
        }
    }

    #[test]
    fn sizes_are_short_as_long_as_they_can_be_and_long_after() {
        let (mut bytes, sizes) = begun("48000:16:2", true);
        let start = sizes.start();
        let last_short = u64::from(u32::MAX) - start + 8 - 4;
        for (data, long) in
            [(0, false), (4_000, false), (last_short, false), (last_short + 4, true)]
        {
            let patches = sizes.patches(data, 0).unwrap();
            let before = read(&bytes);
            for patch in &patches {
                put(&mut bytes, patch);
                // A reader between the two finds no less than before.
                let wave = read(&bytes);
                let length = wave.length;
                assert!(length.is_none_or(|length| Some(length) >= before.length), "{length:?}");
                assert_eq!(sizes.declared(&bytes, &wave), None);
            }
            assert!(patches.iter().all(|patch| patch.is_applied_to(&bytes)));
            // Empty sound says nothing of itself.
            let length = read(&bytes).length.unwrap_or(0);
            assert_eq!((bytes.starts_with(b"RF64"), length), (long, data));
            assert_eq!(Sizes::said(&bytes), Some(start + data));
            let mut marked = bytes.clone();
            for patch in sizes.patches(data, 40).unwrap() {
                put(&mut marked, &patch);
            }
            let declared = sizes.declared(&marked, &read(&marked));
            assert_eq!(declared, Some(data));
        }
        let (_, sizes) = begun("48000:16:2", false);
        assert_eq!(sizes.patches(u64::from(u32::MAX), 0), Err(TooLong));
        let (mut bytes, sizes) = begun("8000:s24:1", true);
        for patch in sizes.short_up_to(1_000).patches(999, 1).unwrap() {
            put(&mut bytes, &patch);
        }
        assert_eq!(&bytes[..20], b"RF64\xff\xff\xff\xffWAVEds64\x1c\0\0\0");
        let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([field(20), field(28), field(36)], [sizes.start() - 8 + 1_000, 999, 333]);
    }
}
