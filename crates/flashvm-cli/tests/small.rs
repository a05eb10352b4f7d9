//! Small pages (`--granularity 512`): objects of all sizes under threads, signals and forks; a store that fails;
//! mappings, flash and limits that run out; devices with large sectors; errors that must end a program. The other live
//! tests run with small pages if `FLASHVM_TEST_GRANULARITY=512` is set.

#[path = "small/device.rs"]
mod device;
mod support;

use device::Device;
use flashvm_core::chameleon::Request;
use flashvm_core::chameleon::record::{Recording, replay};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use support::children::Bounded as _;
use support::{Folder, Outcome, can_page, flashvm_run, has_program, recording};

const LIMIT: Duration = Duration::from_secs(600);
/// The data of a test is one and a half to three times as large: enough to page all the time.
const BUDGET: [&str; 6] = ["--ram", "8M", "--flash-size", "1G", "--granularity", "512"];
const IN_PLACE: [&str; 2] = ["--log-structuring", "off"];

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
        let status = support::children::command("cc")
            .args(["-O2", "-g", "-pthread", "-o"])
            .args([&binary, &source])
            .status_in_time();
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
        let outcome = small(test, options, &["churn", mib, "1.5", &seed()]).expect_success(test);
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
    churn("threads_signals_and_forks", &[], "24");
}

/// With log structuring switched off nothing is cleaned, and few bytes are written beyond the changed ones: only pages
/// that are freed during their write.
#[test]
fn in_place() {
    let Some(outcome) = churn("in_place", &IN_PLACE, "24") else {
        return;
    };
    assert_eq!(outcome.stat("log_bytes_cleaned"), 0, "{}", outcome.stats);
    let (written, changed) = (outcome.stat("log_bytes_written"), outcome.stat("bytes_out"));
    assert!(
        (changed..changed + changed / 100).contains(&written),
        "{written} of {changed} bytes: {}",
        outcome.stats
    );
}

/// A fresh engine repeats the decisions of a live run: the simulator tests the code that runs.
#[test]
fn live_runs_replay() {
    const TEST: &str = "live_runs_replay";
    for options in [&[][..], &IN_PLACE] {
        let folder = Folder::new();
        let record = folder.path().join("steps").display().to_string();
        let options = [&["--record", record.as_str()], options].concat();
        if churn(TEST, &options, "10").is_none() {
            return;
        }
        let (_, recordings) = recording::find(folder.path());
        assert!(!recordings.is_empty(), "{TEST}: nothing was recorded");
        let mut children = 0;
        for path in recordings {
            let (config, steps) = recording::load(&path);
            let recording = Recording { config, steps };
            replay(&recording)
                .unwrap_or_else(|difference| panic!("{TEST}, {options:?}: {difference}"));
            // A child's recording begins with its parent's, up to the fork.
            let mut requests = recording.steps.iter().map(|step| &step.request);
            children += usize::from(requests.any(|request| *request == Some(Request::BecomeChild)));
        }
        assert!(children > 0, "{TEST}, {options:?}: no child was recorded");
    }
}

#[test]
fn writes_that_fail_are_hidden() {
    const TEST: &str = "writes_that_fail_are_hidden";
    let inject = format!("write=50000,seed={}", seed());
    churn(TEST, &["--inject", &inject], "16");
    churn(
        TEST,
        &[&["--inject", &inject], &IN_PLACE[..]].concat(),
        "16",
    );
}

/// One read in five hundred fails, page-ins and the cleaner's reads alike: they are repeated.
#[test]
fn reads_that_fail_are_repeated() {
    const TEST: &str = "reads_that_fail_are_repeated";
    let inject = format!("read=2000,flip=2000,seed={}", seed());
    churn(TEST, &["--inject", &inject], "16");
    churn(
        TEST,
        &[&["--inject", &inject], &IN_PLACE[..]].concat(),
        "12",
    );
}

/// One read brings in several objects that were written together and are used together.
#[test]
fn neighbours_come_in_together() {
    const TEST: &str = "neighbours_come_in_together";
    for options in [&[][..], &IN_PLACE] {
        if !ready(TEST) {
            return;
        }
        let outcome = small(TEST, options, &["order", "60000"]).expect_success(TEST);
        let (reads, pages) = (outcome.stat("major"), outcome.stat("bytes_in") / 512);
        assert!(pages > 60_000, "{pages} in: {}", outcome.stats);
        assert!(reads * 8 < pages, "{reads} reads of {pages} pages");
    }
}

/// When mappings run out, pages are unmapped and new ones go to the page pager: nothing is lost.
#[test]
fn few_mappings() {
    const TEST: &str = "few_mappings";
    let Some(outcome) = churn(TEST, &["--overlays", "600"], "16") else {
        return;
    };
    // Each process by itself: mappings are a budget of the process.
    let processes = outcome.stats.split("\"totals\"").next().unwrap_or_default();
    let mut most = 0;
    for overlays in processes.split("\"overlays_max\":").skip(1) {
        let digits: String = overlays.chars().take_while(char::is_ascii_digit).collect();
        most = most.max(digits.parse::<u64>().expect("a number of mappings"));
    }
    assert!((500..=600).contains(&most), "{most}: {}", outcome.stats);
}

/// The program itself has taken nearly all mappings that the kernel allows.
#[test]
fn no_more_mappings() {
    const TEST: &str = "no_more_mappings";
    if !ready(TEST) {
        return;
    }
    for left in [300, 1500] {
        let words = ["maps", &left.to_string()];
        let outcome = small(TEST, &[], &words).expect_success(TEST);
        let most = outcome.stat("overlays_max");
        assert!(
            (left / 3..=left).contains(&most),
            "{most}: {}",
            outcome.stats
        );
    }
}

/// A program's own mappings never lie where small pages are or will be.
#[test]
fn nothing_else_lies_in_the_hole() {
    const TEST: &str = "nothing_else_lies_in_the_hole";
    if ready(TEST) {
        small(TEST, &[], &["hole"]).expect_success(TEST);
    }
}

/// A limit on file sizes under which frames and store could not be written.
#[test]
fn limits_on_file_sizes() {
    const TEST: &str = "limits_on_file_sizes";
    if !ready(TEST) {
        return;
    }
    let outcome = small(TEST, &[], &["files"]).expect_success(TEST);
    assert!(
        outcome.stderr.contains("ulimit -f) below the size"),
        "{}",
        outcome.stderr
    );
    let command = "ulimit -f 1000; exec \"$0\" run --granularity 512 --ram 16M -- true";
    let outcome = support::children::command("sh")
        .args(["-c", command, support::FLASHVM])
        .output_in_time()
        .expect("a shell");
    let line = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(2), "{line}");
    assert!(
        line.contains("ulimit -f") && line.contains("--flash-size") && line.lines().count() == 1,
        "{line}"
    );
}

/// A store that is hardly larger than the data: the log has to clean.
#[test]
fn a_small_store_is_cleaned() {
    const TEST: &str = "a_small_store_is_cleaned";
    if !ready(TEST) {
        return;
    }
    let workload = env!("CARGO_BIN_EXE_flashvm-workload");
    let options = ["--ram", "4M", "--flash-size", "32M", "--granularity", "512"];
    let words = [workload, "random", "40000", "10", "60000"];
    let outcome = flashvm_run(TEST, &options, &words, LIMIT).expect_success(TEST);
    assert!(outcome.stat("log_bytes_cleaned") > 0, "{}", outcome.stats);
}

/// Commitments end before flash does: `malloc` fails, and all objects are intact.
#[test]
fn a_full_store_is_told_to_malloc() {
    const TEST: &str = "a_full_store_is_told_to_malloc";
    if !ready(TEST) {
        return;
    }
    let program = program().display().to_string();
    for organization in ["on", "off"] {
        for bytes in ["512", "4000"] {
            let options = [
                "--ram",
                "8M",
                "--flash-size",
                "32M",
                "--granularity",
                "512",
                "--log-structuring",
                organization,
            ];
            let words = [program.as_str(), "fill", bytes];
            flashvm_run(TEST, &options, &words, LIMIT).expect_success(TEST);
        }
    }
}

/// A device with sectors of 4 KiB: small pages are read in whole sectors, and the run says so. Writes of 512 bytes are
/// refused.
#[test]
fn sectors_of_4_kib() {
    const TEST: &str = "sectors_of_4_kib";
    if !ready(TEST) {
        return;
    }
    let Some(device) = Device::with_large_sectors(TEST) else {
        return;
    };
    let program = program().display().to_string();
    let run = |options: &[&str]| {
        let flash = [
            "--ram",
            "8M",
            "--granularity",
            "512",
            "--flash",
            device.path(),
        ];
        let mut command = support::children::command(support::FLASHVM);
        command.arg("run").args(flash).args(options);
        command.args(["--", &program, "churn", "16", "1", &seed()]);
        support::run_bounded(TEST, &mut command, LIMIT)
    };
    for options in [&[][..], &["--no-uring"]] {
        let outcome = run(options).expect_success(TEST);
        assert!(outcome.stdout.contains("all checks held"));
        let said = outcome.stderr.matches("sectors of 4 KiB").count();
        assert_eq!(said, 1, "{}", outcome.stderr);
    }
    let outcome = run(&IN_PLACE);
    assert_eq!(outcome.shell_code(), 2, "{}", outcome.stderr);
    let line = outcome.stderr.trim();
    assert!(
        line.contains(device.path())
            && line.contains("--log-structuring off")
            && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn padding_is_room() {
    const TEST: &str = "padding_is_room";
    churn(TEST, &["--padding", "64"], "12");
}

/// The paper's peers are modes of the same code.
#[test]
fn peers() {
    for peer in ["log-swap", "ssdalloc:25"] {
        churn("peers", &["--peer", peer], "12");
    }
}

/// Flash that returns other data gives SIGBUS or the right data, never wrong data.
#[test]
fn lost_pages_give_sigbus() {
    const TEST: &str = "lost_pages_give_sigbus";
    if !ready(TEST) {
        return;
    }
    let mut whole = 0;
    for inject in [
        "read=400000",
        "flip=400000",
        "read=300000,write=20000,flip=300000",
    ] {
        let inject = format!("{inject},seed={}", seed());
        for options in [&[][..], &IN_PLACE] {
            let ends = lost(TEST, &[&["--inject", &inject], options].concat());
            whole += usize::from(ends);
        }
    }
    assert!(whole > 0, "{TEST}: no run could check all its pages");
}

/// Returns whether the program could check all its pages.
fn lost(test: &str, options: &[&str]) -> bool {
    let outcome = small(test, options, &["lost", "12"]);
    let lost = outcome.stderr.matches("are lost").count();
    assert!(
        !outcome.stderr.contains("FAILED"),
        "{test}: {options:?}: {}",
        outcome.stderr
    );
    assert!(
        lost > 0,
        "{test}: {options:?}: nothing was lost: {}",
        outcome.stdout
    );
    let (code, out) = (outcome.shell_code(), &outcome.stdout);
    // The program does not see lost pages that it never touches.
    let seen = out.strip_prefix("small: ").and_then(|said| {
        let (seen, rest) = said.split_once(" of ")?;
        rest.contains("the others are right").then(|| seen.parse())
    });
    let right = seen.is_some_and(|seen| seen.is_ok_and(|seen| (1..=lost).contains(&seen)));
    // 3: a page of the C library is lost, without which no program can go on.
    assert!(
        code == 0 && right || code == 3,
        "{test}: {options:?}: exit code {code}: {out}{}",
        outcome.stderr
    );
    code == 0
}

/// A lost page that is touched without a handler, or again in a handler that is reset, ends the program by SIGBUS.
#[test]
fn a_lost_page_without_a_handler_ends_the_program() {
    const TEST: &str = "a_lost_page_without_a_handler_ends_the_program";
    if !ready(TEST) {
        return;
    }
    let inject = format!("flip=800000,seed={}", seed());
    let outcome = small(TEST, &["--inject", &inject], &["die", "12"]);
    assert_eq!(outcome.shell_code(), 128 + 7, "{TEST}: {}", outcome.stderr);
    assert!(outcome.stderr.contains("are lost"), "{}", outcome.stderr);
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
        ("interior", "is not the start of an object"),
        ("never", "is not an allocated object"),
        ("stale", "is free already"),
    ] {
        let outcome = small(TEST, &[], &["free", how]);
        assert_eq!(outcome.shell_code(), 128 + 6, "{how}: {}", outcome.stderr);
        let told = |line: &str| line.starts_with("  ended") && line.contains(why);
        assert!(
            outcome.stderr.lines().any(told),
            "{how}: {}",
            outcome.stderr
        );
    }
}
