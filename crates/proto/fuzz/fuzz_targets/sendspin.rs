#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aulos_proto_fuzz::sendspin(data));
