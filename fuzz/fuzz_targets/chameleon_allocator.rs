//! Requests to the allocator of small pages, in the fuzzer's order, against the crate's naive
//! model. Pages come from ordinary memory instead of the pager; sometimes there are none.
#![no_main]

use flashvm_malloc::testing::{Model, Step};
use libfuzzer_sys::fuzz_target;
use std::sync::{Mutex, OnceLock};

/// Allocators are never freed, so one serves all inputs.
static MODEL: OnceLock<Mutex<Model>> = OnceLock::new();

// Four bytes a step: kind, object, and a size.
fuzz_target!(|steps: &[u8]| {
    let model = MODEL.get_or_init(|| Mutex::new(Model::new(1 << 13, 512, 3)));
    let mut model = model.lock().expect("a panic ends the run");
    for step in steps.chunks_exact(4) {
        model.step(Step::from([step[0], step[1], step[2], step[3]]));
    }
    model.clear();
});
