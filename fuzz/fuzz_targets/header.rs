#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atomdir_fuzzing::header(bytes));
