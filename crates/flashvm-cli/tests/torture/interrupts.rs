//! Signals reach the thread that they would reach without flashvm, and no later.

use crate::compiled::compiled;
use crate::support::flashvm_run;
use crate::{BUDGET, LIMIT, ready};

/// A sleeping main thread gets the signals that another thread sends to the process.
#[test]
fn interrupts_reach_the_main_thread() {
    const TEST: &str = "interrupts_reach_the_main_thread";
    if !ready(TEST) {
        return;
    }
    let program = compiled("interrupt").display().to_string();
    flashvm_run(TEST, &BUDGET, &[&program], LIMIT).expect_success(TEST);
}

/// A signal that arrives while a call ends does not wait for the next call, which may never come.
#[test]
fn a_signal_does_not_wait_for_a_call() {
    const TEST: &str = "a_signal_does_not_wait_for_a_call";
    if !ready(TEST) {
        return;
    }
    // Before it was mended, one signal in about 30,000 was late.
    let program = [&compiled("late").display().to_string(), "200000"];
    flashvm_run(TEST, &BUDGET, &program, LIMIT).expect_success(TEST);
}
