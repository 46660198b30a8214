#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    firn_fuzz::page_rows(data);
});
