#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aulos_session_fuzz::talk(data));
