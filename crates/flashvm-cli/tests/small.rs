//! Small pages (`--granularity 512`): blocks of all sizes under threads, signals and forks, a store that
//! fails, mappings that run out, and what must end a program. The other live tests run with small pages
//! where `FLASHVM_TEST_GRANULARITY=512` is set.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use support::{Outcome, can_page, flashvm_run, has_program};

const LIMIT: Duration = Duration::from_secs(180);
const BUDGET: [&str; 6] = ["--ram", "16M", "--flash-size", "1G", "--granularity", "512"];

fn seed() -> String {
    std::env::var("FLASHVM_TORTURE_SEED").unwrap_or_else(|_| "20261121".to_owned())
}

/// Small pages need inline mode.
fn ready(test: &str) -> bool {
    let handler = std::env::var("FLASHVM_TEST_FAULT").is_ok_and(|mode| mode == "handler");
    if handler {
        support::say(&format!("not run in handler mode: {test}"));
    }
    !handler && can_page(test) && has_program(test, "cc")
}

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("small");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/torture/small.c");
        let status = Command::new("cc")
            .args(["-O2", "-g", "-pthread", "-o"])
            .args([&binary, &source])
            .status();
        assert!(
            status.is_ok_and(|s| s.success()),
            "cc cannot compile small.c"
        );
        binary
    })
}

fn small(test: &str, options: &[&str], words: &[&str]) -> Outcome {
    let program = program().display().to_string();
    let program: Vec<&str> = std::iter::once(program.as_str())
        .chain(words.iter().copied())
        .collect();
    let options: Vec<&str> = BUDGET.iter().chain(options).copied().collect();
    flashvm_run(test, &options, &program, LIMIT)
}

fn churn(test: &str, options: &[&str], mib: &str) -> Option<Outcome> {
    ready(test).then(|| {
        let outcome = small(test, options, &["churn", mib, "3", &seed()]).expect_success(test);
        assert!(
            outcome.stdout.contains("all checks held"),
            "{test}: {}",
            outcome.stdout
        );
        assert!(
            outcome.stat("log_bytes_written") > 0,
            "{test}: nothing was paged out: {}",
            outcome.stats
        );
        outcome
    })
}

#[test]
fn threads_signals_and_forks() {
    churn("threads_signals_and_forks", &[], "48");
}

#[test]
fn writes_that_fail_are_hidden() {
    const TEST: &str = "writes_that_fail_are_hidden";
    let inject = format!("write=50000,seed={}", seed());
    churn(TEST, &["--inject", &inject], "32");
}

/// One read in five hundred fails, page-ins and those of the cleaner: they are repeated.
#[test]
fn reads_that_fail_are_repeated() {
    const TEST: &str = "reads_that_fail_are_repeated";
    let inject = format!("read=2000,flip=2000,seed={}", seed());
    churn(TEST, &["--inject", &inject], "32");
}

/// When mappings run out, pages are lifted and new ones go to the page pager: nothing is lost.
#[test]
fn few_mappings() {
    const TEST: &str = "few_mappings";
    let Some(outcome) = churn(TEST, &["--overlays", "600"], "32") else {
        return;
    };
    // Each process alone: the budget is that of its mappings.
    let processes = outcome.stats.split("\"totals\"").next().unwrap_or_default();
    let mut most = 0;
    for overlays in processes.split("\"overlays_max\":").skip(1) {
        let digits: String = overlays.chars().take_while(char::is_ascii_digit).collect();
        most = most.max(digits.parse::<u64>().expect("a number of mappings"));
    }
    assert!((500..=600).contains(&most), "{most}: {}", outcome.stats);
}

/// A store that is hardly larger than the data: the log has to clean.
#[test]
fn a_small_store_is_cleaned() {
    const TEST: &str = "a_small_store_is_cleaned";
    if !ready(TEST) {
        return;
    }
    let workload = env!("CARGO_BIN_EXE_flashvm-workload");
    let options = ["--ram", "8M", "--flash-size", "64M", "--granularity", "512"];
    let words = [workload, "random", "80000", "10", "150000"];
    let outcome = flashvm_run(TEST, &options, &words, LIMIT).expect_success(TEST);
    assert!(outcome.stat("log_bytes_cleaned") > 0, "{}", outcome.stats);
}

#[test]
fn padding_is_room() {
    const TEST: &str = "padding_is_room";
    churn(TEST, &["--padding", "64"], "24");
}

/// The paper's peers are modes of the same code.
#[test]
fn peers() {
    for peer in ["log-swap", "ssdalloc:25"] {
        churn("peers", &["--peer", peer], "24");
    }
}

/// Flash that returns other data gives SIGBUS or the right data, never wrong data.
#[test]
fn lost_pages_give_sigbus() {
    const TEST: &str = "lost_pages_give_sigbus";
    if !ready(TEST) {
        return;
    }
    for inject in [
        "read=400000",
        "flip=400000",
        "read=300000,write=20000,flip=300000",
    ] {
        let inject = format!("{inject},seed={}", seed());
        // Pages of the C library's own may be lost as well, without which no program can go on.
        let outcome = small(TEST, &["--inject", &inject], &["lost", "24"]);
        let lost = outcome.stderr.matches("are lost").count();
        assert!(
            !outcome.stderr.contains("FAILED"),
            "{TEST}: {}",
            outcome.stderr
        );
        assert!(
            lost > 0,
            "{TEST}: {inject}: nothing was lost: {}",
            outcome.stdout
        );
        assert!(
            outcome.shell_code() != 0 || outcome.stdout.contains("the others are right"),
            "{TEST}: {}",
            outcome.stdout
        );
    }
}

#[test]
fn wrong_frees_end_the_program() {
    const TEST: &str = "wrong_frees_end_the_program";
    if !ready(TEST) {
        return;
    }
    for (how, why) in [
        ("double", "is free already"),
        ("double-small", "is free already"),
        ("interior", "is not the start of a block"),
        ("never", "is not an allocated block"),
        ("stale", "is free already"),
    ] {
        let outcome = small(TEST, &[], &["free", how]);
        assert_eq!(outcome.shell_code(), 128 + 6, "{how}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{how}: {}", outcome.stderr);
    }
}
