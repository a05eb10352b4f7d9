//! What the C library and the pager know of each other: calls that look for no symbol, and threads.

use crate::compiled::compiled;
use crate::support::{flashvm_run, is_run_elsewhere, say};
use crate::{LIMIT, ready};

/// Runs a program of `tests/torture` with little RAM, unless another run of the tests does.
fn run(test: &str, fault: &str, program: &[&str]) {
    // Handler mode has no small pages.
    let pages = (fault == "handler").then_some(["--granularity", "4096"]);
    let options = ["--ram", "8M", "--flash-size", "1G", "--compress", "off"];
    let options = [
        &options[..],
        &["--fault", fault],
        pages.as_slice().as_flattened(),
    ]
    .concat();
    if is_run_elsewhere(test, &options) || !ready(test) {
        return;
    }
    let [name, arguments @ ..] = program else {
        unreachable!("a program has a name");
    };
    let compiled = compiled(name).display().to_string();
    let program = [&[compiled.as_str()], arguments].concat();
    let outcome = flashvm_run(test, &options, &program, LIMIT).expect_success(test);
    assert!(outcome.stdout.contains("all checks held"), "{test}");
    assert!(outcome.stat("pages_out") > 0, "{test} has paged");
}

/// `ways`: whether the C library's `read` and `write` jump to the pager's.
fn streams(test: &str, fault: &str, ways: &str) {
    run(test, fault, &["streams", "24", ways]);
}

/// `alone`: whether the C library says that a program of one thread has one.
fn threads(test: &str, fault: &str, alone: &str) {
    if !rustix::process::geteuid().is_root() {
        say(&format!("SKIPPED: {test}: only root may change its groups"));
        return;
    }
    run(test, fault, &["alone", alone]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn streams_pass_the_guard() {
    let test = "streams_pass_the_guard";
    streams(test, "inline", "jump");
    streams(test, "protect", "jump");
}

#[test]
fn streams_in_handler_mode_are_the_c_librarys() {
    let test = "streams_in_handler_mode_are_the_c_librarys";
    streams(test, "handler", "plain");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_c_library_does_not_know_the_pagers_threads() {
    let test = "the_c_library_does_not_know_the_pagers_threads";
    threads(test, "inline", "yes");
    threads(test, "protect", "yes");
}

#[test]
fn the_c_library_knows_the_pagers_threads_in_handler_mode() {
    let test = "the_c_library_knows_the_pagers_threads_in_handler_mode";
    threads(test, "handler", "no");
}
