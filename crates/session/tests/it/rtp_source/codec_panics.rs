//! The Opus library panics in one of two sources of a thread.

use aulos_core::Span;
use aulos_engine::codec_guard::{CodecLibrary, fault};

use super::repair::{InputFixture, OPUS, OPUS_TYPE, PACKET, opus_voice, packet};

/// Two sources with the same packets. The library panics in the first one at a packet, if one is
/// given.
fn two_sources(fault: Option<usize>) -> [InputFixture; 2] {
    let mut both = [InputFixture::new(OPUS, OPUS_TYPE), InputFixture::new(OPUS, OPUS_TYPE)];
    for (number, payload) in opus_voice(150).iter().enumerate() {
        for (at, receiver) in both.iter_mut().enumerate() {
            if fault == Some(number) && at == 0 {
                fault::plan(CodecLibrary::UnsafeLibopus, 0);
            }
            receiver.receive(&packet(1, number as u64, 960, OPUS_TYPE, payload));
            receiver.wait(PACKET);
            assert!(!fault::is_planned(), "the source calls the library in its own turn");
        }
    }
    both.iter_mut().for_each(|receiver| receiver.wait(Span::from_millis(200)));
    both
}

#[test]
fn a_panic_of_the_library_conceals_a_packet_of_one_source() {
    let [_, undisturbed] = two_sources(None);
    let [hit, neighbor] = two_sources(Some(100));
    assert!(neighbor.heard == undisturbed.heard, "the neighbour changed");
    assert_eq!(neighbor.counts().codec_panics, 0);
    let counts = hit.counts();
    assert_eq!((counts.codec_panics, counts.undecodable, counts.concealed), (1, 1, 960));
    assert_eq!(hit.heard.len(), undisturbed.heard.len());
    let mut both = hit.heard.iter().zip(&undisturbed.heard);
    let first = both.position(|(with, without)| with.to_bits() != without.to_bits()).unwrap();
    // The concealed packet, and what a new decoder needs (RFC 7845, section 4.6).
    let settled = both.skip(5 * 960).map(|(with, without)| (with - without).abs());
    assert!(first / 960 > 90 && settled.fold(0.0, f32::max) < 0.05);
}
