//! Reader of MPEG transport streams: finds packets, and cuts the sound in them into frames with
//! their times.

mod frames;
mod latm;
mod opus;
#[cfg(test)]
mod tests;
mod unit_times;

use super::input_buffer::InputBuffer;
use super::{MAX_GARBAGE, PacketFormat, ReaderStep, SplitterEvent, StreamFormatError, StreamStart};
use crate::id3::TagCollector;
use crate::mpegts::{TS_PACKET, TsCodec, TsDemuxer, TsEvent, is_sync};
use unit_times::{Unit, UnitTimes};

/// Reader of transport packets.
#[derive(Debug, Default)]
pub(super) struct TransportReader {
    demuxer: TsDemuxer,
    sound: Option<Sound>,
    tags: TagCollector,
    /// The next packet is being searched for.
    is_lost: bool,
    /// Bytes since the last packet.
    garbage: u64,
    /// Packets before the first sound.
    silent: u64,
}

/// The elementary stream that is played.
#[derive(Debug)]
struct Sound {
    units: UnitReader,
    times: UnitTimes,
    /// Bytes of the stream so far.
    pushed: u64,
}

/// Cuts the bytes of an elementary stream into units.
#[derive(Debug)]
enum UnitReader {
    Frames(frames::FrameReader),
    Latm(latm::LatmReader),
    Opus(opus::OpusReader),
}

impl TransportReader {
    pub(super) fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        loop {
            if let Some(event) = self.sound.as_mut().and_then(|sound| sound.next(packet)) {
                return ReaderStep::Found(event);
            }
            self.is_lost |= input.bytes().first().is_some_and(|first| !is_sync(*first));
            if self.is_lost
                && let Some(step) = self.find_sync(input)
            {
                return step;
            }
            let bytes = input.bytes();
            let Some(transport) = bytes.first_chunk::<TS_PACKET>().copied() else {
                return self.end(input);
            };
            input.skip(TS_PACKET as u64);
            self.garbage = 0;
            if let Some(step) = self.handle_packet(&transport) {
                return step;
            }
        }
    }

    /// Searches for two packets in a row; what is to be returned meanwhile.
    fn find_sync(&mut self, input: &mut InputBuffer) -> Option<ReaderStep> {
        let bytes = input.bytes();
        let begins = |at: usize| {
            let next = bytes.get(at + TS_PACKET).copied();
            bytes.get(at).copied().is_some_and(is_sync) && next.is_none_or(is_sync)
        };
        let at = (0..bytes.len()).find(|at| begins(*at)).unwrap_or(bytes.len());
        self.is_lost = bytes.len() <= at + TS_PACKET;
        self.demuxer.handle_loss();
        self.garbage += at as u64;
        input.skip(at as u64);
        match self.is_lost {
            _ if self.garbage > MAX_GARBAGE => Some(ReaderStep::EndOfStream),
            false => None,
            true => Some(self.end(input)),
        }
    }

    /// What the rest of the input holds: at its end the last frame, otherwise nothing yet.
    fn end(&mut self, input: &mut InputBuffer) -> ReaderStep {
        if !input.is_ended() {
            return ReaderStep::NeedMore;
        }
        input.clear();
        if let Some(Sound { units: UnitReader::Frames(frames), .. }) = &mut self.sound
            && frames.finish()
        {
            return ReaderStep::Consumed;
        }
        ReaderStep::NeedMore
    }

    fn handle_packet(&mut self, packet: &[u8; TS_PACKET]) -> Option<ReaderStep> {
        let refused = |why| Some(ReaderStep::Refused(why));
        if self.sound.is_none() {
            self.silent += 1;
            if self.silent > MAX_PACKETS_WITHOUT_SOUND {
                return refused(StreamFormatError::TransportStream(None));
            }
        }
        match self.demuxer.handle_packet(packet)? {
            TsEvent::Stream(codec) => {
                let (sound, start) = Sound::new(codec);
                self.sound = Some(sound);
                start.map(|start| ReaderStep::Found(SplitterEvent::Begin(Box::new(start))))
            }
            TsEvent::NoSound(codec) => refused(StreamFormatError::TransportStream(codec)),
            TsEvent::Scrambled => refused(StreamFormatError::Scrambled),
            TsEvent::Sound { time, is_after_loss, bytes } => {
                let sound = self.sound.as_mut()?;
                if is_after_loss {
                    sound.units.discontinue();
                }
                sound.times.extend(time.map(|time| (sound.pushed, time)));
                sound.pushed += bytes.len() as u64;
                sound.units.push(bytes);
                None
            }
            TsEvent::Metadata { begins, bytes } => {
                let tag = self.tags.push(bytes, begins)?;
                tag.title().map(|title| ReaderStep::Found(SplitterEvent::Title(title)))
            }
        }
    }
}

impl Sound {
    /// A stream of this codec, and its format where the tables tell it.
    fn new(codec: TsCodec) -> (Self, Option<StreamStart>) {
        let (units, format) = match codec {
            TsCodec::Latm => (UnitReader::Latm(latm::LatmReader::default()), None),
            TsCodec::Opus(channels) => {
                let format = PacketFormat::Opus { head: opus::head(channels) };
                (UnitReader::Opus(opus::OpusReader::default()), Some(format))
            }
            TsCodec::Adts | TsCodec::Mpeg => {
                (UnitReader::Frames(frames::FrameReader::default()), None)
            }
        };
        let start = format.map(|format| StreamStart { format, skip: 0, padding: None });
        (Self { units, times: UnitTimes::default(), pushed: 0 }, start)
    }

    /// The next unit, with its time.
    fn next(&mut self, packet: &mut Vec<u8>) -> Option<SplitterEvent> {
        let (mut event, at) = self.units.next(packet)?;
        if let SplitterEvent::Packet(placement) = &mut event {
            placement.time = self.times.take(at);
        }
        Some(event)
    }
}

impl UnitReader {
    fn push(&mut self, bytes: &[u8]) {
        // There is room: everything before it has been read, up to an incomplete unit.
        _ = match self {
            Self::Frames(frames) => frames.push(bytes),
            Self::Latm(latm) => latm.push(bytes),
            Self::Opus(opus) => opus.push(bytes),
        };
    }

    fn discontinue(&mut self) {
        match self {
            Self::Frames(frames) => frames.discontinue(),
            Self::Latm(latm) => latm.discontinue(),
            Self::Opus(opus) => opus.discontinue(),
        }
    }

    fn next(&mut self, packet: &mut Vec<u8>) -> Option<Unit> {
        match self {
            Self::Frames(frames) => frames.next(packet),
            Self::Latm(latm) => latm.next(packet),
            Self::Opus(opus) => opus.next(packet),
        }
    }
}

/// Packets before the first table that names sound, 1.5 MB: tables come ten times a second.
const MAX_PACKETS_WITHOUT_SOUND: u64 = 8_192;
