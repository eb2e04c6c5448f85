//! RTP sources and outputs with real sockets: after the start, no packet makes the UDP thread
//! allocate in either direction.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::counting::{ALLOCATED, COUNTING, FREED};
use crate::exclusive_counts;
use aulos_core::{
    Block, ChannelLayout, Chunk, Codec, Frames, HEADROOM, Instant, MediaTime, SampleFormat,
    SampleRate, SampleSpec, Span,
};
use aulos_engine::encode::{Encoder, RtpPayloadCodec, RtpPayloadEncoder};
use aulos_engine::fanout::TimedChunk;
use aulos_engine::source::{BLOCK_SAMPLES, Pacing, PullResult, RingSource, Source};
use aulos_io::SystemClock;
use aulos_io::udp::{SocketOptions, UdpConfig, UdpContext, bind_socket};
use aulos_proto::rtp::rtcp::NtpTime;
use aulos_proto::rtp::{self, Encoding};
use aulos_rt::Pool;
use aulos_rt::ring::ring;
use aulos_session::rtp::RtpPayloadFormat;
use aulos_session::rtp::{
    RtpInput, RtpInputConfig, RtpInputSink, RtpOutput, RtpOutputConfig, RtpOutputStatus, RtpSession,
};

fn output_config(dest: SocketAddr, encoding: Encoding, now: Instant) -> RtpOutputConfig {
    RtpOutputConfig {
        dest,
        encoding,
        payload_type: 96,
        packet_ticks: 48,
        rate: SampleRate::HZ_48000,
        lead: RtpOutputConfig::LEAD,
        ssrc: 7,
        cname: Some(Arc::from("aulos@127.0.0.1")),
        clock: (now, NtpTime::default()),
        announcement: None,
        seed: 7,
    }
}

/// One output sends to an input: a second and a half of packets of a millisecond.
#[test]
fn no_packet_allocates_either_way() {
    let _turn = exclusive_counts();
    let encoding = Encoding { codec: rtp::RtpCodec::L24, clock_rate: 48_000, channels: 2 };
    let mut config = UdpConfig::default();
    config.threads = 1;
    let mut context = UdpContext::start(&config).unwrap();
    let options = SocketOptions::default();
    let inward = bind_socket("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let dest = inward.local_addr().unwrap();
    let now = SystemClock::now();
    let (line, items, mut state) = RtpInputSink::new();
    let intake =
        RtpInput::new(RtpInputConfig::new(RtpPayloadFormat::new(encoding)), line, now).unwrap();
    context.add(Some(inward), RtpSession::Input(Box::new(intake))).unwrap();
    let (mut chunks, consumer) = ring(64);
    let output_config = output_config(dest, encoding, now);
    let (published, mut sent) = aulos_rt::latest(RtpOutputStatus::default());
    let outward: UdpSocket = bind_socket("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let output = RtpOutput::new(output_config, consumer, published, now);
    context.add(Some(outward), RtpSession::Output(Box::new(output))).unwrap();

    let spec = SampleSpec {
        rate: SampleRate::HZ_48000,
        format: SampleFormat::S24Le,
        layout: ChannelLayout::STEREO,
    };
    let mut encoder = RtpPayloadEncoder::new(RtpPayloadCodec::L24, spec, Frames(960), spec.rate, 2);
    let pool = Pool::new(72, || Vec::with_capacity(HEADROOM + encoder.max_payload_bytes()));
    let mut block = Block::with_capacity(spec.rate, spec.layout, 1_920);
    block.resize(Frames(960));
    let mut heard = Block::with_capacity(spec.rate, spec.layout, BLOCK_SAMPLES);
    let mut source = RingSource::new(items, Pacing::Live);
    let mut frames = 0;
    for number in 0..125_u64 {
        let timestamp = now + Span::from_millis(20) * i64::try_from(number).unwrap();
        SystemClock::sleep_until(timestamp + Span::from_millis(20));
        // Half a second for the start.
        if number == 50 {
            COUNTING.store(true, SeqCst);
        }
        let mut bytes = pool.take().unwrap();
        bytes.clear();
        bytes.resize(HEADROOM, 0);
        encoder.encode(&block, &mut bytes).unwrap();
        let pts = MediaTime(number * 960);
        let bytes = bytes.freeze();
        let chunk = Chunk { pts, duration: Frames(960), codec: Codec::Pcm, header: 0, bytes };
        assert!(
            chunks.push(TimedChunk { chunk, timestamp, codec_header: None, origin: None }).is_ok()
        );
        while source.pull(SystemClock::now(), &mut heard) == PullResult::Block {
            frames += heard.frames().as_usize();
        }
    }
    COUNTING.store(false, SeqCst);
    assert_eq!((ALLOCATED.load(SeqCst), FREED.load(SeqCst)), (0, 0), "while packets came and went");
    // The exact number depends on the machine.
    assert!(sent.read().packets > 500 && state.read().counts.received > 500, "{frames}");
    drop(context.stop());
}
