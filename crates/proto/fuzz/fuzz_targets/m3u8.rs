#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aulos_proto_fuzz::m3u8(data));
