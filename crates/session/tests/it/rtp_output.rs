//! An RTP output in virtual time: each packet has its send time, timestamps count the station's
//! frames without exception, and sender reports match the packets.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a test signal")]

use std::sync::Arc;

use aulos_core::{
    Block, ChannelLayout, Chunk, Codec, Frames, HEADROOM, Instant, MediaTime, SampleFormat,
    SampleRate, SampleSpec, Span,
};
use aulos_dsp::g711::G711Law;
use aulos_engine::encode::{Encoder, RtpPayloadCodec, RtpPayloadEncoder};
use aulos_engine::fanout::TimedChunk;
use aulos_proto::rtp::rtcp::{self, CompoundPacket, NtpTime};
use aulos_proto::rtp::{self, Encoding, is_rtcp};
use aulos_proto::sap;
use aulos_rt::Pool;
use aulos_rt::ring::{Producer, ring};
use aulos_session::rtp::{
    OutgoingDatagram, RtpOutput, RtpOutputConfig, RtpOutputStatus, SapAnnouncement,
};

const DEST: &str = "239.69.0.1:5004";
const WALL_CLOCK_SECONDS: i64 = 1_700_000_000;

/// A station that makes chunks, and the resulting packets with their send times.
struct OutputFixture {
    now: Instant,
    output: RtpOutput,
    encoder: RtpPayloadEncoder,
    chunks: Producer<TimedChunk>,
    pool: Pool<Vec<u8>>,
    spec: SampleSpec,
    pts: MediaTime,
    packets: Vec<(Instant, Vec<u8>)>,
    others: Vec<(String, Vec<u8>)>,
}

const START: Instant = Instant::from_nanos(5_000_000_000);
const QUANTUM: Span = Span::from_millis(20);

impl OutputFixture {
    fn new(codec: rtp::RtpCodec, clock_rate: u32, channels: u8, units: u32) -> Self {
        let spec = SampleSpec {
            rate: SampleRate::HZ_48000,
            format: SampleFormat::S16Le,
            layout: ChannelLayout::STEREO,
        };
        let encoding = Encoding { codec, clock_rate, channels };
        let format = match codec {
            rtp::RtpCodec::L16 => RtpPayloadCodec::L16,
            rtp::RtpCodec::Pcmu => RtpPayloadCodec::G711(G711Law::Mu),
            rtp::RtpCodec::G722 => RtpPayloadCodec::G722,
            _ => RtpPayloadCodec::L24,
        };
        let rate = SampleRate::new(encoding.sample_rate()).unwrap();
        let encoder = RtpPayloadEncoder::new(format, spec, Frames(960), rate, channels.into());
        let (chunks, consumer) = ring(64);
        let config = RtpOutputConfig {
            dest: DEST.parse().unwrap(),
            encoding,
            payload_type: 96,
            packet_ticks: units,
            rate: spec.rate,
            lead: RtpOutputConfig::LEAD,
            ssrc: 0x1234_5678,
            cname: Some(Arc::from("aulos@192.0.2.1")),
            clock: (START, NtpTime::from_unix(Span::from_secs(WALL_CLOCK_SECONDS))),
            announcement: Some(SapAnnouncement {
                to: "239.255.255.255:9875".parse().unwrap(),
                origin: [192, 0, 2, 1].into(),
                sdp: "v=0\r\ns=test\r\n".to_owned(),
            }),
            seed: 7,
        };
        let (state, _) = aulos_rt::latest(RtpOutputStatus::default());
        let output = RtpOutput::new(config, consumer, state, START);
        let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + encoder.max_payload_bytes()));
        Self {
            now: START,
            output,
            encoder,
            chunks,
            pool,
            spec,
            pts: MediaTime::ZERO,
            packets: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Makes a chunk of 20 ms, `late` after its time, with frames that count up.
    fn chunk(&mut self) {
        let mut block = Block::with_capacity(self.spec.rate, self.spec.layout, 1_920);
        block.resize(Frames(960));
        for (at, frame) in block.samples_mut().chunks_mut(2).enumerate() {
            frame.fill(((self.pts.0 + at as u64) % 30_000) as f32 / 32_768.0);
        }
        let mut bytes = self.pool.take().unwrap();
        bytes.clear();
        bytes.resize(HEADROOM, 0);
        self.encoder.encode(&block, &mut bytes).unwrap();
        let timestamp = START + self.spec.rate.span(Frames(self.pts.0));
        let chunk = Chunk {
            pts: self.pts,
            duration: Frames(960),
            codec: Codec::Pcm,
            header: 0,
            bytes: bytes.freeze(),
        };
        assert!(
            self.chunks
                .push(TimedChunk { chunk, timestamp, codec_header: None, origin: None })
                .is_ok()
        );
        self.pts += Frames(960);
    }

    /// Advances the time to `until`, with each poll of the UDP thread late by `late`.
    fn run(&mut self, until: Instant, late: Span) {
        while self.output.poll_timeout() + late <= until {
            self.now = self.output.poll_timeout() + late;
            // A chunk is made when its last frame is there.
            while START + self.spec.rate.span(Frames(self.pts.0)) + QUANTUM <= self.now {
                self.chunk();
            }
            let now = self.now;
            let (packets, others) = (&mut self.packets, &mut self.others);
            self.output.handle_timeout(now, &mut |part: OutgoingDatagram<'_>| {
                take(now, &part, packets, others);
                true
            });
        }
        self.now = until;
    }

    fn headers(&self) -> Vec<(Instant, rtp::RtpHeader, usize)> {
        let header = |(at, bytes): &(Instant, Vec<u8>)| {
            let packet = rtp::RtpPacket::parse(bytes).unwrap();
            (*at, packet.header(), packet.payload().len())
        };
        self.packets.iter().map(header).collect()
    }
}

fn take(
    now: Instant,
    part: &OutgoingDatagram<'_>,
    packets: &mut Vec<(Instant, Vec<u8>)>,
    others: &mut Vec<(String, Vec<u8>)>,
) {
    if part.to == DEST.parse().unwrap() {
        packets.push((part.due.unwrap().max(now), part.bytes.to_vec()));
    } else {
        others.push((part.to.to_string(), part.bytes.to_vec()));
    }
}

#[test]
fn packets_of_a_millisecond_go_out_one_in_each_millisecond() {
    // A poll may be late by 5 ms, and every packet still has its send time.
    for late in [Span::ZERO, Span::from_millis(5)] {
        let mut fixture = OutputFixture::new(rtp::RtpCodec::L24, 48_000, 2, 48);
        fixture.run(START + Span::from_secs(10), late);
        let headers = fixture.headers();
        assert!(headers.len() > 9_900, "{}", headers.len());
        for pair in headers.windows(2) {
            let ((before, one, _), (at, other, length)) = (pair[0], pair[1]);
            assert_eq!((at - before, length), (Span::from_millis(1), 288));
            assert_eq!(other.sequence, one.sequence.wrapping_add(1));
            assert_eq!(other.timestamp, one.timestamp.wrapping_add(48));
        }
        let state = fixture.output.state();
        assert_eq!((state.late, state.skipped, state.gaps, state.unsent), (0, 0, 0, 0));
        // The audio equals that of the station, frame by frame.
        let sound = fixture.packets.iter().flat_map(|(_, bytes)| bytes[12..].chunks(6));
        for (at, frame) in sound.enumerate() {
            let wanted = i32::try_from(at % 30_000).unwrap() << 8;
            assert_eq!(frame[..3], wanted.to_be_bytes()[1..], "frame {at}");
        }
    }
}

#[test]
fn the_last_chunk_is_not_waited_for_and_each_packet_is_late_by_the_lead() {
    let mut fixture = OutputFixture::new(rtp::RtpCodec::L16, 48_000, 2, 240);
    fixture.run(START + Span::from_secs(1), Span::from_millis(2));
    let first = fixture.packets[0].0;
    assert_eq!(first, START + QUANTUM + RtpOutputConfig::LEAD);
}

#[test]
fn a_packet_need_not_fit_into_a_chunk_and_telephony_has_its_own_rate() {
    // 1 ms at 44.1 kHz would be 44.1 frames; here 7 ms at 48 kHz, and telephony with 20 ms.
    for (codec, clock, channels, units, length) in [
        (rtp::RtpCodec::L16, 48_000, 2, 336, 1_344),
        (rtp::RtpCodec::Pcmu, 8_000, 1, 160, 160),
        (rtp::RtpCodec::G722, 8_000, 1, 160, 160),
    ] {
        let mut fixture = OutputFixture::new(codec, clock, channels, units);
        fixture.run(START + Span::from_secs(60), Span::ZERO);
        let headers = fixture.headers();
        let wanted = 60 * clock / units;
        assert!((wanted - 12..=wanted).contains(&(headers.len() as u32)), "{}", headers.len());
        let begin = headers[0].1.timestamp;
        for (number, (at, header, bytes)) in headers.iter().enumerate() {
            let ticks = number as u32 * units;
            assert_eq!((*bytes, header.timestamp), (length, begin.wrapping_add(ticks)));
            // To the sample of the resampler.
            let on_grid = headers[0].0
                + Span::from_nanos(i64::from(ticks) * 1_000_000_000 / i64::from(clock));
            assert!((*at - on_grid).abs() <= Span::from_millis(1), "{number}: {:?}", *at - on_grid);
        }
        assert_eq!(fixture.output.state().late, 0);
    }
}

#[test]
fn a_hole_in_the_stations_sound_is_one_in_the_timestamps_and_none_in_the_numbers() {
    let mut fixture = OutputFixture::new(rtp::RtpCodec::L24, 48_000, 2, 48);
    fixture.run(START + Span::from_millis(500), Span::ZERO);
    // Three chunks could not be made.
    fixture.pts += Frames(3 * 960);
    fixture.run(START + Span::from_secs(1), Span::ZERO);
    let headers = fixture.headers();
    let steps: Vec<u32> = headers
        .windows(2)
        .map(|pair| pair[1].1.timestamp.wrapping_sub(pair[0].1.timestamp))
        .filter(|step| *step != 48)
        .collect();
    assert_eq!(steps, [48 + 3 * 960]);
    assert!(headers.windows(2).all(|p| p[1].1.sequence == p[0].1.sequence.wrapping_add(1)));
    assert_eq!(fixture.output.state().gaps, 1);
}

#[test]
fn very_late_packets_are_skipped_instead_of_sent_in_a_burst() {
    let mut fixture = OutputFixture::new(rtp::RtpCodec::L24, 48_000, 2, 48);
    fixture.run(START + Span::from_secs(1), Span::ZERO);
    let before = fixture.packets.len();
    // The whole process stops for a second.
    fixture.run(START + Span::from_secs(3), Span::from_secs(1));
    let state = fixture.output.state();
    assert!(state.skipped > 700 && state.late < 2_300, "{state:?}");
    assert!(fixture.packets.len() - before < 2_300);
}

#[test]
fn sender_reports_have_the_time_of_the_packets() {
    let mut fixture = OutputFixture::new(rtp::RtpCodec::L24, 48_000, 2, 48);
    fixture.run(START + Span::from_secs(60), Span::ZERO);
    let reports: Vec<_> = fixture.others.iter().filter(|(_, bytes)| is_rtcp(bytes)).collect();
    assert!(reports.len() > 5);
    let (first, header, _) = fixture.headers()[0];
    for (to, bytes) in reports {
        assert_eq!(to, "239.69.0.1:5005");
        let compound = CompoundPacket::parse(bytes).unwrap();
        let sender = compound.packets().find_map(|part| match part {
            rtcp::RtcpPacket::Report { sender, .. } => sender,
            _ => None,
        });
        let Some(sender) = sender else { continue };
        // The wall clock time of a packet with this timestamp, on the line of the packets.
        let ticks = sender.timestamp.wrapping_sub(header.timestamp);
        let at = first + Span::from_nanos(i64::from(ticks) * 1_000_000_000 / 48_000);
        let wall = NtpTime::from_unix(Span::from_secs(WALL_CLOCK_SECONDS)).after(at - START);
        let off = (sender.ntp.to_bits() as i64 - wall.to_bits() as i64) as f64 / 4.295e9;
        assert!(off.abs() < 50e-6, "{off} s");
    }
}

#[test]
fn an_output_is_announced_withdrawn_and_sends_bye() {
    let mut fixture = OutputFixture::new(rtp::RtpCodec::L24, 48_000, 2, 48);
    fixture.run(START + Span::from_secs(100), Span::ZERO);
    let announced = |fixture: &OutputFixture| -> Vec<bool> {
        let all = fixture.others.iter().filter(|(to, _)| to == "239.255.255.255:9875");
        all.map(|(_, bytes)| sap::SapPacket::parse(bytes).unwrap().deletion).collect()
    };
    let times = announced(&fixture);
    assert!((3..=6).contains(&times.len()) && times.iter().all(|deletion| !deletion), "{times:?}");
    fixture.others.clear();
    let (now, others, packets) = (fixture.now, &mut fixture.others, &mut fixture.packets);
    fixture.output.finish(now, &mut |part: OutgoingDatagram<'_>| {
        take(now, &part, packets, others);
        true
    });
    assert_eq!(announced(&fixture), [true]);
    let bye = fixture.others.iter().filter(|(_, bytes)| is_rtcp(bytes)).any(|(_, bytes)| {
        let compound = CompoundPacket::parse(bytes).unwrap();
        compound.packets().any(|part| matches!(part, rtcp::RtcpPacket::Bye(_)))
    });
    assert!(bye);
}
