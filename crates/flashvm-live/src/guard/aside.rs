//! Runs the pager's work on a stack that is not managed memory.
//!
//! A program may run on a stack of its own in managed memory. With the engine locked that stack
//! must not be touched: its fault could not be resolved.

use super::entry::flashvm_guard_aside;
use super::guard_stack::{self, on_guard_stack};
use crate::sys::signals::Uninterrupted;
use std::ffi::c_void;

/// Runs `work` on a guard stack, with all signals but the synchronous ones blocked. Its captures are
/// moved there before it begins, and its result is moved back after it has ended.
pub fn aside<R, F: FnOnce() -> R>(work: F) -> R {
    if on_guard_stack() || crate::on_pager_stack() {
        return work();
    }
    let _uninterrupted = Uninterrupted::begin();
    let Some(record) = guard_stack::take() else {
        // Other threads have taken all guard stacks.
        return work();
    };
    let stack = guard_stack::stack_of(record);
    let mut call = Call {
        work: Some(work),
        result: None,
    };
    // SAFETY: `take` has just handed out the guard stack, so nobody else runs on it; its top is
    // aligned to 16, as a call requires. `call` outlives the work, and `enter` knows its type.
    unsafe {
        flashvm_guard_aside(
            (stack.sp + stack.size) & !15,
            enter::<F, R>,
            (&raw mut call).cast(),
        );
    }
    // SAFETY: the work has returned from this stack, which nobody else knows.
    unsafe { guard_stack::give(record) };
    match call.result {
        Some(result) => result,
        None => unreachable!("the work was done"),
    }
}

struct Call<F, R> {
    work: Option<F>,
    result: Option<R>,
}

unsafe extern "C" fn enter<F: FnOnce() -> R, R>(call: *mut c_void) {
    // SAFETY: `aside` passes its `Call` of this type, and does not touch it before this returns.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    if let Some(work) = call.work.take() {
        let result = work();
        call.result = Some(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_another_stack_and_returns() {
        guard_stack::reserve().unwrap();
        let (here, text) = (0_u8, String::from("kept"));
        let (there, back) = aside(|| {
            let there = 0_u8;
            assert!(on_guard_stack());
            (&raw const there as usize, text)
        });
        assert!(!on_guard_stack());
        assert!(there.abs_diff(&raw const here as usize) > 1 << 16);
        assert_eq!(back, "kept");
        assert_eq!(aside(|| aside(|| 5)), 5);
    }
}
