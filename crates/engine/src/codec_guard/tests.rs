use std::sync::atomic::AtomicU32;

use super::*;

/// A codec that counts its calls, and panics at every third.
struct Third(u32);

impl Third {
    fn encode(&mut self) -> u32 {
        self.0 += 1;
        assert!(self.0 < 3, "the third call of a codec");
        self.0
    }
}

fn third() -> GuardedCodec<Third> {
    GuardedCodec::new(CodecLibrary::Lofty, || Some(Third(0))).unwrap()
}

#[test]
fn a_codec_that_panics_is_replaced_and_counted() {
    let mut codec = third();
    let results: Vec<_> = (0..7).map(|_| codec.call(Third::encode)).collect();
    assert_eq!(results, [Ok(1), Ok(2), Err(CodecPanic), Ok(1), Ok(2), Err(CodecPanic), Ok(1)]);
    assert_eq!(codec.panics(), 2);
}

#[test]
fn an_encoder_is_called_again_after_a_panic() {
    let mut codec = third();
    let results: Vec<_> = (0..5).map(|_| codec.call_again(Third::encode)).collect();
    assert_eq!(results, [Ok(1), Ok(2), Ok(1), Ok(2), Ok(1)]);
    let mut always = third();
    assert_eq!(always.call_again(|_| -> u32 { panic!("always") }), Err(CodecPanic));
    assert_eq!((codec.panics(), always.panics()), (2, 2));
}

#[test]
fn a_codec_without_a_replacement_fails_until_there_is_one() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let make = || match MADE.fetch_add(1, Relaxed) {
        1 => None,
        2 => panic!("the constructor of a codec"),
        _ => Some(Third(0)),
    };
    let mut codec = GuardedCodec::new(CodecLibrary::Lofty, make).unwrap();
    let results: Vec<_> = (0..6).map(|_| codec.call(Third::encode).ok()).collect();
    assert_eq!(results, [Some(1), Some(2), None, None, None, Some(1)]);
    assert!(GuardedCodec::<Third>::new(CodecLibrary::Lofty, || None).is_none());
}

#[test]
fn a_destructor_that_panics_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "the destructor of a codec");
        }
    }
    let mut codec = GuardedCodec::new(CodecLibrary::Lofty, || Some(Bomb)).unwrap();
    codec.restart();
    assert!(codec.call(|_| ()).is_err(), "there is no codec, so that the next one is made");
    assert!(codec.call(|_| ()).is_ok());
    core::mem::forget(codec);
}

#[test]
fn the_first_panic_of_each_library_is_reported() {
    let before = all_panic_reports().map(|report| report.count).sum::<u64>();
    fault::plan(CodecLibrary::Syom, 1);
    assert!(guard(CodecLibrary::Syom, || ()).is_ok());
    assert!(guard(CodecLibrary::UnsafeLibopus, || ()).is_ok(), "another library is not meant");
    assert!(guard(CodecLibrary::Syom, || ()).is_err());
    assert!(!fault::is_planned());
    let report = panic_reports().find(|report| report.library == CodecLibrary::Syom).unwrap();
    assert_eq!(report.count, 1);
    assert!(all_panic_reports().map(|report| report.count).sum::<u64>() > before);
    assert!(report.to_string().starts_with("the library syom panicked"), "{report}");
}
