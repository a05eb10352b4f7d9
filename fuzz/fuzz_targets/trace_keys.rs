//! The reader of `keys` over the fuzzer's bytes.
#![no_main]

use flashvm_fuzz::references;
use flashvm_sim::trace::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| references(bytes, Some(Format::Keys)));
