//! The demultiplexer.

use super::packet::{Continuity, ContinuityCounter, TS_PACKET, TsPacket};
use super::pes::PesReader;
use super::section::SectionAssembler;
use super::tables::{StreamContent, elementary_streams, programmes};
use super::{TsCodec, TsTime, UnsupportedTsCodec};

/// What a packet has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TsEvent<'a> {
    /// A stream of sound begins, or replaces the one before.
    Stream(TsCodec),
    /// There is no sound that can be decoded in any programme; the codec of the first sound that
    /// there is.
    NoSound(Option<UnsupportedTsCodec>),
    /// Bytes of the sound, as they follow one another.
    Sound {
        /// Presentation time of the first unit that begins in `bytes`.
        time: Option<TsTime>,
        /// Bytes before these are missing.
        is_after_loss: bool,
        /// One piece, at most 184 bytes.
        bytes: &'a [u8],
    },
    /// Bytes of timed metadata: ID3 tags, each of which begins a PES packet.
    Metadata {
        /// A tag begins here.
        begins: bool,
        /// One piece, at most 184 bytes.
        bytes: &'a [u8],
    },
    /// The sound is scrambled, and has been for a while.
    Scrambled,
}

/// Finds the first sound of a transport stream that can be decoded.
///
/// Its memory does not depend on the input: a section of a table for each of up to 16 programmes,
/// and the header of a PES packet.
#[derive(Debug, Default)]
pub struct TsDemuxer {
    association: SectionAssembler,
    association_counter: ContinuityCounter,
    programmes: Vec<Programme>,
    /// PID of the table of the programme that is played.
    played: Option<u16>,
    sound: Option<Elementary<TsCodec>>,
    metadata: Option<Elementary<()>>,
    /// Packets in a row whose sound is scrambled.
    scrambled: u32,
}

/// A programme of the stream.
#[derive(Debug)]
struct Programme {
    pid: u16,
    table: SectionAssembler,
    counter: ContinuityCounter,
    /// Its streams: none that can be decoded, and the first that cannot.
    refused: Option<Option<UnsupportedTsCodec>>,
}

#[derive(Debug)]
struct Elementary<T> {
    pid: u16,
    content: T,
    counter: ContinuityCounter,
    pes: PesReader,
    /// Bytes were lost since the last that were given out.
    is_after_loss: bool,
}

impl TsDemuxer {
    /// Takes one packet. Packets that are damaged or belong to other streams bring nothing.
    pub fn handle_packet<'a>(&mut self, bytes: &'a [u8; TS_PACKET]) -> Option<TsEvent<'a>> {
        let packet = TsPacket::parse(bytes)?;
        if packet.pid == ASSOCIATION {
            self.read_association(&packet);
            return None;
        }
        if let Some(at) = self.programmes.iter().position(|it| it.pid == packet.pid) {
            return self.read_programme(at, &packet);
        }
        match (&mut self.sound, &mut self.metadata) {
            (Some(sound), _) if sound.pid == packet.pid => {
                self.scrambled = if packet.is_scrambled { self.scrambled + 1 } else { 0 };
                if packet.is_scrambled {
                    return (self.scrambled == MAX_SCRAMBLED).then_some(TsEvent::Scrambled);
                }
                let (time, bytes) = sound.push(&packet)?;
                let is_after_loss = core::mem::take(&mut sound.is_after_loss);
                Some(TsEvent::Sound { time, is_after_loss, bytes })
            }
            (_, Some(metadata)) if metadata.pid == packet.pid => {
                let (_, bytes) = metadata.push(&packet)?;
                let is_after_loss = core::mem::take(&mut metadata.is_after_loss);
                // What is left of a tag is useless.
                let bytes = if is_after_loss && !packet.starts_unit { &[][..] } else { bytes };
                Some(TsEvent::Metadata { begins: packet.starts_unit || is_after_loss, bytes })
            }
            _ => None,
        }
    }

    /// Bytes are missing before the next packet, as far as the counters do not tell.
    pub fn handle_loss(&mut self) {
        self.association.lost();
        self.programmes.iter_mut().for_each(|programme| programme.table.lost());
    }

    fn read_association(&mut self, packet: &TsPacket<'_>) {
        let Self { association, association_counter, programmes: known, played, .. } = self;
        match association_counter.follow(packet) {
            Continuity::Repeated => return,
            Continuity::Lost => association.lost(),
            Continuity::Next => {}
        }
        association.push(packet.payload, packet.starts_unit, |table| {
            let Some(found) = programmes(table) else { return };
            let found: Vec<_> = found.take(MAX_PROGRAMMES).collect();
            if !found.iter().copied().eq(known.iter().map(|programme| programme.pid)) {
                *played = played.filter(|pid| found.contains(pid));
                *known = found.into_iter().map(Programme::new).collect();
            }
        });
    }

    fn read_programme(&mut self, at: usize, packet: &TsPacket<'_>) -> Option<TsEvent<'static>> {
        let Programme { table, counter, refused, .. } = self.programmes.get_mut(at)?;
        match counter.follow(packet) {
            Continuity::Repeated => return None,
            Continuity::Lost => table.lost(),
            Continuity::Next => {}
        }
        let (mut sound, mut metadata, mut read) = (None, None, false);
        table.push(packet.payload, packet.starts_unit, |table| {
            let Some(streams) = elementary_streams(table) else { return };
            (sound, metadata, read) = (None, None, true);
            let mut unsupported = None;
            for (pid, content) in streams {
                match content {
                    StreamContent::Sound(codec) => _ = sound.get_or_insert((pid, codec)),
                    StreamContent::Metadata => _ = metadata.get_or_insert(pid),
                    StreamContent::Unsupported(codec) => _ = unsupported.get_or_insert(codec),
                    StreamContent::Other => {}
                }
            }
            *refused = sound.is_none().then_some(unsupported);
        });
        if !read {
            return None;
        }
        let Some((pid, codec)) = sound else { return self.refusal() };
        // The first programme with sound is played for as long as the stream has it.
        if *self.played.get_or_insert(packet.pid) != packet.pid {
            return None;
        }
        if self.metadata.as_ref().map(|stream| stream.pid) != metadata {
            self.metadata = metadata.map(|pid| Elementary::new(pid, ()));
        }
        if self.sound.as_ref().is_some_and(|it| it.pid == pid && it.content == codec) {
            return None;
        }
        self.sound = Some(Elementary::new(pid, codec));
        Some(TsEvent::Stream(codec))
    }

    /// Said once every programme is known, and none has sound that can be decoded.
    fn refusal(&self) -> Option<TsEvent<'static>> {
        let refused = self.programmes.iter().map(|programme| programme.refused);
        let all: Option<Vec<_>> = refused.collect();
        let first = all?.into_iter().flatten().next();
        self.sound.is_none().then_some(TsEvent::NoSound(first))
    }
}

impl Programme {
    fn new(pid: u16) -> Self {
        Self { pid, table: SectionAssembler::default(), counter: Default::default(), refused: None }
    }
}

impl<T> Elementary<T> {
    fn new(pid: u16, content: T) -> Self {
        let (counter, pes) = (ContinuityCounter::default(), PesReader::default());
        Self { pid, content, counter, pes, is_after_loss: false }
    }

    fn push<'a>(&mut self, packet: &TsPacket<'a>) -> Option<(Option<TsTime>, &'a [u8])> {
        match self.counter.follow(packet) {
            Continuity::Repeated => return None,
            Continuity::Lost => {
                self.pes.lost();
                self.is_after_loss = true;
            }
            Continuity::Next => {}
        }
        let (time, bytes) = self.pes.push(packet.payload, packet.starts_unit);
        (time.is_some() || !bytes.is_empty()).then_some((time, bytes))
    }
}

/// The PID of the table of programmes.
const ASSOCIATION: u16 = 0;

/// Programmes that are looked at; a multiplex of DVB has some 10 to 30, and a radio stream has one.
const MAX_PROGRAMMES: usize = 16;

/// Scrambled packets in a row before the stream counts as scrambled: two seconds at 128 kbit/s.
const MAX_SCRAMBLED: u32 = 200;
