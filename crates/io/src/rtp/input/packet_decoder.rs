//! From packets in order to blocks of sound: decoding, repair, concealment.

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span};
use aulos_dsp::g711::G711Law;
use aulos_engine::decode::{
    Decoder, G711Decoder, G722Decoder, L16Decoder, L24Decoder, OpusPacketDecoder,
};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_proto::rtp::payload::opus_fec_ticks;
use aulos_proto::rtp::{Encoding, RtpCodec};
use aulos_rt::ring::Producer;
use aulos_rt::{Pool, Pooled};

use super::{RtpInputConfig, RtpInputCounts, UnsupportedEncoding};
use crate::relay::ingress::ReadyPacket;

/// The sound of one source.
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
    /// The timestamp that comes next, when everything does.
    next: Option<u64>,
    in_stream: bool,
    /// The moment that is played now, where packets have a play-out time.
    due: Option<Instant>,
    /// Frames in a row for which there was no packet.
    concealed_in_row: usize,
}

impl PacketDecoder {
    /// Without a sender yet. Allocates all that its packets need.
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

    /// Another sender, or another piece of this one: nothing connects it with what came before.
    pub(super) fn restart(&mut self) {
        self.next = None;
        self.decoder.reset();
    }

    /// Throws away what the station has not been given yet.
    pub(super) fn discard(&mut self) {
        self.open = None;
    }

    /// Whether the station is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.items.is_abandoned()
    }

    /// What comes now is to be heard at `now`, whenever its packets came.
    pub(super) const fn set_due(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Decodes a packet whose turn it is. When nothing is heard in it, up to `surplus` of it is left
    /// out; returns how much.
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
            // Nothing is missing, and yet it goes on later: the sender said nothing meanwhile.
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

    /// How many of the decoded frames can be left out because nothing is heard in any of them.
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

    /// Play-out has become later by `span`, because packets came later: that much is concealed.
    pub(super) fn conceal_stretch(&mut self, span: Span, counts: &mut RtpInputCounts) {
        let frames = self.decoder.rate().frames(span).as_usize();
        counts.stretched += frames as u64;
        self.conceal(frames, &mut counts.concealed, &mut counts.gaps);
    }

    /// `units` of a silence that the sender left out are not to be heard.
    pub(super) fn skip_silence(&mut self, units: u64) {
        self.next = self.next.map(|next| next.wrapping_add(units));
    }

    /// The sender left out `units`, because they were silent.
    pub(super) fn fill_silence(&mut self, units: u64, counts: &mut RtpInputCounts) {
        self.skip_silence(units);
        let frames = self.frames_in(units);
        self.conceal(frames, &mut counts.left_out, &mut counts.gaps);
    }

    /// Fills in for `units` that are missing. When the packet behind them, `following`, is there and
    /// carries the last of them again (in-band error correction of Opus), that is decoded; the rest is
    /// concealed.
    pub(super) fn conceal_missing(
        &mut self,
        units: u64,
        following: Option<&[u8]>,
        counts: &mut RtpInputCounts,
    ) {
        self.next = self.next.map(|next| next.wrapping_add(units));
        let frames = self.frames_in(units);
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

    /// Conceals so many frames, unless they are so many, at once or bit by bit, that the station has gone
    /// elsewhere.
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

    /// Puts the first frames of the scratch behind what is there.
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

    /// Hands over what there is.
    pub(super) fn flush(&mut self) {
        let Some(block) = self.open.take_if(|block| block.frames() > Frames::ZERO) else { return };
        // There is a slot for every block of the pool, so this cannot be full.
        drop(self.items.push(SourceItem::Block(block)));
    }

    /// The sender has left.
    pub(super) fn close(&mut self, mark: SourceItem) {
        self.flush();
        if core::mem::take(&mut self.in_stream) {
            // Without room for the mark the station finds out by its time-out.
            drop(self.items.push(mark));
        }
    }

    fn frames_in(&self, units: u64) -> usize {
        let (rate, clock) = (u64::from(self.decoder.rate().hz()), self.encoding.clock_rate.max(1));
        let frames = u128::from(units) * u128::from(rate) / u128::from(clock);
        usize::try_from(frames).unwrap_or(usize::MAX)
    }
}

fn decoder(encoding: Encoding, opus_channels: usize) -> Option<Box<dyn Decoder>> {
    let plain = || {
        let rate = SampleRate::new(encoding.clock_rate).ok()?;
        Some((rate, ChannelLayout::new(encoding.channels.into()).ok()?))
    };
    Some(match encoding.codec {
        RtpCodec::Pcmu => Box::new(G711Decoder::new(G711Law::Mu)),
        RtpCodec::Pcma => Box::new(G711Decoder::new(G711Law::A)),
        RtpCodec::G722 => Box::new(G722Decoder::new()),
        RtpCodec::L16 => {
            let (rate, layout) = plain()?;
            Box::new(L16Decoder::new(rate, layout))
        }
        RtpCodec::L24 => {
            let (rate, layout) = plain()?;
            Box::new(L24Decoder::new(rate, layout))
        }
        RtpCodec::Opus => Box::new(OpusPacketDecoder::new(SampleRate::HZ_48000, opus_channels)?),
        _ => return None,
    })
}

/// 120 ms of Opus in two channels; no packet of another codec that fits a datagram of a usual network
/// has more.
const LONGEST_SAMPLES: usize = 5_760 * 2;

/// What is below -60 dBFS can be left out without being missed.
const INAUDIBLE_PEAK: f32 = 0.001;

/// It is not worth it for less than this.
const MIN_SHORTENED: Span = Span::from_millis(2);
