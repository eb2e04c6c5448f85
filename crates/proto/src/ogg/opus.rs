//! Opus in Ogg (RFC 7845).

use core::fmt;

use aulos_core::{ChannelLayout, Frames, SampleRate};

use super::{PageBuilder, PageWriter, StreamBoundary};
use crate::titles::TrackMetadata;

/// Pre-skip of a stream in frames at 48 kHz, which the decoder discards while it converges: 80 ms,
/// as RFC 7845, section 4.2, recommends for a stream that is joined in the middle.
pub const PRE_SKIP: u16 = 3_840;

/// Endless Ogg Opus stream for one listener.
///
/// Packets share pages: individual pages for packets of 20 ms would add an eighth at 96 kb/s. The
/// caller ends each batch of packets with [`end_batch`](Self::end_batch) and so determines how long
/// a packet waits for its page.
#[derive(Clone, Debug)]
pub struct OpusStream {
    pages: PageWriter,
    bundle: PageBuilder,
    /// Frames in all packets so far, and in those that are in pages.
    granule: u64,
    paged: u64,
}

impl OpusStream {
    /// Begins a stream: appends the two header pages to `out`.
    ///
    /// `serial` may be any number. `rate` is the sample rate before encoding, for information only.
    /// `title` is one line, `Artist - Title` or a title alone, and becomes the comments `ARTIST`
    /// and `TITLE`.
    ///
    /// # Errors
    /// [`UnsupportedOpusLayout`] for more than two channels.
    pub fn begin(
        serial: u32,
        layout: ChannelLayout,
        rate: SampleRate,
        title: &str,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedOpusLayout> {
        Ok(Self::begin_link(serial, &head(layout, rate, PRE_SKIP)?, title, out))
    }

    /// Ends this stream with `packet` and begins another one with a new `title` (RFC 3533, section
    /// 4). `serial` must be new.
    ///
    /// The next packet continues the audio, so the new stream has no pre-skip: a decoder that
    /// starts here needs a few packets to converge.
    ///
    /// # Errors
    /// [`UnsupportedOpusLayout`] for more than two channels.
    pub fn chain(
        self,
        (packet, duration): (&[u8], Frames),
        serial: u32,
        (layout, rate): (ChannelLayout, SampleRate),
        title: &str,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedOpusLayout> {
        let head = head(layout, rate, 0)?;
        self.finish(packet, duration, out);
        Ok(Self::begin_link(serial, &head, title, out))
    }

    fn begin_link(serial: u32, head: &[u8], title: &str, out: &mut Vec<u8>) -> Self {
        let mut pages = PageWriter::new(serial);
        pages.write_packet(head, 0, StreamBoundary::First, out);
        let TrackMetadata { artist, title, .. } = TrackMetadata::from_stream_title(title);
        let comments: Vec<_> = [("ARTIST", &artist), ("TITLE", &title)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect();
        pages.write_packet(&tags(comments.into_iter()), 0, StreamBoundary::Middle, out);
        Self { pages, bundle: PageBuilder::default(), granule: 0, paged: 0 }
    }

    /// Adds an Opus packet that lasts `duration` at 48 kHz; a page is appended to `out` once it
    /// lasts 200 ms.
    ///
    /// # Real-time
    /// Does not allocate once a page of each size has been there, and when `out` has room for a
    /// page.
    pub fn write(&mut self, packet: &[u8], duration: Frames, out: &mut Vec<u8>) {
        self.push_packet(packet, duration, out);
        if self.pending() >= MAX_STREAM_PAGE {
            self.page(out);
        }
    }

    /// Ends a batch of packets: ends the page if it lasts at least 60 ms, or is the first one, for
    /// which the listener is waiting.
    pub fn end_batch(&mut self, out: &mut Vec<u8>) {
        if self.paged == 0 || self.pending() >= MIN_STREAM_PAGE {
            self.page(out);
        }
    }

    /// Writes the pending packets as a page.
    pub fn page(&mut self, out: &mut Vec<u8>) {
        if !self.bundle.is_empty() {
            self.pages.write_packets(&mut self.bundle, self.granule, StreamBoundary::Middle, out);
            self.paged = self.granule;
        }
    }

    /// Appends the last packet; its page marks the end of the stream.
    pub fn finish(mut self, packet: &[u8], duration: Frames, out: &mut Vec<u8>) {
        self.push_packet(packet, duration, out);
        self.pages.write_packets(&mut self.bundle, self.granule, StreamBoundary::Last, out);
    }

    fn push_packet(&mut self, packet: &[u8], duration: Frames, out: &mut Vec<u8>) {
        if !self.bundle.push(packet) {
            self.page(out);
            // An Opus packet is much shorter than a page.
            let _fits = self.bundle.push(packet);
        }
        self.granule = self.granule.saturating_add(duration.0);
    }

    const fn pending(&self) -> u64 {
        self.granule - self.paged
    }
}

/// 60 ms: shorter pages cost more than they save. Listeners are served every 100 ms, so pages
/// usually last 100 ms and no packet waits.
const MIN_STREAM_PAGE: u64 = 2_880;
/// 200 ms: longer pages save less than 0.1 %.
const MAX_STREAM_PAGE: u64 = 9_600;

/// Ogg Opus file, from the encoder's first packet to its last, with the exact length of the audio.
#[derive(Clone, Debug)]
pub struct OpusFile {
    pages: PageWriter,
    pre_skip: u16,
    bundle: PageBuilder,
    /// Frames in all packets so far, and in those that are in pages.
    granule: u64,
    paged: u64,
}

impl OpusFile {
    /// Begins a file: appends the two header pages to `out`.
    ///
    /// `rate` is the sample rate before encoding, for information only. `pre_skip` is the encoder's
    /// delay at 48 kHz, which players discard. `comments` are names and values; a name is ASCII
    /// without `=`.
    ///
    /// # Errors
    /// [`UnsupportedOpusLayout`] for more than two channels.
    pub fn begin<'a>(
        serial: u32,
        layout: ChannelLayout,
        rate: SampleRate,
        pre_skip: u16,
        comments: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedOpusLayout> {
        let mut pages = PageWriter::new(serial);
        pages.write_packet(&head(layout, rate, pre_skip)?, 0, StreamBoundary::First, out);
        pages.write_packet(&tags(comments), 0, StreamBoundary::Middle, out);
        Ok(Self { pages, pre_skip, bundle: PageBuilder::default(), granule: 0, paged: 0 })
    }

    /// Adds an Opus packet that lasts `duration` at 48 kHz; a page is appended to `out` once it
    /// lasts a second.
    pub fn write(&mut self, packet: &[u8], duration: Frames, out: &mut Vec<u8>) {
        if self.granule - self.paged >= FILE_PAGE_FRAMES || !self.bundle.push(packet) {
            self.page(out);
            // An Opus packet is much shorter than a page.
            let _fits = self.bundle.push(packet);
        }
        self.granule = self.granule.saturating_add(duration.0);
    }

    /// Writes the pending packets as a page, so that readers of the file can see them.
    pub fn page(&mut self, out: &mut Vec<u8>) {
        if !self.bundle.is_empty() {
            self.pages.write_packets(&mut self.bundle, self.granule, StreamBoundary::Middle, out);
            self.paged = self.granule;
        }
    }

    /// Duration of the pages so far, in frames at 48 kHz without pre-skip.
    #[must_use]
    pub fn paged_frames(&self) -> Frames {
        Frames(self.paged.saturating_sub(u64::from(self.pre_skip)))
    }

    /// Duration of the pending packets, in frames at 48 kHz.
    #[must_use]
    pub const fn pending_frames(&self) -> Frames {
        Frames(self.granule - self.paged)
    }

    /// Ends the file with a length of `frames`: the rest of the last packet is padding (RFC 7845,
    /// section 4.4).
    pub fn finish(mut self, frames: Frames, out: &mut Vec<u8>) {
        let end = frames.0.saturating_add(u64::from(self.pre_skip)).clamp(self.paged, self.granule);
        self.pages.write_packets(&mut self.bundle, end, StreamBoundary::Last, out);
    }
}

/// A second: the granularity of seeking.
const FILE_PAGE_FRAMES: u64 = 48_000;

/// A channel layout that is not in channel mapping family 0 (RFC 7845, section 5.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedOpusLayout(pub ChannelLayout);

impl fmt::Display for UnsupportedOpusLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an Ogg Opus stream with {}: expected one or two channels", self.0)
    }
}

impl core::error::Error for UnsupportedOpusLayout {}

/// Identification header (RFC 7845, section 5.1).
///
/// # Errors
/// [`UnsupportedOpusLayout`] for more than two channels.
pub fn head(
    layout: ChannelLayout,
    rate: SampleRate,
    skip: u16,
) -> Result<Vec<u8>, UnsupportedOpusLayout> {
    let channels = match layout {
        ChannelLayout::MONO => 1,
        ChannelLayout::STEREO => 2,
        _ => return Err(UnsupportedOpusLayout(layout)),
    };
    Ok(head_of(channels, skip, rate.hz(), 0))
}

/// The same with any rate, and a gain in 1/256 dB, for one or two channels.
pub(crate) fn head_of(channels: u8, skip: u16, hz: u32, gain: i16) -> Vec<u8> {
    let mut head = b"OpusHead\x01".to_vec();
    head.push(channels);
    head.extend_from_slice(&skip.to_le_bytes());
    head.extend_from_slice(&hz.to_le_bytes());
    head.extend_from_slice(&gain.to_le_bytes());
    // Channel mapping family 0.
    head.push(0);
    head
}

/// Comment header (RFC 7845, section 5.2).
fn tags<'a>(comments: impl ExactSizeIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut tags = b"OpusTags".to_vec();
    crate::bytes::put_comments(&mut tags, comments);
    tags
}

#[cfg(test)]
mod tests {
    use super::super::{ParsedPage, parse_page};
    use super::*;

    fn pages(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut pages = Vec::new();
        while let Ok(ParsedPage::Page(page)) = parse_page(bytes) {
            pages.push((page.granule, page.body.to_vec()));
            bytes = &bytes[page.total_len()..];
        }
        pages
    }

    #[test]
    fn the_headers_are_those_of_the_standard_and_positions_count_from_the_join() {
        let mut out = Vec::new();
        let stereo = ChannelLayout::STEREO;
        let mut stream =
            OpusStream::begin(1, stereo, SampleRate::HZ_44100, "Hall", &mut out).unwrap();
        stream.write(b"one", Frames(960), &mut out);
        stream.page(&mut out);
        stream.write(b"two", Frames(960), &mut out);
        stream.page(&mut out);
        stream.finish(b"end", Frames(480), &mut out);
        let pages = pages(&out);
        assert_eq!(pages[0].1, b"OpusHead\x01\x02\x00\x0f\x44\xac\0\0\0\0\0");
        assert_eq!(pages[1].1, b"OpusTags\x05\0\0\0aulos\x01\0\0\0\x0a\0\0\0TITLE=Hall");
        let positions: Vec<_> = pages.iter().map(|(granule, _)| *granule).collect();
        assert_eq!(positions, [0, 0, 960, 1_920, 2_400]);
    }

    #[test]
    fn packets_share_pages_of_60_to_200_ms_and_the_first_does_not_wait() {
        let mut out = Vec::new();
        let (stereo, rate) = (ChannelLayout::STEREO, SampleRate::HZ_48000);
        let mut stream = OpusStream::begin(1, stereo, rate, "", &mut out).unwrap();
        // The number of packets of 20 ms in each batch.
        for packets in [1, 5, 2, 3, 4, 23, 1] {
            for _ in 0..packets {
                stream.write(&[7; 480], Frames(960), &mut out);
            }
            stream.end_batch(&mut out);
        }
        let packets = |granule: u64| granule / 960;
        let positions: Vec<_> =
            pages(&out)[2..].iter().map(|(granule, _)| packets(*granule)).collect();
        // 2 packets wait for the 3; of 23, two pages of 200 ms and the rest; the last one waits.
        assert_eq!(positions, [1, 6, 11, 15, 25, 35, 38]);
        stream.finish(&[7; 480], Frames(960), &mut out);
        let pages = pages(&out);
        assert_eq!(packets(pages[9].0), 40);
        assert_eq!(pages[2..].iter().map(|(_, body)| body.len()).sum::<usize>(), 40 * 480);
    }

    #[test]
    fn the_longest_packets_fit_into_a_page() {
        let mut out = Vec::new();
        let (mono, rate) = (ChannelLayout::MONO, SampleRate::HZ_48000);
        let mut stream = OpusStream::begin(1, mono, rate, "", &mut out).unwrap();
        for _ in 0..100 {
            stream.write(&[7; 3 * 1_275 + 7], Frames(2_880), &mut out);
        }
        let bodies: usize = pages(&out)[2..].iter().map(|(_, body)| body.len()).sum();
        assert_eq!(bodies, 100 * (3 * 1_275 + 7));
    }

    #[test]
    fn another_title_is_another_stream_behind_the_last_packet() {
        let mut out = Vec::new();
        let form = (ChannelLayout::MONO, SampleRate::HZ_48000);
        let mut stream = OpusStream::begin(1, form.0, form.1, "One", &mut out).unwrap();
        stream.write(b"a", Frames(960), &mut out);
        stream.page(&mut out);
        let mut stream =
            stream.chain((b"b", Frames(960)), 2, form, "Echo - Two", &mut out).unwrap();
        stream.write(b"c", Frames(960), &mut out);
        stream.page(&mut out);
        let (mut rest, mut seen) = (&out[..], Vec::new());
        while let Ok(ParsedPage::Page(page)) = parse_page(rest) {
            seen.push((page.serial, page.first, page.last, page.granule));
            rest = &rest[page.total_len()..];
        }
        let (one, two) = (1, 2);
        assert_eq!(
            seen,
            [
                (one, true, false, 0),
                (one, false, false, 0),
                (one, false, false, 960),
                (one, false, true, 1_920),
                (two, true, false, 0),
                (two, false, false, 0),
                (two, false, false, 960),
            ]
        );
        // The second stream has no pre-skip.
        let pages = pages(&out);
        assert_eq!((&pages[4].1[9..12], pages[6].1.as_slice()), (&[1, 0, 0][..], &b"c"[..]));
        assert!(pages[5].1.ends_with(b"\x02\0\0\0\x0b\0\0\0ARTIST=Echo\x09\0\0\0TITLE=Two"));
    }

    #[test]
    fn a_file_states_its_exact_length_in_frames() {
        let mut out = Vec::new();
        let (mono, rate) = (ChannelLayout::MONO, SampleRate::HZ_48000);
        let comments = [("TITLE", "Hall"), ("ARTIST", "Echo")].into_iter();
        let mut file = OpusFile::begin(1, mono, rate, 120, comments, &mut out).unwrap();
        for _ in 0..120 {
            file.write(&[7; 300], Frames(960), &mut out);
        }
        file.finish(Frames(114_300), &mut out);
        let pages = pages(&out);
        assert_eq!(&pages[0].1[9..12], [1, 120, 0]);
        assert!(pages[1].1.ends_with(b"\x02\0\0\0\x0a\0\0\0TITLE=Hall\x0b\0\0\0ARTIST=Echo"));
        let positions: Vec<_> = pages.iter().map(|(granule, _)| *granule).collect();
        assert_eq!(positions, [0, 0, 48_000, 96_000, 114_420]);
        assert_eq!(pages[2..].iter().map(|(_, body)| body.len()).sum::<usize>(), 120 * 300);
    }

    #[test]
    fn six_channels_need_another_mapping() {
        let layout = ChannelLayout::SURROUND_5_1;
        let result = OpusStream::begin(1, layout, SampleRate::HZ_48000, "", &mut Vec::new());
        assert_eq!(result.map(|_| ()), Err(UnsupportedOpusLayout(layout)));
    }
}
