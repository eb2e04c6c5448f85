//! Joins the files of a playlist: without a gap, or with a cross-fade.

use core::f32::consts::FRAC_PI_2;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use aulos_core::Span;
use aulos_proto::titles::TrackMetadata;

use super::status::PlaylistTrackInfo;
use super::track::{PlaylistTrack, TrackEnd};
use crate::decode::{FileDecodeError, RateAndLayout};

/// Plays one file after the other.
pub(super) struct PlaylistMixer {
    format: RateAndLayout,
    /// In frames.
    crossfade: usize,
    short_fade: usize,
    playing: Option<PlaylistTrack>,
    next: Option<PlaylistTrack>,
    fade: Option<CrossFade>,
    /// Frames rendered.
    position: u64,
    starts: VecDeque<TrackStart>,
    failure: Option<(Arc<PathBuf>, FileDecodeError)>,
}

/// A cross-fade, in frames.
#[derive(Clone, Copy, Debug)]
struct CrossFade {
    done: usize,
    len: usize,
}

/// The beginning of a file in the output.
pub(super) struct TrackStart {
    pub(super) position: u64,
    pub(super) info: PlaylistTrackInfo,
    pub(super) title: Option<Arc<TrackMetadata>>,
}

/// What the mixer needs to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixStatus {
    /// Nothing.
    Running,
    /// The next file.
    NeedsTrack,
}

impl PlaylistMixer {
    pub(super) fn new(format: RateAndLayout, crossfade: Span) -> Self {
        Self {
            format,
            crossfade: format.0.frames(crossfade).as_usize(),
            short_fade: format.0.frames(SHORT_FADE).as_usize(),
            playing: None,
            next: None,
            fade: None,
            position: 0,
            starts: VecDeque::new(),
            failure: None,
        }
    }

    /// Whether the next file should be opened now, so that it is ready in time: `ahead` before the
    /// end of the one that plays.
    pub(super) fn wants_track(&self, ahead: Span) -> bool {
        let ahead = self.format.0.frames(ahead).as_usize() + self.crossfade;
        let left = |playing: &PlaylistTrack| playing.frames_left().unwrap_or(0);
        self.next.is_none() && self.playing.as_ref().is_none_or(|it| left(it) <= ahead as u64)
    }

    /// The file that follows. Only when there is none.
    pub(super) fn set_next(&mut self, track: PlaylistTrack) {
        self.next = Some(track);
    }

    /// Fades over to the next file from now on.
    pub(super) fn skip(&mut self) {
        if let (Some(playing), None) = (&mut self.playing, self.fade) {
            playing.cut(self.crossfade.max(self.short_fade));
        }
    }

    /// Drops the files that are open.
    pub(super) fn close(&mut self) {
        (self.playing, self.next, self.fade) = (None, None, None);
    }

    /// Frames rendered since the beginning.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// The first file of the output that has not been taken, if it begins at `position` or before.
    pub(super) fn take_start(&mut self, position: u64) -> Option<TrackStart> {
        let is_due = self.starts.front().is_some_and(|start| start.position <= position);
        if is_due { self.starts.pop_front() } else { None }
    }

    /// A file that could not be decoded to its end.
    pub(super) fn take_failure(&mut self) -> Option<(Arc<PathBuf>, FileDecodeError)> {
        self.failure.take()
    }

    /// Renders whole frames into `out`; fewer when a file is needed. With `is_last` there is no
    /// file after those that it has.
    pub(super) fn render(&mut self, out: &mut [f32], is_last: bool) -> (usize, MixStatus) {
        let channels = self.format.1.channels();
        let frames = out.len() / channels;
        let mut done = 0;
        while done < frames {
            let part = &mut out[done * channels..frames * channels];
            match self.render_part(part, is_last) {
                Some(count) => {
                    done += count;
                    self.position += count as u64;
                }
                None => return (done, MixStatus::NeedsTrack),
            }
        }
        (done, MixStatus::Running)
    }

    /// Renders up to the next event; `None` when a file is needed.
    fn render_part(&mut self, out: &mut [f32], is_last: bool) -> Option<usize> {
        if self.playing.is_none() {
            let track = self.next.take()?;
            self.report_start(&track);
            self.playing = Some(track);
        }
        let want = out.len() / self.format.1.channels();
        if let Some(fade) = self.fade {
            return Some(self.render_fade(out, fade));
        }
        let playing = self.playing.as_mut()?;
        let reserve = self.crossfade.max(self.short_fade);
        playing.fill(reserve + want);
        let left = playing.frames_ahead();
        let Some(end) = playing.end() else {
            copy(playing.take(want), out);
            return Some(want);
        };
        let longest = match end {
            // What breaks off must not click.
            TrackEnd::Failed(_) | TrackEnd::Cut => reserve,
            TrackEnd::Whole if is_last && self.next.is_none() => 0,
            TrackEnd::Whole => self.crossfade,
        };
        // Of a short file a half remains that is not mixed.
        let half = self.next.as_ref().and_then(PlaylistTrack::length).map(|frames| frames / 2);
        let half = half.map_or(usize::MAX, |half| usize::try_from(half).unwrap_or(usize::MAX));
        let fade = left.min(longest).min(half);
        if left > fade {
            let count = want.min(left - fade);
            copy(playing.take(count), out);
            return Some(count);
        }
        if self.next.is_none() && !is_last {
            return None;
        }
        if fade == 0 {
            self.end_playing();
        } else {
            if let Some(next) = self.next.take() {
                self.report_start(&next);
                self.next = Some(next);
            }
            self.fade = Some(CrossFade { done: 0, len: fade });
        }
        Some(0)
    }

    /// The next file, if it is there, continues.
    fn end_playing(&mut self) {
        let ended = self.playing.take();
        if let Some(ended) = ended
            && let Some(TrackEnd::Failed(error)) = ended.end()
        {
            self.failure = Some((ended.info().path.clone(), error));
        }
    }

    /// Mixes the end of one file with the beginning of the next, or with silence. The gains add up
    /// to one, so that the sum is never louder than the louder of both.
    #[allow(clippy::cast_precision_loss, reason = "some seconds")]
    fn render_fade(&mut self, out: &mut [f32], CrossFade { done, len }: CrossFade) -> usize {
        let channels = self.format.1.channels();
        let count = (out.len() / channels).min(len - done);
        let out = &mut out[..count * channels];
        out.fill(0.0);
        let mut mix = |track: &mut PlaylistTrack, curve: fn(f32) -> f32| {
            track.fill(count);
            let samples = track.take(count).chunks_exact(channels);
            for ((at, to), from) in (done..).zip(out.chunks_exact_mut(channels)).zip(samples) {
                let gain = curve((at as f32 + 0.5) / len as f32 * FRAC_PI_2);
                to.iter_mut().zip(from).for_each(|(to, from)| *to += gain * from);
            }
        };
        if let Some(playing) = &mut self.playing {
            mix(playing, |angle| angle.cos().powi(2));
        }
        if let Some(next) = &mut self.next {
            mix(next, |angle| angle.sin().powi(2));
        }
        self.fade = Some(CrossFade { done: done + count, len });
        if done + count == len {
            self.end_playing();
            (self.playing, self.fade) = (self.next.take(), None);
        }
        count
    }

    fn report_start(&mut self, track: &PlaylistTrack) {
        self.starts.push_back(TrackStart { position: self.position, ..start_of(track) });
    }
}

fn start_of(track: &PlaylistTrack) -> TrackStart {
    TrackStart { position: 0, info: track.info().clone(), title: track.title().cloned() }
}

fn copy(from: &[f32], to: &mut [f32]) {
    to[..from.len()].copy_from_slice(from);
}

/// The fade where a file breaks off or is skipped.
const SHORT_FADE: Span = Span::from_millis(50);
