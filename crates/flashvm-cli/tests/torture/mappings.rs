//! Programs that leave hardly any mappings to hidden pages.

use super::support::{self, flashvm_run};
use super::{LIMIT, compiled, ready};

/// Where access rights hide pages, a program may leave hardly any mappings for them: pages are withdrawn, none is lost.
#[test]
fn pages_do_with_few_mappings() {
    const TEST: &str = "pages_do_with_few_mappings";
    let options = ["--ram", "16M", "--flash-size", "1G", "--fault", "protect"];
    if !ready(TEST) || support::is_run_elsewhere(TEST, &options) {
        return;
    }
    let options = [&options[..], &["--no-markers"]].concat();
    let program = compiled("mappings").display().to_string();
    for left in ["1000", "40"] {
        let program = [&*program, "32", left, "20000"];
        let outcome = flashvm_run(TEST, &options, &program, LIMIT);
        let outcome = outcome.expect_success(TEST);
        assert!(outcome.stat("pages_shown_again") > 0, "{left} mappings");
    }
}

/// Without any mapping left, the pager ends the program, and says why.
#[test]
fn no_mapping_is_left() {
    const TEST: &str = "no_mapping_is_left";
    let options = ["--ram", "16M", "--flash-size", "1G", "--fault", "protect"];
    if !ready(TEST) || support::is_run_elsewhere(TEST, &options) {
        return;
    }
    let options = [&options[..], &["--no-markers"]].concat();
    let program = [
        &*compiled("mappings").display().to_string(),
        "32",
        "0",
        "20000",
    ];
    let outcome = flashvm_run(TEST, &options, &program, LIMIT);
    assert!(!outcome.status.success());
    assert!(
        outcome.stderr.contains("raise vm.max_map_count"),
        "{}",
        outcome.stderr
    );
}

/// Pages of private memory leave by whole runs if the program has taken all mappings.
#[test]
fn private_pages_leave_without_a_mapping() {
    const TEST: &str = "private_pages_leave_without_a_mapping";
    let options = ["--ram", "16M", "--flash-size", "1G", "--fault", "protect"];
    if !ready(TEST) || support::is_run_elsewhere(TEST, &options) {
        return;
    }
    let program = compiled("mappings").display().to_string();
    let outcome = flashvm_run(TEST, &options, &[&*program, "32", "2", "20000"], LIMIT);
    outcome.expect_success(TEST);
    let outcome = flashvm_run(TEST, &options, &[&*program, "32", "0", "20000"], LIMIT);
    assert!(!outcome.status.success());
    assert!(
        outcome.stderr.contains("raise vm.max_map_count"),
        "{}",
        outcome.stderr
    );
}
