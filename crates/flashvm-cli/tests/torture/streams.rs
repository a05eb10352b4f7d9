//! Buffered streams: the C library's own calls, which look for no symbol.

use crate::compiled::compiled;
use crate::support::{flashvm_run, is_run_elsewhere};
use crate::{LIMIT, ready};

/// `ways`: whether the C library's `read` and `write` jump to the pager's.
fn streams(test: &str, fault: &str, ways: &str) {
    let options = [
        "--ram",
        "8M",
        "--flash-size",
        "1G",
        "--compress",
        "off",
        "--fault",
        fault,
    ];
    if is_run_elsewhere(test, &options) || !ready(test) {
        return;
    }
    let program = [&compiled("streams").display().to_string(), "24", ways];
    let outcome = flashvm_run(test, &options, &program, LIMIT).expect_success(test);
    assert!(outcome.stdout.contains("all checks held"), "{test}");
    assert!(outcome.stat("pages_out") > 0, "{test} has paged");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn streams_pass_the_guard() {
    streams("streams_pass_the_guard", "inline", "jump");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn streams_pass_the_guard_without_userfaultfd() {
    streams(
        "streams_pass_the_guard_without_userfaultfd",
        "protect",
        "jump",
    );
}

#[test]
fn streams_in_handler_mode_are_the_c_librarys() {
    streams(
        "streams_in_handler_mode_are_the_c_librarys",
        "handler",
        "plain",
    );
}
