#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aulos_dsp_fuzz::sound_text(data));
