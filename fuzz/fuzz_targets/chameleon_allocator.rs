//! Requests to the allocator of small pages, in an order of the fuzzer's, against the crate's naive model. Pages come
//! from ordinary memory here and not from the pager; now and then there are none.
#![no_main]

use flashvm_malloc::testing::{Model, Step};
use libfuzzer_sys::fuzz_target;
use std::sync::{Mutex, OnceLock};

/// Allocators are never freed, so there is one for all inputs.
static MODEL: OnceLock<Mutex<Model>> = OnceLock::new();

// Four bytes a step: what, which, and a size.
fuzz_target!(|steps: &[u8]| {
    let model = MODEL.get_or_init(|| Mutex::new(Model::new(1 << 13, 512, 3)));
    let mut model = model.lock().expect("no panic is survived");
    for step in steps.chunks_exact(4) {
        model.step(Step::from([step[0], step[1], step[2], step[3]]));
    }
    model.clear();
});
