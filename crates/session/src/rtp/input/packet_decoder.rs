//! From ordered packets to blocks of audio: decoding, recovery, concealment.

use core::fmt;

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span};
use aulos_dsp::g711::G711Law;
use aulos_engine::decode::{
    Decoder, G711PacketDecoder, G722PacketDecoder, L16PacketDecoder, L24PacketDecoder,
    OpusPacketDecoder,
};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_proto::rtp::payload::opus_fec_ticks;
use aulos_proto::rtp::{Encoding, RtpCodec};
use aulos_rt::ring::Producer;
use aulos_rt::{Pool, Pooled};

use super::{RtpInputConfig, RtpInputCounts};
use crate::rtp::receive::ingress::ReadyPacket;

/// The decoder of one source.
pub(super) struct PacketDecoder {
    encoding: Encoding,
    decoder: Box<dyn Decoder>,
    layout: ChannelLayout,
    max_concealed: usize,
    scratch: Vec<f32>,
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    open: Option<Pooled<Block>>,
    position: MediaTime,
    /// The timestamp of the next packet if none is missing.
    next: Option<u64>,
    in_stream: bool,
    /// The playout time of the current packet, with a playout delay.
    due: Option<Instant>,
    /// Consecutive frames without a packet.
    concealed_in_row: usize,
}

impl PacketDecoder {
    /// A decoder before the first packet. Allocates all that packets need.
    pub(super) fn new(
        config: &RtpInputConfig,
        pool: Pool<Block>,
        items: Producer<SourceItem>,
    ) -> Result<Self, UnsupportedEncoding> {
        let encoding = config.media.encoding;
        let decoder =
            decoder(encoding, config.opus_channels.into()).ok_or(UnsupportedEncoding(encoding))?;
        let (rate, channels) = (decoder.rate(), decoder.channels());
        let layout = ChannelLayout::new(channels).map_err(|_| UnsupportedEncoding(encoding))?;
        Ok(Self {
            encoding,
            layout,
            max_concealed: rate.frames(config.max_concealed).as_usize(),
            scratch: vec![0.0; LONGEST_SAMPLES.max(BLOCK_SAMPLES)],
            pool,
            items,
            open: None,
            position: MediaTime::ZERO,
            next: None,
            in_stream: false,
            due: None,
            concealed_in_row: 0,
            decoder,
        })
    }

    /// Starts anew for another sender or a restarted one: nothing continues the earlier audio.
    pub(super) fn restart(&mut self) {
        self.next = None;
        self.decoder.reset();
    }

    /// Discards audio that the station has not received yet.
    pub(super) fn discard(&mut self) {
        self.open = None;
    }

    /// Whether the station is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.items.is_abandoned()
    }

    /// Panics of the codec's library.
    pub(super) fn codec_panics(&self) -> u64 {
        self.decoder.panics()
    }

    /// Sets the playout time of the following packets.
    pub(super) const fn set_due(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Decodes a packet. If it is inaudible, up to `surplus` of it is skipped; returns how much.
    pub(super) fn decode(
        &mut self,
        ready: &ReadyPacket,
        payload: &[u8],
        surplus: Span,
        counts: &mut RtpInputCounts,
    ) -> Span {
        if ready.begins_run {
            counts.changes += u64::from(self.next.is_some());
            self.decoder.reset();
            self.next = None;
        }
        if let Some(next) = self.next {
            // No packet is missing, and yet the timestamp jumps: the sender omitted a silence.
            let silent = self.frames_in(ready.timestamp.saturating_sub(next));
            if silent > 0 {
                self.conceal(silent, &mut counts.left_out, &mut counts.gaps);
            }
        }
        let ticks = self.encoding.ticks(payload).map_or(0, u64::from);
        self.next = Some(ready.timestamp.wrapping_add(ticks));
        self.concealed_in_row = 0;
        if ready.skipped {
            counts.skipped += 1;
            return Span::ZERO;
        }
        let mut left_out = 0;
        match self.decoder.decode(payload, &mut self.scratch) {
            Ok(frames) => {
                left_out = self.inaudible_frames(frames, surplus);
                self.append(frames - left_out, counts);
            }
            Err(_) => {
                counts.undecodable += 1;
                let frames = self.frames_in(ticks);
                self.conceal(frames, &mut counts.concealed, &mut counts.gaps);
            }
        }
        if let Some(open) = &mut self.open {
            open.received = self.due.unwrap_or(ready.received);
        }
        self.decoder.rate().span(Frames::from(left_out))
    }

    /// How many of the decoded frames can be skipped because all of them are inaudible.
    fn inaudible_frames(&self, frames: usize, surplus: Span) -> usize {
        let rate = self.decoder.rate();
        let surplus = rate.frames(surplus).as_usize().min(frames);
        let decoded = &self.scratch[..frames * self.layout.channels()];
        if surplus < rate.frames(MIN_SHORTENED).as_usize()
            || decoded.iter().any(|sample| sample.abs() > INAUDIBLE_PEAK)
        {
            return 0;
        }
        surplus
    }

    /// The playout delay grew by `span`; conceals that much.
    pub(super) fn conceal_stretch(&mut self, span: Span, counts: &mut RtpInputCounts) {
        let frames = self.decoder.rate().frames(span).as_usize();
        counts.stretched += frames as u64;
        self.conceal(frames, &mut counts.concealed, &mut counts.gaps);
    }

    /// Skips `ticks` of a silence that the sender omitted.
    pub(super) fn skip_silence(&mut self, ticks: u64) {
        self.next = self.next.map(|next| next.wrapping_add(ticks));
    }

    /// Inserts `ticks` of a silence that the sender omitted.
    pub(super) fn fill_silence(&mut self, ticks: u64, counts: &mut RtpInputCounts) {
        self.skip_silence(ticks);
        let frames = self.frames_in(ticks);
        self.conceal(frames, &mut counts.left_out, &mut counts.gaps);
    }

    /// Fills `ticks` that are missing. If the next packet `following` is there and repeats the last
    /// of them (Opus in-band FEC), that is decoded; the rest is concealed.
    pub(super) fn conceal_missing(
        &mut self,
        ticks: u64,
        following: Option<&[u8]>,
        counts: &mut RtpInputCounts,
    ) {
        self.next = self.next.map(|next| next.wrapping_add(ticks));
        let frames = self.frames_in(ticks);
        let repeated = following
            .filter(|_| self.encoding.codec == RtpCodec::Opus && frames <= self.max_concealed)
            .and_then(|packet| Some((packet, self.frames_in(opus_fec_ticks(packet)?.into()))))
            .filter(|(_, repeated)| *repeated <= frames);
        let Some((packet, repeated)) = repeated else {
            return self.conceal(frames, &mut counts.concealed, &mut counts.gaps);
        };
        self.conceal(frames - repeated, &mut counts.concealed, &mut counts.gaps);
        let samples = repeated * self.layout.channels();
        self.decoder.recover(packet, &mut self.scratch[..samples]);
        self.append(repeated, counts);
        self.concealed_in_row = 0;
        counts.recovered_fec += 1;
    }

    /// Conceals frames, unless there are so many, at once or in sum, that the station has switched
    /// away.
    fn conceal(&mut self, mut frames: usize, made: &mut u64, gaps: &mut u64) {
        let before = self.concealed_in_row;
        self.concealed_in_row = before.saturating_add(frames);
        if self.concealed_in_row > self.max_concealed {
            if before <= self.max_concealed {
                *gaps += 1;
                self.decoder.reset();
            }
            return;
        }
        let channels = self.layout.channels();
        let mut lost = RtpInputCounts::default();
        while frames > 0 {
            let piece = frames.min(self.scratch.len() / channels);
            self.decoder.conceal(&mut self.scratch[..piece * channels]);
            self.append(piece, &mut lost);
            frames -= piece;
            *made += piece as u64;
        }
    }

    /// Appends the first frames of the scratch buffer to the current block.
    fn append(&mut self, frames: usize, counts: &mut RtpInputCounts) {
        self.in_stream = true;
        let channels = self.layout.channels();
        let mut done = 0;
        while done < frames {
            if self.open.is_none() {
                self.open = self.pool.take().map(|mut block| {
                    block.reset(self.decoder.rate(), self.layout);
                    block.pts = self.position;
                    block.received = self.due.unwrap_or(block.received);
                    block
                });
            }
            let Some(block) = &mut self.open else {
                counts.overflown += (frames - done) as u64;
                return;
            };
            let old = block.frames();
            let room = (block.capacity() - old).as_usize();
            let piece = room.min(frames - done);
            block.resize(old + Frames::from(piece));
            block.samples_mut()[old.as_usize() * channels..]
                .copy_from_slice(&self.scratch[done * channels..][..piece * channels]);
            self.position += Frames::from(piece);
            done += piece;
            if piece == room {
                self.flush();
            }
        }
    }

    /// Hands the current block to the station.
    pub(super) fn flush(&mut self) {
        let Some(block) = self.open.take_if(|block| block.frames() > Frames::ZERO) else { return };
        // The ring has a slot for every block of the pool, so it cannot be full.
        drop(self.items.push(SourceItem::Block(block)));
    }

    /// The sender has left.
    pub(super) fn close(&mut self, mark: SourceItem) {
        self.flush();
        if core::mem::take(&mut self.in_stream) {
            // Without room for the mark, the time-out of the station detects the end.
            drop(self.items.push(mark));
        }
    }

    fn frames_in(&self, ticks: u64) -> usize {
        let (rate, clock) = (u64::from(self.decoder.rate().hz()), self.encoding.clock_rate.max(1));
        let frames = u128::from(ticks) * u128::from(rate) / u128::from(clock);
        usize::try_from(frames).unwrap_or(usize::MAX)
    }
}

fn decoder(encoding: Encoding, opus_channels: usize) -> Option<Box<dyn Decoder>> {
    let plain = || {
        let rate = SampleRate::new(encoding.clock_rate).ok()?;
        Some((rate, ChannelLayout::new(encoding.channels.into()).ok()?))
    };
    Some(match encoding.codec {
        RtpCodec::Pcmu => Box::new(G711PacketDecoder::new(G711Law::Mu)),
        RtpCodec::Pcma => Box::new(G711PacketDecoder::new(G711Law::A)),
        RtpCodec::G722 => Box::new(G722PacketDecoder::new()),
        RtpCodec::L16 => {
            let (rate, layout) = plain()?;
            Box::new(L16PacketDecoder::new(rate, layout))
        }
        RtpCodec::L24 => {
            let (rate, layout) = plain()?;
            Box::new(L24PacketDecoder::new(rate, layout))
        }
        RtpCodec::Opus => Box::new(OpusPacketDecoder::new(SampleRate::HZ_48000, opus_channels)?),
        _ => return None,
    })
}

/// 120 ms of Opus in two channels; a packet of another codec that fits an Ethernet frame has fewer
/// samples.
const LONGEST_SAMPLES: usize = 5_760 * 2;

/// Audio below -60 dBFS can be skipped.
const INAUDIBLE_PEAK: f32 = 0.001;

/// Skipping less than this is not worthwhile.
const MIN_SHORTENED: Span = Span::from_millis(2);

/// There is no decoder for this encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a fact")]
pub struct UnsupportedEncoding(
    /// The encoding.
    pub Encoding,
);

impl fmt::Display for UnsupportedEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be decoded", self.0)
    }
}

impl core::error::Error for UnsupportedEncoding {}
