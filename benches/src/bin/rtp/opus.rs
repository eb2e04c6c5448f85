//! PCMU to Opus: how much of what it costs is the codec's.

use aulos_dsp::g711::{G711Law, decode};
use aulos_opus::{Application, EncoderConfig, OpusEncoder};

use crate::generator::packet;

/// Microseconds of one packet with nothing but the codec: as many encoders as there are streams, each
/// in its turn, as the relay has them (24 kbit/s, complexity 5, speech), with the same sound.
pub(crate) fn bare(streams: usize, secs: usize) -> f64 {
    let mut encoders: Vec<OpusEncoder> = (0..streams).map(|_| encoder()).collect();
    let (mut samples, mut out) = ([0.0; 160], [0; 4_000]);
    // What the codec learns in its first second is not measured, there as here.
    let (mut start, mut packets) = (0, 0_u64);
    for number in 0..50 * (secs + 1) {
        if number == 50 {
            start = thread_ns();
        }
        for (stream, encoder) in encoders.iter_mut().enumerate() {
            let packet = packet(stream, number);
            decode(G711Law::Mu, &packet[12..], &mut samples);
            encoder.encode(&samples, 160, &mut out).expect("20 ms are a packet");
            packets += u64::from(number >= 50);
        }
    }
    (thread_ns() - start) as f64 / 1e3 / packets.max(1) as f64
}

fn encoder() -> OpusEncoder {
    let config = EncoderConfig {
        bitrate: 24_000,
        complexity: 5,
        ..EncoderConfig::new(8_000, 1, Application::Voice)
    };
    OpusEncoder::new(config).expect("Opus has 8 kHz")
}

/// Nanoseconds that this thread was on a processor.
fn thread_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
