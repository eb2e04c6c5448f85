//! AAC: low complexity (LC), and HE-AAC, which adds spectral band replication (SBR) and, in its
//! version 2, parametric stereo (PS).
//!
//! `syom` decodes (`docs/decisions/aac-decoder.md`). It stops at the first error and decodes SBR
//! only from a packet that carries SBR's header, which comes about twice per second; own code
//! resumes after damage and joins a stream between two headers.

use core::fmt;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_engine::codec_guard::{CodecLibrary, CodecPanic, GuardedCodec};
use syom::{AacError, DecodeOptions, Decoder, Frame, MalformedKind, UnsupportedFeature};

/// Decodes the packets of one AAC stream.
pub(super) struct AacDecoder {
    decoder: GuardedCodec<Box<Decoder>>,
    /// The `AudioSpecificConfig` (ISO/IEC 14496-3, 1.6.2.1).
    config: Vec<u8>,
    /// A packet with which a new decoder can begin, so with the header of SBR; empty before the
    /// first.
    entry: Vec<u8>,
    /// Packets before the first that could be decoded.
    waited: u32,
    /// The first packets of a live stream, while the rate is not certain.
    undecided: Option<Vec<Vec<u8>>>,
    shape: (SampleRate, ChannelLayout),
}

/// The result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AacPacket {
    /// Frames.
    Frames,
    /// None yet: the header of SBR has not come, or the rate is not certain.
    Waiting,
    /// The packet is damaged.
    Damaged,
    /// None of the first packets could be decoded: the stream uses what is not supported.
    Unsupported,
}

impl AacDecoder {
    /// A decoder for an `AudioSpecificConfig`.
    ///
    /// # Errors
    /// The name of the kind of AAC when it is not supported.
    pub(super) fn new(config: &[u8]) -> Result<Self, &'static str> {
        if channel_configuration(config).is_some_and(|channels| channels > 2) {
            return Err("AAC of more than two channels");
        }
        let make = || Some(Box::new(Decoder::new(options())));
        let decoder = GuardedCodec::new(CodecLibrary::Syom, make);
        let mut decoder = decoder.ok_or_else(|| unsupported(&AacError::NotAac))?;
        let accepted = decoder.call(|decoder| decoder.set_asc(config));
        accepted.unwrap_or(Err(AacError::NotAac)).map_err(|why| unsupported(&why))?;
        Ok(Self {
            decoder,
            config: config.to_vec(),
            entry: Vec::new(),
            waited: 0,
            undecided: None,
            shape: (SampleRate::HZ_48000, ChannelLayout::STEREO),
        })
    }

    /// A decoder for a live stream, whose config does not tell whether it has SBR.
    ///
    /// At core rates that are usual for HE-AAC, the first frames come when a packet has SBR or when
    /// [`PACKETS_TO_DECIDE`] have none, so that the rate does not change afterwards.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn for_stream(config: [u8; 2], core: SampleRate) -> Result<Self, &'static str> {
        let undecided = (core.hz() <= MAX_USUAL_CORE_HZ).then(Vec::new);
        Ok(Self { undecided, ..Self::new(&config)? })
    }

    /// The `AudioSpecificConfig` of AAC LC, for a container without one. `None` for a rate or
    /// layout that it cannot express.
    pub(super) fn lc_config(rate: u32, channels: usize) -> Option<[u8; 2]> {
        let index = u8::try_from(RATES.iter().position(|known| *known == rate)?).ok()?;
        let channels = u8::try_from(channels).ok().filter(|count| (1..=2).contains(count))?;
        Some([OBJECT_LC << 3 | index >> 1, index << 7 | channels << 3])
    }

    /// Replaces `out` with the frames of a packet, interleaved.
    pub(super) fn decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> AacPacket {
        out.clear();
        if packet.is_empty() || packet.len() > MAX_PACKET_BYTES {
            return AacPacket::Damaged;
        }
        let Some(mut held) = self.undecided.take() else { return self.decode_one(packet, out) };
        let outcome = self.decode_one(packet, out);
        if outcome != AacPacket::Frames {
            self.undecided = Some(held);
            return outcome;
        }
        held.push(packet.to_vec());
        if !self.has_sbr() && held.len() < PACKETS_TO_DECIDE {
            self.undecided = Some(held);
            out.clear();
            return AacPacket::Waiting;
        }
        self.decode_again(&held, out);
        AacPacket::Frames
    }

    /// Replaces `out` with the frames of all these packets, decoded from the beginning.
    fn decode_again(&mut self, packets: &[Vec<u8>], out: &mut Vec<f32>) {
        if packets.len() < 2 {
            return;
        }
        self.restart();
        let mut all = Vec::new();
        for packet in packets {
            if self.run(packet, out).is_ok() {
                all.extend_from_slice(out);
            } else {
                self.restart();
            }
        }
        *out = all;
    }

    fn decode_one(&mut self, packet: &[u8], out: &mut Vec<f32>) -> AacPacket {
        if self.run(packet, out).is_ok() {
            self.accept(packet);
            return AacPacket::Frames;
        }
        // The packet is damaged, or the decoder's state is, or the stream has changed.
        self.restart();
        let Err(failure) = self.run(packet, out) else {
            self.entry.clear();
            self.accept(packet);
            return AacPacket::Frames;
        };
        self.restart();
        out.clear();
        if self.entry.is_empty() {
            self.waited += 1;
            return match failure {
                _ if self.waited > MAX_PACKETS_BEFORE_FIRST => AacPacket::Unsupported,
                PacketFailure::Sbr => AacPacket::Waiting,
                PacketFailure::Other => AacPacket::Damaged,
            };
        }
        if self.has_sbr() {
            self.replay_entry(out);
        }
        out.clear();
        AacPacket::Damaged
    }

    /// Gives a new decoder the header of SBR that the next packets need, and then silence, because
    /// the end of each frame overlaps with the next and SBR delays it.
    fn replay_entry(&mut self, out: &mut Vec<f32>) {
        let entry = core::mem::take(&mut self.entry);
        let silence: &[u8] = match channel_configuration(&self.config) {
            Some(1) => &SILENCE_MONO,
            _ => &SILENCE_STEREO,
        };
        if [&entry, silence, silence].into_iter().any(|packet| self.run(packet, out).is_err()) {
            self.restart();
        }
        self.entry = entry;
    }

    /// Whether the config announces SBR, as it does from the first packet that has it.
    fn has_sbr(&self) -> bool {
        self.config.first().is_some_and(|first| matches!(first >> 3, OBJECT_SBR | OBJECT_PS))
    }

    /// Packets before the first that could be decoded.
    pub(super) const fn waited(&self) -> u32 {
        self.waited
    }

    /// Rate and layout of the last frames.
    pub(super) const fn shape(&self) -> (SampleRate, ChannelLayout) {
        self.shape
    }

    fn accept(&mut self, packet: &[u8]) {
        // ADTS cannot announce SBR. From now on a packet whose SBR is missing or damaged must not
        // come out at half the rate.
        if let Some(config) = with_sbr(&self.config, self.shape.0.hz()) {
            self.config = config.to_vec();
            self.entry.clear();
        }
        if self.entry.is_empty() {
            self.entry.extend_from_slice(packet);
        }
    }

    fn run(&mut self, packet: &[u8], out: &mut Vec<f32>) -> Result<(), PacketFailure> {
        let Self { decoder, shape, .. } = self;
        out.clear();
        let decoded = decoder.call(|decoder| {
            decoder.decode_au(packet, |frame| {
                *shape = interleave(&frame, out).ok_or(AacError::NotAac)?;
                Ok(())
            })
        });
        // Damage that is not recognized as such: nothing that an encoder makes is so loud.
        let is_plausible = out.iter().all(|sample| sample.abs() <= MAX_AMPLITUDE);
        match decoded {
            Ok(Ok(())) if is_plausible && !out.is_empty() => Ok(()),
            Ok(Err(AacError::Malformed(MalformedKind::Sbr | MalformedKind::Ps))) => {
                Err(PacketFailure::Sbr)
            }
            Ok(_) | Err(CodecPanic) => Err(PacketFailure::Other),
        }
    }

    fn restart(&mut self) {
        let Self { decoder, config, .. } = self;
        // It was accepted before; if not now, the next packet fails.
        let restarted = decoder.call(|decoder| {
            decoder.reset();
            decoder.set_asc(config).ok()
        });
        restarted.ok();
    }

    /// Panics of the library.
    pub(super) const fn panics(&self) -> u64 {
        self.decoder.panics()
    }
}

impl fmt::Debug for AacDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AacDecoder").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// Why a packet was not decoded.
enum PacketFailure {
    /// SBR or PS: damaged, or before its first header.
    Sbr,
    Other,
}

/// Appends the frames, and returns their rate and layout; `None` for those that are not supported.
fn interleave(frame: &Frame<'_>, out: &mut Vec<f32>) -> Option<(SampleRate, ChannelLayout)> {
    let rate = SampleRate::new(frame.sample_rate).ok()?;
    let layout = ChannelLayout::new(frame.planar.len()).ok()?;
    match frame.planar {
        [mono] => out.extend_from_slice(mono),
        [left, right] => out.extend(left.iter().zip(*right).flat_map(|(l, r)| [*l, *r])),
        _ => return None,
    }
    Some((rate, layout))
}

/// Live streams never end, so only the work and memory for one packet is limited.
fn options() -> DecodeOptions {
    let mut options = DecodeOptions::unbounded();
    options.memory.max_channels = 2;
    options
}

/// The `channelConfiguration` of a config: 0 when a later part of it or the packets have it.
fn channel_configuration(config: &[u8]) -> Option<u16> {
    let head = u16::from_be_bytes(*config.first_chunk()?);
    // Other lengths of the fields are those of kinds and rates that are not in use.
    let is_plain = head >> 11 != 31 && head >> 7 & 15 != 15;
    is_plain.then_some(head >> 3 & 15)
}

/// The `AudioSpecificConfig` with SBR explicitly announced, for one of AAC LC whose packets decode
/// to twice its rate.
fn with_sbr(config: &[u8], decoded: u32) -> Option<[u8; 4]> {
    let channels = channel_configuration(config)?;
    let head = u16::from_be_bytes(*config.first_chunk()?);
    let (object, core) = (head >> 11, usize::from(head >> 7 & 15));
    let is_doubled = object == u16::from(OBJECT_LC) && RATES.get(core)? * 2 == decoded;
    let extended = RATES.iter().position(|rate| *rate == decoded).filter(|_| is_doubled)?;
    // Object type 5, core rate, channels, rate with SBR, object type 2; the rest is 0.
    let bits =
        u32::from(OBJECT_SBR) << 27 | u32::try_from(core).ok()? << 23 | u32::from(channels) << 19;
    Some((bits | u32::try_from(extended).ok()? << 15 | u32::from(OBJECT_LC) << 10).to_be_bytes())
}

fn unsupported(why: &AacError) -> &'static str {
    match why {
        AacError::Unsupported(UnsupportedFeature::AudioObjectType(42)) => "xHE-AAC (USAC)",
        AacError::Unsupported(UnsupportedFeature::AudioObjectType(39)) => "AAC-ELD",
        AacError::Unsupported(UnsupportedFeature::HeFrame960) => "HE-AAC with 960-sample frames",
        _ => "this kind of AAC",
    }
}

/// Audio object types.
const OBJECT_LC: u8 = 2;
const OBJECT_SBR: u8 = 5;
const OBJECT_PS: u8 = 29;

/// A packet without any spectrum: a single channel, or a pair with windows of their own, and the
/// end.
const SILENCE_MONO: [u8; 4] = [0, 0, 0, 0x07];
const SILENCE_STEREO: [u8; 7] = [0x20, 0, 0, 0, 0, 0, 0x0e];

/// Sample rates by sampling frequency index.
const RATES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

/// The highest core rate of usual HE-AAC: 48 kHz with SBR.
const MAX_USUAL_CORE_HZ: u32 = 24_000;

/// Packets without SBR at the beginning that show that a stream has none: 170 ms at 24 kHz.
const PACKETS_TO_DECIDE: usize = 4;

/// The longest frame of ADTS; an access unit of two channels has 1,536 bytes at most, and fill.
const MAX_PACKET_BYTES: usize = 8_192;

/// Packets that may fail before the first that can be decoded: two to four seconds.
const MAX_PACKETS_BEFORE_FIRST: u32 = 100;

/// The largest amplitude of decoded audio, 24 dB above full scale.
const MAX_AMPLITUDE: f32 = 16.0;
