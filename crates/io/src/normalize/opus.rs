//! Opus in Ogg, as long as the sound was, to the frame.
//!
//! A decoder's output is late by the encoder's delay. So much is skipped at the beginning, and at
//! the end the sound is followed by silence until all of it is in packets.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use aulos_core::{Block, Frames, SampleSpec};
use aulos_engine::encode::{Encoder, Opus};
use aulos_proto::ogg::OpusFile;

use super::save::Form;

pub(super) struct OpusWriter {
    out: BufWriter<File>,
    encoder: Opus,
    file: OpusFile,
    block: Block,
    /// Samples of the block that are filled.
    filled: usize,
    frames: u64,
    packet: Vec<u8>,
    pages: Vec<u8>,
}

impl OpusWriter {
    pub(super) fn new(mut out: BufWriter<File>, form: &Form<'_>) -> io::Result<Self> {
        let SampleSpec { rate, layout, .. } = form.spec;
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let channels = layout.channels();
        let what = format!("Opus has one or two channels here, not {channels}: write FLAC or WAVE");
        let encoder =
            Opus::new(form.spec, PACKET, form.bitrate).map_err(|_| wrong(what.clone()))?;
        let mut pages = Vec::new();
        let comments = form.tags.opus();
        let comments = comments.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let skip = u16::try_from(Opus::DELAY.0).unwrap_or(u16::MAX);
        let file = OpusFile::begin(SERIAL, layout, form.from, skip, comments, &mut pages)
            .map_err(|_| wrong(what))?;
        out.write_all(&pages)?;
        pages.clear();
        let mut block = Block::with_capacity(rate, layout, PACKET.as_usize() * channels);
        block.resize(PACKET);
        let (filled, frames) = (0, 0);
        Ok(Self { out, encoder, file, block, filled, frames, packet: Vec::new(), pages })
    }

    pub(super) fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        self.frames += (samples.len() / self.block.layout().channels()) as u64;
        let mut rest = samples;
        while !rest.is_empty() {
            let room = &mut self.block.samples_mut()[self.filled..];
            let (now, later) = rest.split_at(rest.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            rest = later;
            if self.filled == self.block.samples().len() {
                self.encode()?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        // What is behind by the delay has to come out as well.
        let channels = self.block.layout().channels();
        let missing = self.filled / channels + Opus::DELAY.as_usize();
        for _ in 0..missing.div_ceil(PACKET.as_usize()) {
            // `encode` leaves nothing filled.
            self.block.samples_mut()[self.filled..].fill(0.0);
            self.encode()?;
        }
        self.file.finish(Frames(self.frames), &mut self.pages);
        self.out.write_all(&self.pages)?;
        self.out.flush()
    }

    fn encode(&mut self) -> io::Result<()> {
        self.packet.clear();
        self.encoder.encode(&self.block, &mut self.packet).map_err(io::Error::other)?;
        self.file.write(&self.packet, PACKET, &mut self.pages);
        self.filled = 0;
        self.out.write_all(&self.pages)?;
        self.pages.clear();
        Ok(())
    }
}

/// 20 ms.
const PACKET: Frames = Frames(960);
/// There is one stream in the file; any number will do.
const SERIAL: u32 = 1;
