//! Tortures the live pager: the programs of `tests/torture`, each under a budget several times
//! smaller than its data, in every mode that the pager has and with faults in the store.
//!
//! Short by default. `FLASHVM_TORTURE_SECONDS=N` gives every part N seconds and more data,
//! `FLASHVM_TORTURE_SEED=N` repeats a run; `eval/torture.sh` makes a campaign of both.

mod c_library;
mod compiled;
mod encrypted;
mod interrupts;
mod mappings;
mod replay;
mod report;
#[path = "../support/mod.rs"]
mod support;
mod unusual;

use compiled::compiled;
use std::sync::OnceLock;
use std::time::Duration;
use support::children::Bounded as _;
use support::{can_page, flashvm_run, has_program};

/// Longer than any run on a busy machine: a run of small pages waits for the CPU at each read.
const LIMIT: Duration = Duration::from_secs(600);
/// Families of processes commit what each of them may store to.
const BUDGET: [&str; 4] = ["--ram", "16M", "--flash-size", "1G"];

/// A part fills its memory and makes at least one round, whatever its time.
fn seconds() -> f64 {
    std::env::var("FLASHVM_TORTURE_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0.5)
}

fn seed() -> String {
    std::env::var("FLASHVM_TORTURE_SEED").unwrap_or_else(|_| "20261120".to_owned())
}

fn ready(test: &str) -> bool {
    static COMPILER: OnceLock<bool> = OnceLock::new();
    can_page(test) && *COMPILER.get_or_init(|| has_program(test, "cc"))
}

/// Runs parts of the torture program and checks that they paged, and within the budget.
fn torture(test: &str, parts: &str, options: &[&str]) {
    tortured_by("torture", test, parts, options);
}

/// The same for one of its builds.
fn tortured_by(build: &str, test: &str, parts: &str, options: &[&str]) {
    if support::is_run_elsewhere(test, options) || !ready(test) {
        return;
    }
    let part_count = parts.split(',').count() as f64;
    // A third of the data, or less. The time of a round of forks is proportional to the data.
    let (ram_mib, mib) = if seconds() > 10.0 {
        (16, "256")
    } else {
        (4, "12")
    };
    let ram = format!("{ram_mib}M");
    let program = [
        compiled(build).display().to_string(),
        "--only".to_owned(),
        parts.to_owned(),
        "--mib".to_owned(),
        mib.to_owned(),
        "--seconds".to_owned(),
        seconds().to_string(),
        "--seed".to_owned(),
        seed(),
    ];
    let options = [&["--ram", &ram, "--flash-size", "1G"], options].concat();
    // A part finishes its round after its time is over; the time of a round depends on the disk.
    let limit = Duration::from_secs_f64(part_count * (seconds() * 3.0 + 300.0));
    let outcome = flashvm_run(test, &options, &program, limit).expect_success(test);
    assert!(
        outcome.stdout.contains("all checks held"),
        "{test}: {}",
        outcome.stdout
    );
    assert!(
        outcome.stat("pages_out") > 0,
        "{test}: nothing was paged out: {}",
        outcome.stats
    );
    // Each process by itself: maxima of different times add up to more.
    let processes = outcome.stats.split("\"totals\"").next().unwrap_or_default();
    for resident in processes.split("\"resident_pages_max\"").skip(1) {
        let digits: String = resident
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        let pages: u64 = digits.parse().expect("a number of pages");
        assert!(
            pages <= ram_mib << 20 >> 12,
            "{test}: {pages} pages in RAM of {ram_mib} MiB allowed"
        );
    }
}

macro_rules! parts {
    ($($part:ident),*) => {$(
        #[test]
        fn $part() {
            torture(stringify!($part), stringify!($part), &[]);
        }
    )*};
}

parts!(
    rewrite, zero, syscalls, forking, remap, protect, guard, signals, alloc, exit, table
);

/// Its pages shrink so much that compressed they all fit into RAM, and none would go to flash.
#[test]
fn threads() {
    torture("threads", "threads", &["--compress", "off"]);
}

#[test]
fn fork() {
    torture("fork", "fork", &[]);
}

/// A static program: the object carries it, and the C library in it is its own.
#[test]
fn carried() {
    // The guard and the pager are the same for all programs: these parts depend on how the program began.
    let parts = "rewrite,syscalls,forking,guard,signals,alloc,threads,exit";
    let mode = ["--fault", "inline", "--granularity", "4096"];
    tortured_by("torture-static", "carried", parts, &mode);
    tortured_by("torture-static", "carried, fork", "fork", &mode);
}

/// Pages leave while threads execute them.
#[test]
fn generated_code() {
    const TEST: &str = "generated_code";
    if !ready(TEST) {
        return;
    }
    let program = [
        compiled("code").display().to_string(),
        "16".to_owned(),
        (4.0 * seconds()).to_string(),
    ];
    let options = ["--ram", "6M", "--flash-size", "1G", "--compress", "off"];
    let outcome = flashvm_run(TEST, &options, &program, LIMIT).expect_success(TEST);
    assert!(outcome.stat("pages_in") > 0, "{TEST}: {}", outcome.stats);
}

/// Each page is where the engine has it. Checks take time, so there is little data.
#[test]
fn checked() {
    const TEST: &str = "checked";
    if !ready(TEST) {
        return;
    }
    let torture = compiled("torture").display().to_string();
    let moving = ["rewrite", "fork", "protect", "remap", "syscalls"];
    for (options, parts) in [
        (&[][..], &moving[..]),
        (&["--no-move", "--fault", "inline"], &moving[..3]),
    ] {
        for part in parts {
            let test = format!("{TEST}, {part} {options:?}");
            if support::is_run_elsewhere(&test, options) {
                continue;
            }
            let program = [
                &torture,
                "--only",
                part,
                "--mib",
                "6",
                "--seconds",
                "0.3",
                "--seed",
                "1",
            ];
            let options = [&["--ram", "4M", "--flash-size", "64M", "--check"], options].concat();
            flashvm_run(&test, &options, &program, LIMIT).expect_success(&test);
        }
    }
}

/// While the kernel migrates pages, `UFFDIO_MOVE` of Linux 6.18 may report a move as failed that it has carried out.
/// The program must go on with its data.
#[test]
fn while_memory_is_compacted() {
    const TEST: &str = "while_memory_is_compacted";
    const COMPACT: &str = "/proc/sys/vm/compact_memory";
    if !ready(TEST) {
        return;
    }
    if std::fs::write(COMPACT, "1").is_err() {
        support::say(&format!(
            "SKIPPED: {TEST}: only root may write to {COMPACT}"
        ));
        return;
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::write(COMPACT, "1").expect("it could be written before");
            }
        });
        // Ends the thread above even if a check fails.
        let _end = OnDrop(|| over.store(true, std::sync::atomic::Ordering::Relaxed));
        torture(
            TEST,
            "rewrite,remap,protect",
            &["--policy", "clock", "--prefetcher", "off"],
        );
    });
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Before UFFDIO_MOVE (Linux 6.8) eviction protects, copies and drops; in inline mode only.
const WITHOUT_MOVE: &[&str] = &["--no-move", "--fault", "inline"];

#[test]
fn without_move() {
    let parts = "rewrite,zero,syscalls,fork,forking,remap,protect,guard,alloc";
    torture("without_move", parts, WITHOUT_MOVE);
}

#[test]
fn table_without_move() {
    torture("table_without_move", "table", WITHOUT_MOVE);
}

/// Where io_uring is blocked, as in most containers.
#[test]
fn without_io_uring() {
    torture(
        "without_io_uring",
        "rewrite,fork,forking,syscalls,remap",
        &["--no-uring"],
    );
}

/// Modelled devices: slow ones, one that refuses writes once it is worn, one that hears of every freed page. A family
/// of processes shares one.
#[test]
fn on_device_models() {
    for (model, discard, part) in [
        ("ocz-vertex", "merged:8M", "rewrite"),
        ("raw-nand", "off", "rewrite"),
        ("nand", "auto", "fork"),
    ] {
        let test = format!("on_device_models, {model}");
        let options = ["--device-model", model, "--discard", discard];
        torture(&test, part, &options);
    }
}

/// The program asks for huge pages, gets them while RAM is plentiful, and loses nothing when they are taken apart.
#[test]
fn huge_pages() {
    const TEST: &str = "huge_pages";
    if !ready(TEST) {
        return;
    }
    let program = [&compiled("huge").display().to_string(), "160"];
    let options = ["--ram", "128M", "--flash-size", "1G"];
    let outcome = flashvm_run(TEST, &options, &program, LIMIT).expect_success(TEST);
    assert!(outcome.stat("pages_out") > 0, "{}", outcome.stats);
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let kernel = setting.is_ok_and(|words| !words.contains("[never]"));
    // Protect mode cannot move pages.
    let moves = std::env::var_os("FLASHVM_TEST_FAULT").is_none_or(|mode| mode != "protect");
    assert_eq!(
        outcome.stat("huge_pages") > 0,
        kernel && moves,
        "{}",
        outcome.stats
    );
}

/// If the program moves the kernel's memory over managed memory, the pager does not take it for the memory that it
/// replaces.
#[test]
fn memory_that_is_moved_in_is_kept() {
    const TEST: &str = "memory_that_is_moved_in_is_kept";
    if !ready(TEST) {
        return;
    }
    let program = [&compiled("moved_in").display().to_string(), "60"];
    let options = ["--ram", "8M", "--flash-size", "1G"];
    flashvm_run(TEST, &options, &program, LIMIT).expect_success(TEST);
}

/// Sockets and pipes move everything between processes that have few frames each.
#[test]
fn transfers_in_a_crowd_are_whole() {
    const TEST: &str = "transfers_in_a_crowd_are_whole";
    if !ready(TEST) {
        return;
    }
    let program = [&compiled("crowd").display().to_string(), "6"];
    let options = ["--ram", "4M", "--flash-size", "2G"];
    flashvm_run(TEST, &options, &program, LIMIT).expect_success(TEST);
}

/// A process with another number in its own `/proc` is not taken for dead, and keeps its data.
#[test]
fn a_process_in_its_own_pid_namespace_keeps_its_data() {
    const TEST: &str = "a_process_in_its_own_pid_namespace_keeps_its_data";
    if !ready(TEST) {
        return;
    }
    let program = compiled("namespace");
    let alone = support::children::command(&program)
        .arg("0")
        .status_in_time();
    if alone.is_ok_and(|status| status.code() == Some(77)) {
        eprintln!("{TEST} is skipped: no pid namespaces for this user");
        return;
    }
    let program = [&program.display().to_string(), "4"];
    flashvm_run(
        TEST,
        &["--ram", "16M", "--flash-size", "1G"],
        &program,
        LIMIT,
    )
    .expect_success(TEST);
}

/// No read is faster than the device, and the run reports what the model counted.
#[test]
fn a_device_model_takes_its_time() {
    const TEST: &str = "a_device_model_takes_its_time";
    if !ready(TEST) {
        return;
    }
    let program = [&compiled("sigbus").display().to_string(), "24", "1"];
    let options = ["--device-model", "seagate-7200", "--readahead", "1"];
    let options: Vec<&str> = BUDGET.iter().chain(&options).copied().collect();
    let outcome = flashvm_run(TEST, &options, &program, LIMIT).expect_success(TEST);
    let stats: serde_json::Value = serde_json::from_str(&outcome.stats).expect("JSON");
    let totals = &stats["totals"];
    assert_eq!(totals["device_model"]["model"], "seagate-7200");
    // Transfers alone: 68 MB/s out and 80 MB/s in.
    let megabytes = |key: &str| totals[key].as_f64().expect("a number") / 1e6;
    let least = megabytes("bytes_written") / 68.0 + megabytes("bytes_read") / 80.0;
    let took = totals["elapsed_s"].as_f64().expect("a number");
    assert!(
        least > 0.05 && took > least,
        "{took} s for {least} s of transfers: {stats}"
    );
}

/// The limit of a day is not exceeded, and the program reads what it stored.
#[test]
fn a_write_limit_holds() {
    const TEST: &str = "a_write_limit_holds";
    if !ready(TEST) {
        return;
    }
    // 43 MiB at once, then 12 KiB a second.
    let options = ["--write-limit", "1G/day"];
    let options: Vec<&str> = BUDGET.iter().chain(&options).copied().collect();
    let sigbus = compiled("sigbus").display().to_string();
    let program = ["timeout", "-s", "KILL", "6", &sigbus, "96", "1000"];
    let outcome = flashvm_run(TEST, &options, &program, LIMIT);
    if std::env::var("FLASHVM_TEST_GRANULARITY").as_deref() == Ok("512") {
        assert_eq!(outcome.shell_code(), 2, "small pages know no limit");
        return;
    }
    assert_eq!(outcome.shell_code(), 128 + 9, "{TEST}: {}", outcome.stderr);
    let stats: serde_json::Value = serde_json::from_str(&outcome.stats).expect("JSON");
    let number = |key: &str| stats["totals"][key].as_f64().expect("a number");
    let allowed = f64::from(1 << 30) / 24.0 * (1.0 + 23.0 * number("elapsed_s") / 86400.0);
    // One more request may have begun.
    let most = allowed + f64::from(64 << 12);
    assert!(number("bytes_written") <= most, "of {most}: {stats}");
    assert!(number("sampled") > 0.0, "{stats}");
    assert!(number("writes_held_back_s") > 0.0, "{stats}");
}

/// A failed write keeps the page and goes to another slot: no program notices.
#[test]
fn write_errors_are_hidden() {
    let inject = format!("write=2000,seed={}", seed());
    torture(
        "write_errors_are_hidden",
        "rewrite,zero,fork,remap,alloc",
        &["--inject", &inject],
    );
}

/// The presets take other paths through prefetching and write-back.
#[test]
fn other_presets() {
    for preset in ["flashvm", "native"] {
        torture("other_presets", "rewrite,zero,remap", &["--preset", preset]);
    }
}

#[test]
fn cxx() {
    if !ready("cxx") || !has_program("cxx", "c++") {
        return;
    }
    let program = [
        compiled("torture_cxx").display().to_string(),
        "9".to_owned(),
        seed(),
    ];
    let options = ["--ram", "8M", "--flash-size", "1G"];
    flashvm_run("cxx", &options, &program, LIMIT).expect_success("cxx");
}

/// A full store means ENOMEM, early enough that nothing is lost.
#[test]
fn a_full_store_loses_nothing() {
    if !ready("a_full_store_loses_nothing") {
        return;
    }
    for way in ["malloc", "mmap"] {
        let test = format!("a_full_store_loses_nothing, {way}");
        let program = [&compiled("enomem").display().to_string(), way, "1024"];
        let options = ["--ram", "16M", "--flash-size", "48M"];
        flashvm_run(&test, &options, &program, LIMIT).expect_success(&test);
    }
}

/// Read errors and flipped bits give SIGBUS or the right data, never wrong data.
#[test]
fn lost_pages_give_sigbus() {
    if !ready("lost_pages_give_sigbus") {
        return;
    }
    let mut whole = 0;
    // On a busy machine pages of the C library are paged out, too, and lost: then other seeds are tried.
    let injected = [
        "read=500000",
        "flip=500000",
        "read=400000,write=20000,flip=400000",
    ];
    for (inject, round) in (0..4).flat_map(|round| injected.map(|inject| (inject, round))) {
        if whole > 0 && round > 0 {
            break;
        }
        let test = format!("lost_pages_give_sigbus, {inject}");
        let inject = format!("{inject},seed={}{round}", seed());
        // Each check looks at every page: a few are enough.
        let options = ["--ram", "4M", "--check", "--inject", &inject];
        let program = [&compiled("sigbus").display().to_string(), "12", "2"];
        let outcome = flashvm_run(&test, &options, &program, LIMIT);
        let (code, out) = (outcome.shell_code(), &outcome.stdout);
        assert!(
            matches!(code, 0 | 3),
            "{test}: exit code {code}: {out}{}",
            outcome.stderr
        );
        assert!(
            outcome.stderr.contains("are lost") && !out.contains(" 0 of "),
            "{test}: no fault reached the program: {out}{}",
            outcome.stderr
        );
        whole += usize::from(code == 0);
    }
    assert!(whole > 0, "no run could check all its pages");
}

/// A program without a handler ends with SIGBUS and a message.
#[test]
fn a_lost_page_ends_the_program() {
    const TEST: &str = "a_lost_page_ends_the_program";
    if !ready(TEST) {
        return;
    }
    let program = [&compiled("sigbus").display().to_string(), "64", "4", "die"];
    let options = ["--ram", "16M", "--inject", "flip=600000,seed=3"];
    let outcome = flashvm_run(TEST, &options, &program, LIMIT);
    assert_eq!(outcome.shell_code(), 128 + 7, "{TEST}: {}", outcome.stderr);
    let said = |line: &str| line.starts_with("  lost") && line.contains("SIGBUS");
    assert!(
        outcome.stderr.contains("flashvm: ") && outcome.stderr.lines().any(said),
        "{TEST}: no message: {}",
        outcome.stderr
    );
    assert!(outcome.stat("pages_lost") > 0, "{TEST}: {}", outcome.stats);
}

/// While the program does not fault, neither its pager nor the supervisor uses the CPU.
#[test]
fn idle_uses_no_cpu() {
    const TEST: &str = "idle_uses_no_cpu";
    if !ready(TEST) {
        return;
    }
    let program = [&compiled("idle").display().to_string(), "64", "2"];
    let outcome = flashvm_run(TEST, &BUDGET, &program, LIMIT).expect_success(TEST);
    let used: Vec<f64> = outcome
        .stdout
        .split([' ', ','])
        .filter_map(|word| word.trim().parse().ok())
        .collect();
    let [own, parent] = used[..] else {
        panic!("{TEST}: {}", outcome.stdout)
    };
    // One scheduler tick of accounting noise in two seconds is 0.5 %.
    assert!(own <= 10.0 && parent <= 10.0, "{TEST}: {}", outcome.stdout);
}
