//! A file of any format, guessed from its content: an error in one line, or references.
#![no_main]

use flashvm_fuzz::references;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| references(bytes, None));
