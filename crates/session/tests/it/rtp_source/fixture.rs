//! A station with its RTP input, a sender with a clock of its own, and a simulated network between.

use std::net::SocketAddr;

use aulos_core::{
    ChannelLayout, Db, Frames, HEADROOM, Instant, Ppm, SampleFormat, SampleRate, SampleSpec, Span,
};
use aulos_dsp::g711::{self, G711Law};
use aulos_engine::encode::PcmEncoder;
use aulos_engine::fanout::TimedChunk;
use aulos_engine::generate::Tone;
use aulos_engine::input::Input;
use aulos_engine::input::InputConfig;
use aulos_engine::rendition::Rendition;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::station::{Station, StationConfig, StationHandle};
use aulos_engine::status::StationStatus;
use aulos_engine::switch::SwitchConfig;
use aulos_proto::rtp::{Encoding, HEADER_LEN, RtpCodec, RtpHeader};
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, ring};
use aulos_session::rtp::RtpPayloadFormat;
use aulos_session::rtp::{PlayoutDelay, RtpInput, RtpInputConfig, RtpInputSink};
use aulos_sim::{DatagramLink, Link, SoundCard};

pub(crate) const SENDER: &str = "192.0.2.1:5004";
pub(crate) const SSRC: u32 = 0x0a0b_0c0d;
/// Frames in a packet of 20 ms.
pub(crate) const FRAMES: u64 = 160;

const QUANTUM: Span = Span::from_millis(20);
/// The poll interval of the UDP threads.
const LOOK: Span = Span::from_millis(5);

pub(crate) struct StationFixture {
    pub(crate) now: Instant,
    pub(crate) intake: RtpInput,
    pub(crate) sender: Sender,
    network: DatagramLink,
    is_cut: bool,
    station: Station,
    chunks: Consumer<TimedChunk>,
    handle: StationHandle,
    /// The station's output, up to a minute.
    heard: Vec<f32>,
}

pub(crate) struct Sender {
    pub(crate) ssrc: u32,
    card: SoundCard,
    number: u64,
    silent_until: Option<Instant>,
    now: Instant,
}

impl Sender {
    /// Continues with the packet that comes so many packets later.
    pub(crate) fn jump(&mut self, packets: u64) {
        self.number += packets;
    }

    pub(crate) fn silent_for(&mut self, span: Span) {
        self.silent_until = Some(self.now + span);
    }
}

impl StationFixture {
    /// `cover` adds a tone as fallback source.
    pub(crate) fn new(link: Link, ppm: i32, cover: bool) -> Self {
        Self::with(link, ppm, cover, None, InputConfig::default())
    }

    /// The same with a playout delay in front of the input.
    pub(crate) fn with(
        link: Link,
        ppm: i32,
        cover: bool,
        delay: Option<PlayoutDelay>,
        buffer: InputConfig,
    ) -> Self {
        let now = Instant::ZERO + Span::from_secs(5);
        let rate = SampleRate::new(8_000).unwrap();
        let spec =
            SampleSpec { rate, format: SampleFormat::F32, layout: ChannelLayout::new(1).unwrap() };
        let media = RtpPayloadFormat::new(Encoding {
            codec: RtpCodec::Pcmu,
            clock_rate: 8_000,
            channels: 1,
        });
        let (line, items, _) = RtpInputSink::new();
        let mut config = RtpInputConfig::new(media);
        config.delay = delay;
        let intake = RtpInput::new(config, line, now).unwrap();
        let quantum = rate.frames(QUANTUM);
        let live = RingSource::new(items, Pacing::Live);
        let input = |source| Input::new(source, rate, spec.layout, buffer);
        let mut inputs = vec![input(Box::new(live))];
        if cover {
            let tone = Tone::new(440.0, Db::new(-20.0), rate, spec.layout, quantum);
            inputs.push(input(Box::new(tone)));
        }
        let config = StationConfig { quantum, switch: SwitchConfig::default(), crossfade: QUANTUM };
        let (output, chunks) = ring(64);
        let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 4 * quantum.as_usize()));
        let encoder = Box::new(PcmEncoder::new(spec));
        let main = Rendition::new(encoder, pool, vec![output], |_, _, _, _| 0);
        let (station, handle) = Station::new(config, now, inputs, main);
        let card = SoundCard::new(rate, Frames(FRAMES), Ppm::from_ppm(ppm), now);
        let sender = Sender { ssrc: SSRC, card, number: 0, silent_until: None, now };
        Self {
            now,
            intake,
            sender,
            network: DatagramLink::new(link, 99),
            is_cut: false,
            station,
            chunks,
            handle,
            heard: Vec::new(),
        }
    }

    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.quantum();
        }
    }

    /// Advances by one quantum.
    pub(crate) fn quantum(&mut self) {
        let end = self.station.poll_timeout();
        while self.now < end {
            self.now = (self.now + LOOK).min(end);
            self.send();
            let from: SocketAddr = SENDER.parse().unwrap();
            while let Some(at) = self.network.poll_timeout().filter(|at| *at <= self.now) {
                let datagram = self.network.receive(at).unwrap();
                self.intake.handle_packet(at, from, &datagram);
            }
            if self.intake.poll_timeout() <= self.now {
                self.intake.handle_timeout(self.now);
            }
            self.intake.flush();
        }
        self.station.handle_timeout(self.now);
        while let Some(stamped) = self.chunks.pop() {
            let bytes = &stamped.chunk.bytes[HEADROOM..];
            if self.heard.len() < 80 * 8_000 {
                let (samples, _) = bytes.as_chunks::<4>();
                self.heard.extend(samples.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
        }
    }

    /// Changes the network.
    pub(crate) fn change(&mut self, link: Link) {
        self.network.set(link);
    }

    /// Cuts or restores the network.
    pub(crate) fn cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// The latency from the sender to the output in milliseconds: captured audio minus what the
    /// station has received, plus what is buffered there.
    pub(crate) fn latency(&mut self) -> f64 {
        let (state, packet) = (self.intake.state(), FRAMES);
        let counts = state.counts;
        let played = (counts.received - counts.late - state.held as u64) * packet;
        let given = played + counts.concealed;
        let waits = self.status().inputs[0].buffered.as_secs_f64() * 1e3;
        (self.sender.number * packet - given) as f64 / 8.0 + waits
    }

    pub(crate) fn status(&mut self) -> StationStatus {
        *self.handle.status()
    }

    /// The output from the sender's first frame on.
    pub(crate) fn programme(&self) -> &[f32] {
        let first = hum(2)[1];
        let at = self.heard.iter().position(|sample| sample.to_bits() == first.to_bits()).unwrap();
        &self.heard[at - 1..]
    }

    fn send(&mut self) {
        self.sender.now = self.now;
        while self.sender.card.poll_timeout() <= self.now {
            let at = self.sender.card.poll_timeout();
            self.sender.card.period(at);
            if self.sender.silent_until.is_some_and(|until| at < until) {
                continue;
            }
            self.sender.silent_until = None;
            let number = self.sender.number;
            self.sender.number += 1;
            if !self.is_cut {
                let packet = packet(self.sender.ssrc, number as u16, number);
                self.network.send(at, &packet);
            }
        }
    }
}

/// A packet of the hum whose audio is that of packet `number`.
pub(crate) fn packet(ssrc: u32, sequence: u16, number: u64) -> Vec<u8> {
    let timestamp = (number * FRAMES) as u32;
    let header = RtpHeader { sequence, timestamp, ssrc, ..RtpHeader::default() };
    let mut packet = vec![0; HEADER_LEN + FRAMES as usize];
    assert_eq!(header.write(&mut packet), Some(HEADER_LEN));
    let samples: Vec<f32> = (0..FRAMES).map(|at| sample(number * FRAMES + at)).collect();
    g711::encode(G711Law::Mu, &samples, &mut packet[HEADER_LEN..]);
    packet
}

/// RTCP (RFC 3550, 6.4.2 and 6.6): an empty receiver report, and a BYE.
pub(crate) fn bye(ssrc: u32) -> Vec<u8> {
    let ssrc = ssrc.to_be_bytes();
    [&[0x80, 201, 0, 1][..], &ssrc, &[0x81, 203, 0, 1], &ssrc].concat()
}

/// The first frames of its decoded audio: the concealment of G.711 delays by 3.75 ms (Appendix I).
pub(crate) fn hum(frames: usize) -> Vec<f32> {
    let samples: Vec<f32> = (0..frames as u64).map(sample).collect();
    let (mut codes, mut heard) = (vec![0; frames], vec![0.0; frames]);
    g711::encode(G711Law::Mu, &samples, &mut codes);
    g711::decode(G711Law::Mu, &codes, &mut heard);
    heard
}

fn sample(at: u64) -> f32 {
    let time = (at % 8_000) as f64 / 8_000.0;
    (0.3 * (std::f64::consts::TAU * 125.0 * time + 0.5).sin()) as f32
}
