//! Ogg: every source is a link of a chained stream, with a serial number of its own.
//!
//! All listeners get the same pages. One that joins in the middle of a link gets the header pages
//! of the link first, as from Icecast.

use std::borrow::Cow;
use std::sync::Arc;

use aulos_core::Frames;
use aulos_proto::ogg::{PageBuilder, PageWriter, StreamBoundary, header_packets};
use aulos_proto::packets::PacketFormat;
use aulos_proto::titles::TrackMetadata;

/// Writes one link after the other.
#[derive(Debug)]
pub(super) struct OggLinks {
    /// The serial number of the next link.
    serial: u32,
    link: Option<Link>,
}

#[derive(Debug)]
struct Link {
    pages: PageWriter,
    header: Arc<[u8]>,
    bundle: PageBuilder,
    /// Frames in all packets, and in those that are in pages.
    granule: u64,
    paged: u64,
    /// The first packet of Vorbis only fills the overlap of the decoder.
    is_primed: bool,
}

impl OggLinks {
    pub(super) const fn new(serial: u32) -> Self {
        Self { serial, link: None }
    }

    /// The header pages of the current link.
    pub(super) fn header(&self) -> Option<Arc<[u8]>> {
        self.link.as_ref().map(|link| Arc::clone(&link.header))
    }

    /// Ends the link, if there is one.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if let Some(mut link) = self.link.take() {
            link.write_page(StreamBoundary::Last, out);
        }
    }

    /// Begins a link; another format than those of Ogg begins none.
    pub(super) fn begin(&mut self, format: &PacketFormat, title: Option<&TrackMetadata>) {
        let Some(packets) = header_packets(&with_any_blocks(format), title) else { return };
        let (mut pages, mut header) = (PageWriter::new(self.serial), Vec::new());
        self.serial = self.serial.wrapping_add(1);
        for (number, packet) in packets.iter().enumerate() {
            let boundary = if number == 0 { StreamBoundary::First } else { StreamBoundary::Middle };
            pages.write_packet(packet, 0, boundary, &mut header);
        }
        self.link = Some(Link {
            pages,
            header: Arc::from(header),
            bundle: PageBuilder::default(),
            granule: 0,
            paged: 0,
            is_primed: !matches!(format, PacketFormat::Vorbis { .. }),
        });
    }

    /// Adds a packet, and writes a page once it is long enough.
    pub(super) fn write(&mut self, packet: &[u8], duration: Frames, out: &mut Vec<u8>) {
        let Some(link) = &mut self.link else { return };
        if !link.bundle.push(packet) {
            link.page(out);
            if !link.bundle.push(packet) {
                // A long packet, as of FLAC, has pages of its own.
                link.count(duration);
                link.pages.write_packet(packet, link.granule, StreamBoundary::Middle, out);
                link.paged = link.granule;
                return;
            }
        }
        link.count(duration);
        if link.granule - link.paged >= MAX_PAGE {
            link.page(out);
        }
    }

    /// Ends the page.
    pub(super) fn page(&mut self, out: &mut Vec<u8>) {
        if let Some(link) = &mut self.link {
            link.page(out);
        }
    }
}

impl Link {
    const fn count(&mut self, duration: Frames) {
        if core::mem::replace(&mut self.is_primed, true) {
            self.granule = self.granule.saturating_add(duration.0);
        }
    }

    fn page(&mut self, out: &mut Vec<u8>) {
        if !self.bundle.is_empty() {
            self.write_page(StreamBoundary::Middle, out);
        }
    }

    /// Writes a page, which is empty if there are no packets.
    fn write_page(&mut self, boundary: StreamBoundary, out: &mut Vec<u8>) {
        self.pages.write_packets(&mut self.bundle, self.granule, boundary, out);
        self.paged = self.granule;
    }
}

/// FLAC of any block size: players keep what the first link says of it.
fn with_any_blocks(format: &PacketFormat) -> Cow<'_, PacketFormat> {
    let PacketFormat::Flac { mut info, rate, layout } = *format else {
        return Cow::Borrowed(format);
    };
    info[..10].copy_from_slice(&[0, 16, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    // The length and the checksum are those of the source.
    info[13] &= 0xf0;
    info[14..].fill(0);
    Cow::Owned(PacketFormat::Flac { info, rate, layout })
}

/// 200 ms at 48 kHz, as pages of a station's own Opus.
const MAX_PAGE: u64 = 9_600;
