#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironwarp_fuzz::esp::run(bytes));
