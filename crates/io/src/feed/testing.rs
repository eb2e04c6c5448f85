//! A decoder of WAVE streams for the tests of the feeders: it follows bodies, counts packets and
//! refuses other formats as the decoders of `aulos-files` do.

use aulos_core::{Block, ChannelLayout, Frames, SampleRate};
use aulos_dsp::convert;
use aulos_engine::source::SourceItem;
use aulos_proto::packets::{PacketFormat, PacketSplitter, SplitterEvent};
use aulos_proto::wav::WavSampleFormat;
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, LatestReader, Pool};

use super::stream::{
    BodyMark, StreamError, StreamReader, StreamState, StreamWriter, stream_channel,
};
use crate::{Job, JobStatus};

pub(super) struct StreamParts {
    pub(super) writer: StreamWriter,
    pub(super) source: StreamSource,
    pub(super) items: Consumer<SourceItem>,
    pub(super) state: LatestReader<StreamState>,
}

pub(super) struct StreamSource {
    input: StreamReader,
    splitter: Option<PacketSplitter>,
    samples: WavSampleFormat,
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    publisher: LatestPublisher<StreamState>,
    state: StreamState,
    /// Packets of earlier bodies.
    packets: u64,
}

impl StreamParts {
    pub(super) fn new() -> Self {
        let (writer, input) = stream_channel();
        let (items, consumer) = ring(BLOCKS + 1);
        let (publisher, state) = aulos_rt::latest(StreamState::default());
        let source = StreamSource {
            input,
            splitter: None,
            samples: WavSampleFormat::F64,
            pool: Pool::new(BLOCKS, || {
                Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::MONO, BLOCK_FRAMES)
            }),
            items,
            publisher,
            state: StreamState::default(),
            packets: 0,
        };
        Self { writer, source, items: consumer, state }
    }
}

impl StreamSource {
    /// Handles one event of the body; false if nothing can be done now.
    fn decode(&mut self) -> bool {
        let Some(splitter) = &mut self.splitter else {
            self.input.discard();
            return self.next_mark();
        };
        let Some(mut block) = self.pool.take() else { return false };
        match splitter.next() {
            Ok(Some(SplitterEvent::Begin(start))) => {
                let PacketFormat::Pcm { samples, .. } = start.format else { panic!("{start:?}") };
                self.samples = samples;
            }
            Ok(Some(SplitterEvent::Packet(_))) => {
                let packets = self.packets + splitter.stats().packets;
                self.state.counts.packets = packets;
                if self.input.is_parse_only() && splitter.stats().packets > 1 {
                    return true;
                }
                let WavSampleFormat::Native(format) = self.samples else {
                    panic!("{:?}", self.samples)
                };
                let packet = splitter.packet();
                block.resize(Frames::from(packet.len() / format.bytes()));
                convert::decode(format, packet, block.samples_mut());
                self.items.push(SourceItem::Block(block)).expect("a slot for each block");
            }
            Ok(Some(_)) => {}
            Ok(None) => {
                return self.input.read(|bytes| splitter.push(bytes)) > 0 || self.next_mark();
            }
            Err(why) => self.close(Some(StreamError::Refused(why))),
        }
        true
    }

    fn next_mark(&mut self) -> bool {
        match self.input.next_mark() {
            None => return false,
            Some(BodyMark::Begin(hint) | BodyMark::Follow(hint)) => {
                self.close(None);
                self.splitter = Some(PacketSplitter::new(hint));
                self.state.body += 1;
            }
            Some(BodyMark::End) => {
                if self.splitter.is_some() {
                    self.close(None);
                    self.items.push(SourceItem::End).expect("a slot besides the blocks");
                }
            }
        }
        true
    }

    fn close(&mut self, error: Option<StreamError>) {
        self.packets += self.splitter.take().map_or(0, |it| it.stats().packets);
        self.state.error = error;
    }
}

impl Job for StreamSource {
    fn step(&mut self) -> JobStatus {
        while self.decode() {}
        self.publisher.publish(self.state);
        JobStatus::Pending
    }
}

const BLOCKS: usize = 64;
const BLOCK_FRAMES: usize = 1_024;
