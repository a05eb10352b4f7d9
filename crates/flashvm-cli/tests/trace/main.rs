//! `flashvm trace` and `flashvm run --trace`: traces that are read back, Ctrl-C, exit codes, bad input.

mod saved_pages;
mod size;
#[path = "../support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared by all test programs; this one takes a part"
)]
mod support;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
use support::children::{self, Bounded as _};
use support::{can_page, has_program};

const FLASHVM: &str = env!("CARGO_BIN_EXE_flashvm");

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn flashvm(folder: &Path, args: &[&str]) -> Output {
    let mut command = children::command(FLASHVM);
    command
        .args(args)
        .current_dir(folder)
        .output_in_time()
        .expect("the command under test")
}

#[track_caller]
fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Checks that a command is refused in one line that has all these words, and prints nothing else.
#[track_caller]
fn refused(folder: &Path, args: &[&str], named: &[&str]) {
    let output = flashvm(folder, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    assert!(
        named.iter().all(|word| errors.contains(word)),
        "{args:?}: {errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    assert!(output.stdout.is_empty(), "{args:?}");
}

#[track_caller]
fn stat(folder: &Path, file: &str) -> serde_json::Value {
    let text = printed(&flashvm(folder, &["trace", "stat", "--json", file]));
    serde_json::from_str(&text).expect("an object")
}

fn gcc() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../flashvm-sim/tests/data/gcc.trace.gz")
}

/// A C program, compiled in the folder.
fn compiled(folder: &Path, name: &str, source: &str) -> String {
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).expect("a source");
    let done = children::command("cc")
        .arg("-O1")
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .output_in_time()
        .expect("a compiler");
    assert!(done.status.success(), "{done:?}");
    program.display().to_string()
}

/// The names in a folder.
fn left(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn convert_keeps_every_count_and_says_what_was_done() {
    let folder = folder();
    let (folder, gcc) = (folder.path(), gcc());
    let gcc = gcc.to_str().expect("text");
    let report = printed(&flashvm(
        folder,
        &["trace", "convert", "--json", gcc, "gcc.fvt"],
    ));
    assert!(report.contains("\"references\":515683"), "{report}");
    for (of, pages) in [("gcc.fvt", false), ("pages.fvt", true)] {
        if pages {
            printed(&flashvm(
                folder,
                &["trace", "convert", "--pages", "gcc.fvt", of],
            ));
        }
        let stat = stat(folder, of);
        assert_eq!(stat["references"], 515_683);
        assert_eq!(
            (&stat["pages"], &stat["pages_written"]),
            (&294.into(), &154.into())
        );
        assert_eq!(stat["writes"], 197_486);
        assert_eq!(stat["source"], "gcc.trace.gz (tagged)");
        assert_eq!(
            stat["steps"].as_array().expect("a list").len(),
            usize::from(pages)
        );
    }
    let part = [
        "trace", "convert", "--skip", "1000", "--take", "500", "gcc.fvt", "part.fvt",
    ];
    let text = printed(&flashvm(folder, &part));
    assert!(text.contains("500 of 1,500 references"), "{text}");
    assert_eq!(stat(folder, "part.fvt")["references"], 500);
    let filtered = [
        "trace",
        "convert",
        "--filter",
        "--d1",
        "4096,2,64",
        "gcc.fvt",
        "filtered.fvt",
    ];
    printed(&flashvm(folder, &filtered));
    let filtered = stat(folder, "filtered.fvt");
    let references = filtered["references"].as_u64().expect("a number");
    assert!((1..100_000).contains(&references), "{filtered}");
    let pictures = printed(&flashvm(
        folder,
        &["trace", "stat", "--out", "pictures", "gcc.fvt"],
    ));
    assert!(
        pictures.contains("294 pages (1.15 MiB): 251 read, 154 written"),
        "{pictures}"
    );
    let names: Vec<_> = (2..=5)
        .map(|n| format!("figure-{n}.svg"))
        .chain(["ranks.csv".to_owned()])
        .collect();
    assert_eq!(left(&folder.join("pictures")), names);
}

#[test]
fn standard_input_is_a_trace_too() {
    let folder = folder();
    let mut child = children::command(FLASHVM);
    let child = child
        .args(["trace", "stat", "--json", "-"])
        .current_dir(&folder);
    let child = child
        .stdin(std::fs::File::open(gcc()).expect("the trace"))
        .output_in_time();
    assert!(printed(&child.expect("the command")).contains("\"references\":515683"));
}

#[test]
fn bad_input_is_one_line_and_leaves_nothing() {
    let folder = folder();
    let folder = folder.path();
    std::fs::write(folder.join("empty"), "").expect("a file");
    std::fs::write(folder.join("picture"), [0xff, 0xd8, 0xff, 0, 1, 2]).expect("a file");
    std::fs::write(folder.join("keys"), "1\n2\nx\n").expect("a file");
    std::fs::write(folder.join("good"), "1\n2\n").expect("a file");
    let before = left(folder);
    for (args, named) in [
        (
            &["convert", "none", "out"][..],
            &["none:", "can be read"][..],
        ),
        (&["convert", "empty", "out"], &["empty:", "no reference"]),
        (
            &["convert", "picture", "out"],
            &["picture: byte 0", "--format"],
        ),
        (
            &["convert", "keys", "out"],
            &["keys: line 3", "'x'", "number"],
        ),
        (
            &["stat", "keys", "--format", "floppy"],
            &["'floppy'", "oracle-general"],
        ),
        (
            &["convert", "good", "no/such/out"],
            &["no/such/out", "can be written"],
        ),
        (&["convert", "good", "."], &["name a file"]),
        (
            &["convert", "good", "out", "--take", "0"],
            &["--take", "0 is not in 1.."],
        ),
        (
            &["convert", "good", "out", "--skip", "9"],
            &["good:", "skip fewer"],
        ),
        (
            &["convert", "good", "out", "--filter"],
            &["--filter", "pages"],
        ),
        (
            &["convert", "good", "out", "--filter", "--ll", "1,2"],
            &["--ll", "'1,2'", "32768,8,64"],
        ),
        (&["convert", "good"], &["<OUT>", "flashvm trace convert"]),
        (
            &["record", "-o", "out"],
            &["no program", "flashvm trace record"],
        ),
        (&["stat", "."], &["directory"]),
    ] {
        let output = flashvm(folder, &[&["trace"], args].concat());
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{args:?}: {line}");
        for part in named {
            assert!(line.contains(part), "{args:?}: '{part}' in: {line}");
        }
        assert_eq!(left(folder), before, "{args:?}");
    }
    let output = flashvm(
        folder,
        &["trace", "record", "-o", "out", "--", "no-such-program"],
    );
    assert_eq!(output.status.code(), Some(127));
    let output = flashvm(folder, &["run", "--trace", "no/such/out", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(left(folder), before);
}

#[test]
fn record_sees_children_and_gives_the_exit_code_of_the_program() {
    const TEST: &str = "record_sees_children_and_gives_the_exit_code_of_the_program";
    if !has_program(TEST, "valgrind") {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    let script = [
        "trace",
        "record",
        "-o",
        "sh.fvt",
        "--",
        "sh",
        "-c",
        "/bin/true; /bin/true; exit 7",
    ];
    let output = flashvm(folder, &script);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{line}");
    assert!(line.contains("3 processes"), "{line}");
    assert_eq!(left(folder), ["sh.fvt"]);
    let stat = stat(folder, "sh.fvt");
    assert!(stat["references"].as_u64() > Some(1000), "{stat}");
    assert!(
        stat["source"]
            .as_str()
            .expect("text")
            .starts_with("sh -c /bin/true; "),
        "{stat}"
    );
    assert!(
        stat["steps"][0]
            .as_str()
            .expect("text")
            .starts_with("CPU caches, write-back"),
        "{stat}"
    );
    let few = [
        "trace",
        "record",
        "--references",
        "100",
        "--pages",
        "--json",
        "-o",
        "few.fvt",
        "--",
        "sleep",
        "100",
    ];
    let output = flashvm(folder, &few);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let few = self::stat(folder, "few.fvt");
    assert_eq!(
        (&few["references"], &few["granularity"]),
        (&100.into(), &"pages".into())
    );
}

/// The signal reaches the program, the trace is whole, and the command ends by the signal as well.
#[test]
fn an_interrupted_recording_is_whole() {
    const TEST: &str = "an_interrupted_recording_is_whole";
    if !has_program(TEST, "valgrind") {
        return;
    }
    let folder = folder();
    let script = "touch ready; while true; do :; done";
    let mut child = children::command(FLASHVM)
        .args([
            "trace", "record", "-o", "loop.fvt", "--", "sh", "-c", script,
        ])
        .current_dir(&folder)
        .spawn()
        .expect("the command");
    let ready = || folder.path().join("ready").exists();
    children::wait_until("the program begins", Duration::from_secs(100), ready);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let limit = Duration::from_secs(30);
    let status = children::wait_for("the interrupted recording", &mut child, limit);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(2)
    );
    assert_eq!(left(folder.path()), ["loop.fvt", "ready"]);
    assert!(stat(folder.path(), "loop.fvt")["references"].as_u64() > Some(100));
}

/// The recording is complete, and the program ignores the signal that should end it.
#[test]
fn a_program_that_ignores_its_end_is_killed() {
    const TEST: &str = "a_program_that_ignores_its_end_is_killed";
    if !has_program(TEST, "valgrind") {
        return;
    }
    let folder = folder();
    let script = "trap '' TERM INT HUP; while true; do :; done";
    let few = ["trace", "record", "--references", "100", "-o", "few.fvt"];
    let args = [&few[..], &["--", "sh", "-c", script]].concat();
    let output = flashvm(folder.path(), &args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(stat(folder.path(), "few.fvt")["references"], 100);
}

#[test]
fn a_run_records_what_its_pagers_see() {
    const TEST: &str = "a_run_records_what_its_pagers_see";
    if !can_page(TEST) || !has_program(TEST, "sort") {
        return;
    }
    for mode in ["inline", "handler"] {
        let folder = folder();
        let folder = folder.path();
        let script = "seq 1 250000 | sort --reverse --buffer-size=64M --parallel=1 | cksum";
        let args = [
            "run",
            "--ram",
            "8M",
            "--flash-size",
            "256M",
            "--fault",
            mode,
            "--stats",
            "stats",
            "--trace",
            "run.fvt",
            "--",
            "sh",
            "-c",
            script,
        ];
        let output = flashvm(folder, &args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if mode == "handler" && errors.contains("CAP_SYS_PTRACE") {
            support::say(&format!("SKIPPED: {TEST} in handler mode: {errors}"));
            continue;
        }
        assert!(output.status.success(), "{errors}");
        assert_eq!(left(folder), ["run.fvt", "stats"]);
        let stats = std::fs::read(folder.join("stats")).expect("statistics");
        let stats: serde_json::Value = serde_json::from_slice(&stats).expect("an object");
        let faults = &stats["totals"]["faults"];
        let trace = stat(folder, "run.fvt");
        let seen = faults["total"].as_u64().expect("a number");
        let all = trace["references"].as_u64().expect("a number");
        // Also stores to write-protected pages; a fault may come twice before it is resolved.
        assert!(all >= seen, "{mode}: {all} references, {faults}");
        assert_eq!(trace["granularity"], "pages");
        let steps = trace["steps"][0].as_str().expect("text");
        assert!(
            steps.starts_with("faults and first stores with 8 MiB of RAM"),
            "{steps}"
        );
    }
}

#[test]
fn the_craw_paper_on_traces_of_ones_own() {
    let folder = folder();
    let folder = folder.path();
    let gcc = gcc();
    let traces = folder.join("traces");
    std::fs::create_dir(&traces).expect("a folder");
    let reproduce = |args: &[&str]| flashvm(folder, &[&["reproduce", "craw"], args].concat());
    for (args, named) in [
        (
            &["table-2", "--traces", "none"][..],
            &["--traces none", "folder of traces"][..],
        ),
        (
            &["table-2", "--traces", "traces"],
            &["--traces traces", "no file"],
        ),
        (&["table-9"], &["'table-9'", "figure-12"]),
    ] {
        let output = reproduce(args);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
        for part in named {
            assert!(line.contains(part), "{args:?}: '{part}' in: {line}");
        }
    }
    std::fs::copy(gcc, traces.join("gcc.trace.gz")).expect("a copy");
    std::fs::write(traces.join("README.md"), "not a trace").expect("a file");
    let text = printed(&reproduce(&[
        "table-2",
        "figure-12",
        "figure-15",
        "--traces",
        "traces",
    ]));
    assert!(text.contains("515,683") && text.contains("1,176"), "{text}");
    let sizes = std::fs::read_to_string(folder.join("reproduction/figure-12-sizes.csv"));
    let sizes = sizes.expect("a table");
    // All policies read every page once if all fit, and none is written.
    let all = sizes
        .lines()
        .find(|line| line.contains(",100 %,"))
        .expect("a row");
    assert!(all.ends_with(",1.000,1.000,1.000"), "{all}");
    // Kept results are of these traces: other traces are measured again.
    let text = printed(&reproduce(&["table-2"]));
    assert!(
        text.contains("mpg123") && !text.contains("515,683"),
        "{text}"
    );
}
