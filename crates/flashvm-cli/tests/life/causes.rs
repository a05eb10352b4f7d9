//! The summary of a run says how the pager contributed to the program's end.

use super::children::{self, Bounded as _};
use super::stores::Loop;
use super::{Bench, FLASHVM, fault_mode, finish, skipped, wait_until};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

/// `tests/torture/refused.c`, compiled. Without a compiler it says so and returns `None`.
fn refused_program(test: &str) -> Option<String> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/torture/refused.c");
        let mut compile = children::command("cc");
        compile.args(["-O1", "-o"]).args([&binary, &source]);
        let status = compile.status_in_time().ok()?;
        assert!(status.success(), "cc cannot compile refused.c");
        Some(binary)
    });
    if built.is_none() {
        skipped(test, "cc is not installed");
    }
    built.as_ref().map(|path| path.display().to_string())
}

fn stats(bench: &Bench) -> serde_json::Value {
    let stats = fs::read(bench.file("stats.json")).expect("the statistics");
    serde_json::from_slice(&stats).expect("JSON")
}

#[track_caller]
fn says(output: &Output, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    let all = |line: &&str| parts.iter().all(|part| line.contains(part));
    assert_eq!(text.lines().filter(all).count(), 1, "{parts:?}: {text}");
}

/// 400 MiB do not fit into 64 MiB of RAM and 256 MiB of store.
#[test]
fn a_program_that_dies_of_null_is_told_why() {
    const TEST: &str = "a_program_that_dies_of_null_is_told_why";
    let (Some(bench), Some(program)) = (Bench::new(TEST), refused_program(TEST)) else {
        return;
    };
    // From the heap, from large objects, and by a mapping. A malloc may ask more than once before it gives up.
    for block in ["1000", "1000000", "100000000"] {
        for quiet in [true, false] {
            let mut options = vec!["--stats", "stats.json"];
            options.extend(quiet.then_some("--quiet"));
            let output = bench.run(&options, &[&program, "null", "400", block]);
            assert_eq!(output.status.signal(), Some(11));
            says(
                &output,
                &["refused", " allocation", "--flash-size", "256 MiB", "--ram"],
            );
            let stats = stats(&bench);
            for object in [&stats["totals"], &stats["processes"][0]] {
                let refused = object["refused"]["allocations"].as_u64();
                assert!(refused.is_some_and(|n| (1..=9).contains(&n)), "{stats}");
                assert_eq!(object["refused"]["forks"], 0, "{stats}");
            }
        }
    }
    // Without refusals the summary has no line on them.
    let output = bench.run(&[], &[&program, "null", "200", "1000000"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !text.contains("ENOMEM"),
        "{text}"
    );
}

#[test]
fn a_refused_fork_is_told() {
    const TEST: &str = "a_refused_fork_is_told";
    let (Some(bench), Some(program)) = (Bench::new(TEST), refused_program(TEST)) else {
        return;
    };
    let output = bench.run(&["--stats", "stats.json"], &[&program, "fork", "200"]);
    assert!(output.status.success());
    says(&output, &["refused", "1 fork", "--flash-size"]);
    assert_eq!(stats(&bench)["totals"]["refused"]["forks"], 1);
    // The program handled the refusal: no complaint.
    let output = bench.run(&["--quiet"], &[&program, "fork", "200"]);
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn who_was_ended_by_the_pager_is_named() {
    const TEST: &str = "who_was_ended_by_the_pager_is_named";
    let (Some(bench), Some(program)) = (Bench::new(TEST), refused_program(TEST)) else {
        return;
    };
    let script = format!("ulimit -c 0; {program} free; exit 7");
    for quiet in [true, false] {
        // The C library's own free() reports the error itself.
        let mut options = vec!["--malloc", "mimalloc", "--stats", "stats.json"];
        options.extend(quiet.then_some("--quiet"));
        let output = bench.run(&options, &["/bin/sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(7));
        says(
            &output,
            &[
                "ended",
                "process",
                "refused): free()",
                "not an allocated object",
            ],
        );
        // The decisions of the process that was ended, and of no other.
        says(&output, &["  decisions", "process", "refused):"]);
        says(&output, &[" s INFO", "the pager starts"]);
        let stats = stats(&bench);
        let reason = |process: &serde_json::Value| process["ended_by_pager"].as_str().map(str::len);
        let processes = stats["processes"].as_array().expect("a list");
        assert_eq!(processes.iter().filter_map(reason).count(), 1, "{stats}");
    }
}

#[test]
fn decisions_are_shown_if_asked_for() {
    const TEST: &str = "decisions_are_shown_if_asked_for";
    let Some(bench) = Bench::new(TEST) else {
        return;
    };
    let started = |options: &[&str], code: &str| {
        let output = bench.run(options, &["/bin/sh", "-c", &format!("exit {code}")]);
        let text = String::from_utf8_lossy(&output.stderr);
        text.matches("the pager starts").count()
    };
    assert_eq!(started(&["--decisions", "info"], "3"), 1);
    assert_eq!(started(&["--decisions", "debug", "--quiet"], "3"), 1);
    assert_eq!(started(&["--decisions", "warn"], "3"), 0);
    assert_eq!(started(&["--decisions", "off"], "3"), 0);
    assert_eq!(started(&["--decisions", "info"], "0"), 0);
    assert_eq!(started(&[], "3"), 0);
    // More is kept with each level, and the file of statistics has it.
    let lines = |level: &str| {
        let options = ["--decisions", level, "--stats", "stats.json"];
        bench.run(&options, &["/bin/sh", "-c", "exit 0"]);
        let kept = stats(&bench)["processes"][0]["decisions"].clone();
        kept.as_array().expect("a list").len()
    };
    let (info, debug, trace) = (lines("info"), lines("debug"), lines("trace"));
    assert!(
        0 < info && info < debug && debug < trace,
        "{info} {debug} {trace}"
    );
}

#[test]
fn a_refused_system_call_is_in_the_summary() {
    const TEST: &str = "a_refused_system_call_is_in_the_summary";
    if fault_mode() == "handler" {
        skipped(TEST, "handler mode refuses no io_uring");
        return;
    }
    let (Some(bench), Some(program)) = (Bench::new(TEST), refused_program(TEST)) else {
        return;
    };
    let output = bench.run(&["--stats", "stats.json"], &[&program, "ring"]);
    assert!(output.status.success());
    says(
        &output,
        &["  calls", "process", "io_uring", "--fault handler"],
    );
    let reason = stats(&bench)["processes"][0]["refused_call"].clone();
    assert!(
        reason
            .as_str()
            .is_some_and(|reason| reason.contains("io_uring"))
    );
}

/// A budget of 8 MiB with a store of eight times that would be too small.
#[test]
fn the_default_store_follows_the_disk() {
    const TEST: &str = "the_default_store_follows_the_disk";
    let (Some(bench), Some(program)) = (Bench::new(TEST), refused_program(TEST)) else {
        return;
    };
    let mut command = children::command(FLASHVM);
    command
        .args([
            "run",
            "--quiet",
            "--ram",
            "8M",
            "--fault",
            &fault_mode(),
            "--flash",
        ])
        .arg(bench.flash.path())
        .args(["--", &program, "null", "300", "1000000"]);
    let output = finish(command.spawn().expect("the command"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
}

/// A file system, unmounted when dropped, before its device is detached.
struct Mounted<'a> {
    at: &'a Path,
    _device: Loop,
}

impl<'a> Mounted<'a> {
    /// A small ext4; `None` without the privilege.
    fn new(image: &Path, at: &'a Path) -> Option<Self> {
        let device = Loop::over(image, 512 << 20)?;
        let done = |command: &mut std::process::Command| {
            command
                .status_in_time()
                .is_ok_and(|status| status.success())
        };
        let made = done(children::command("mkfs.ext4").args(["-q", "-F", &device.0]));
        (made && done(children::command("mount").arg(&device.0).arg(at))).then_some(Self {
            at,
            _device: device,
        })
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = children::command("umount").arg(self.at).status_in_time();
    }
}

/// Another process fills the disk of the store during a run: no write fails, no data is lost, and the program's next
/// allocation is refused.
#[test]
fn a_disk_that_fills_up_is_told() {
    const TEST: &str = "a_disk_that_fills_up_is_told";
    let (Some(bench), Some(program)) = (Bench::new(TEST), refused_program(TEST)) else {
        return;
    };
    let at = bench.file("mounted");
    fs::create_dir(&at).expect("a folder");
    let Some(_mounted) = Mounted::new(&bench.file("image"), &at) else {
        skipped(TEST, "needs root, loop devices and mkfs.ext4");
        return;
    };
    let others = at.join("others").display().to_string();
    let free = || {
        let disk = rustix::fs::statvfs(&at).expect("a file system");
        disk.f_bavail * disk.f_frsize
    };
    let free_at_first = free();
    for quiet in [true, false] {
        // ext4 counts blocks of deleted files as free when its journal has been written: with less, the store would be
        // too small for the program.
        wait_until("the deleted files' space is free", || {
            let synced = children::command("sync").status_in_time();
            assert!(synced.is_ok_and(|status| status.success()), "sync");
            free() + (8 << 20) >= free_at_first
        });
        let mut command = children::command(FLASHVM);
        command.args(["run", "--ram", "16M", "--fault", &fault_mode(), "--flash"]);
        command.arg(&at).args(quiet.then_some("--quiet"));
        command.args([
            "--stats",
            "/dev/stdout",
            "--",
            &program,
            "disk",
            "380",
            &others,
        ]);
        let output = finish(command.spawn().expect("the command"));
        let filled = fs::remove_file(&others);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(filled.is_ok(), "nothing filled the disk: {said}");
        assert_eq!(output.status.signal(), Some(11), "{said}");
        says(
            &output,
            &[
                "refused",
                " allocation",
                "disk of the flash store is full",
                "--flash",
            ],
        );
        let stats: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(stats["totals"]["write_errors"], 0, "{stats}");
    }
}
