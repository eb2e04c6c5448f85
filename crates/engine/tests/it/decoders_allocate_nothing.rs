//! Checks every `# Real-time` line of `decode`: neither a packet nor a loss allocates.

use aulos_blackbox::alloc::{calls, calls_during};
use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::g711::G711Law;
use aulos_engine::decode::{
    Decoder, G711PacketDecoder, G722PacketDecoder, L16PacketDecoder, L24PacketDecoder,
    OpusPacketDecoder,
};

#[test]
fn the_counter_counts() {
    assert_eq!(calls_during(|| drop(vec![1])), 2);
}

#[test]
fn packets_and_holes() {
    let (studio, stereo) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
    let opus = |config: u8, channels| -> (Box<dyn Decoder>, Vec<u8>) {
        let stereo = u8::from(channels == 2) << 2;
        let decoder = OpusPacketDecoder::new(studio, channels).unwrap();
        // Any bytes decode to audio.
        (Box::new(decoder), [config << 3 | stereo].into_iter().chain(1..100).collect())
    };
    let mut decoders: [(Box<dyn Decoder>, Vec<u8>); 9] = [
        (Box::new(G711PacketDecoder::new(G711Law::Mu)), (0..160).collect()),
        (Box::new(G711PacketDecoder::new(G711Law::A)), (0..160).collect()),
        (Box::new(G722PacketDecoder::new()), (0..160).collect()),
        (Box::new(L16PacketDecoder::new(studio, stereo)), (0..192).collect()),
        (Box::new(L24PacketDecoder::new(studio, stereo)), (0..240).chain(0..48).collect()),
        // CELT of 20 ms, SILK of 60 ms, hybrid of 20 ms (RFC 6716, section 3.1).
        opus(31, 1),
        opus(31, 2),
        opus(11, 2),
        opus(15, 2),
    ];
    let mut out = [0.0; 5_760];
    for (decoder, packet) in &mut decoders {
        let frames = decoder.frames(packet).unwrap() * decoder.channels();
        let mut heard = 0.0;
        let mut before = 0;
        for round in 0..200 {
            if round == 50 {
                before = calls();
            }
            match round % 7 {
                2 => decoder.recover(packet, &mut out[..frames]),
                3..5 => decoder.conceal(&mut out[..frames]),
                _ => assert!(decoder.decode(packet, &mut out).is_ok()),
            }
            heard += out[0].abs();
        }
        assert_eq!(calls() - before, 0, "{frames}");
        assert!(heard > 0.0, "nothing was heard of {frames}");
    }
}
