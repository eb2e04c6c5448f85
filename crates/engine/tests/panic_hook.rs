//! A program of its own, because the panic hook belongs to the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use aulos_engine::codec_guard::{CodecLibrary, guard, install_panic_hook, panic_reports};

/// Contained panics write nothing, and the first one's text is kept; all others go to the hook that
/// was there before.
#[test]
fn the_hook_keeps_contained_panics_and_passes_on_others() {
    let passed = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&passed);
    std::panic::set_hook(Box::new(move |_| {
        counter.fetch_add(1, Relaxed);
    }));
    install_panic_hook();
    let silence: Result<(), _> = guard(CodecLibrary::UnsafeLibopus, || panic!("first\nof {}", 2));
    let again: Result<(), _> = guard(CodecLibrary::UnsafeLibopus, || panic!("second"));
    assert!(silence.is_err() && again.is_err());
    let others = std::panic::catch_unwind(|| panic!("a bug of the program"));
    let nested =
        guard(CodecLibrary::UnsafeLibopus, || guard::<()>(CodecLibrary::Syom, || panic!("inner")));
    assert!(others.is_err() && nested.is_ok_and(|inner| inner.is_err()));
    let reports: Vec<_> = panic_reports().collect();
    let texts: Vec<_> = reports.iter().filter_map(|report| report.first).collect();
    let here = |text: &str, line: &str| text.starts_with(line) && text.contains("panic_hook.rs:");
    assert!(here(texts[0], "first of 2 ("), "{texts:?}");
    assert!(here(texts[1], "inner ("), "{texts:?}");
    assert_eq!(reports.iter().map(|report| report.count).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(passed.load(Relaxed), 1);
}
