//! The Opus library panics in one of two streams of a thread.

use aulos_engine::codec_guard::{CodecLibrary, fault};

use super::*;

/// The output of two streams with the same input. The library panics in the first one at a packet,
/// if one is given.
fn two_streams(
    (from, to): (Encoding, Encoding),
    payloads: &[Vec<u8>],
    fault: Option<u64>,
) -> [RelayFixture; 2] {
    let mut both = [RelayFixture::new(from, to), RelayFixture::new(from, to)];
    for (number, payload) in (0..).zip(payloads) {
        for (at, fixture) in both.iter_mut().enumerate() {
            if fault == Some(number) && at == 0 {
                fault::plan(CodecLibrary::UnsafeLibopus, 0);
            }
            fixture.send(1, number, from.clock_rate / 50, payload);
            fixture.wait(STEP);
            assert!(!fault::is_planned(), "the stream calls the library in its own turn");
        }
    }
    both.iter_mut().for_each(RelayFixture::finish);
    both
}

#[test]
fn a_panic_of_the_library_costs_at_most_a_packet_of_one_stream() {
    let opus = relayed(L16, OPUS, &tone(), 960);
    // A decoder drops the packet that it could not decode, an encoder encodes it again.
    for (encodings, payloads, dropped) in [((OPUS, PCMA), &opus, 1), ((L16, OPUS), &tone(), 0)] {
        let [_, undisturbed] = two_streams(encodings, payloads, None);
        let [hit, neighbor] = two_streams(encodings, payloads, Some(50));
        assert!(neighbor.out == undisturbed.out, "{encodings:?}: the neighbour changed");
        assert_eq!(neighbor.tally().codec_panics, 0);
        let tally = hit.tally();
        assert_eq!((tally.codec_panics, tally.undecodable), (1, dropped), "{encodings:?}");
        assert_eq!(hit.out.len() as u64 + dropped, undisturbed.out.len() as u64);
        assert_eq!(hit.out[..50], undisturbed.out[..50]);
        // The numbers say which one is missing, so that the receiver conceals it.
        let numbers = hit.sequences();
        let steps = numbers.windows(2).map(|pair| u64::from(pair[1].wrapping_sub(pair[0]) - 1));
        assert_eq!(steps.sum::<u64>(), dropped);
    }
}

/// A first byte with any mode, bandwidth, duration and channel count, and random bytes.
fn opus_packet() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..300))
        .prop_map(|(toc, rest)| [&[toc][..], &rest].concat())
}

proptest! {
    #[test]
    fn any_opus_packet_and_any_loss_is_survived_to_every_encoding(
        packets in proptest::collection::vec((opus_packet(), 0..8_u32), 1..30),
        to in proptest::sample::select(vec![PCMU, G722, L16, L24]),
    ) {
        let mut fixture = RelayFixture::new(OPUS, to);
        let mut number = 0;
        for (payload, lost) in &packets {
            // Most packets follow each other; up to three are lost.
            number += 1 + u64::from(lost.saturating_sub(4));
            fixture.send(1, number, 960, payload);
            fixture.wait(STEP);
        }
        fixture.finish();
        prop_assert_eq!(fixture.tally().codec_panics, 0, "a bug of the library, to be reported");
    }
}
