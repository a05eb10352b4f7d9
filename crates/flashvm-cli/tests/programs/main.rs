//! Real programs under `flashvm run`: the output must be that of a run without it, byte for byte.
//!
//! Short versions of what `eval/programs.py` measures at full size.

mod headers;
#[path = "../support/mod.rs"]
mod support;

use flashvm_core::PolicyKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::children::Bounded as _;
use support::{Folder, can_page, flashvm_run, has_program, run_bounded};

const LIMIT: Duration = Duration::from_secs(300);

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
}

/// The system's own Python where there is one: a `python3` in the path may be a script that looks for others.
fn python() -> &'static str {
    let own = "/usr/bin/python3";
    if Path::new(own).exists() {
        own
    } else {
        "python3"
    }
}

/// Runs a program without and with a budget, and compares status and output.
fn same_output(test: &str, options: &[&str], program: &[&str]) {
    if !can_page(test) || !has_program(test, program[0]) {
        return;
    }
    let mut bare = support::children::command(program[0]);
    bare.args(&program[1..]);
    let expected = run_bounded(test, &mut bare, LIMIT);
    let found = flashvm_run(test, options, program, LIMIT);
    assert_eq!(
        expected.shell_code(),
        found.shell_code(),
        "{test}: exit codes differ\n--- stderr\n{}",
        found.stderr
    );
    assert!(
        expected.stdout == found.stdout,
        "{test}: outputs differ: {} bytes without, {} bytes with flashvm\n--- stderr\n{}",
        expected.stdout.len(),
        found.stdout.len(),
        found.stderr
    );
    // Evicted pages, which may all fit into the pool.
    assert!(
        found.stat("dirty") + found.stat("pages_out") > 0,
        "{test}: nothing was paged out: {}",
        found.stats
    );
}

/// A store of eight times the RAM is too small for these buffers beside the other programs of a pipeline: the last
/// program to ask would get no memory.
const ROOM: &str = "--flash-size";

/// Sorts a generated file with a buffer several times the budget, by one and by two threads.
#[test]
fn sort() {
    let words = "seq 1 600000 | awk '{ printf \"%08x key %d\\n\", ($1 * 2654435761) % 4294967296, $1 }' \
                 | sort --buffer-size=128M --parallel=2 | cksum";
    same_output(
        "sort",
        &["--ram", "16M", ROOM, "512M"],
        &["sh", "-c", words],
    );
}

const DICTIONARY: &str = "
import zlib
table = {i * 2654435761 % 4294967291: str(i) for i in range(300000)}
total = 0
for i in range(0, 300000, 7):
    total = zlib.crc32(table[i * 2654435761 % 4294967291].encode(), total)
print(len(table), total)
";

#[test]
fn python_dictionary() {
    same_output(
        "python_dictionary",
        &["--ram", "16M"],
        &[python(), "-c", DICTIONARY],
    );
}

const CHILDREN: &str = "
import os, subprocess, sys, threading
blob = bytearray(os.urandom(1) * 1) + bytes(range(256)) * 4096 * 24
mark = hash(bytes(blob[1:]))
for i in range(3):
    text = subprocess.run([sys.executable, '-c', 'print(sum(range(10**5)))'], capture_output=True)
    assert text.stdout == b'4999950000\\n', text
pid = os.fork()
if pid == 0:
    os._exit(0 if hash(bytes(blob[1:])) == mark else 1)
assert os.waitpid(pid, 0)[1] == 0
found = []
crowd = [threading.Thread(target=lambda: found.append(hash(bytes(blob[1:])) == mark)) for _ in range(4)]
[t.start() for t in crowd]
[t.join() for t in crowd]
print(found, len(blob))
";

/// Children by spawn and by fork, and threads, out of one budget.
#[test]
fn python_children_and_threads() {
    same_output(
        "python_children_and_threads",
        &["--ram", "32M", "--flash-size", "2G"],
        &[python(), "-c", CHILDREN],
    );
}

/// A pipeline whose programs share the budget, with the exit status of the last.
#[test]
fn shell_pipelines() {
    let script = "seq 1 400000 | sort -r --buffer-size=64M | tac | sort -n --buffer-size=64M | md5sum; \
                  { (seq 1 300000 | sort -k1,1r --buffer-size=48M | head -n 3) & \
                  seq 1 10 | xargs -n 2 -P 3 sh -c 'echo $(( $0 + $1 ))'; wait; } | sort -n; exit 7";
    same_output(
        "shell_pipelines",
        &["--ram", "12M", ROOM, "1G"],
        &["sh", "-c", script],
    );
}

/// The exit status of a shell that a signal ended.
#[test]
fn status_of_a_killed_program() {
    const TEST: &str = "status_of_a_killed_program";
    if !can_page(TEST) {
        return;
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("ABRT", 134)] {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        let outcome = flashvm_run(TEST, &["--ram", "16M"], &["sh", "-c", &script], LIMIT);
        assert_eq!(
            outcome.shell_code(),
            code,
            "{TEST}: {signal}: {}",
            outcome.stderr
        );
    }
}

/// A compiler, which starts other programs and maps many files.
#[test]
fn compiler() {
    const TEST: &str = "compiler";
    if !can_page(TEST) || !has_program(TEST, "gcc") {
        return;
    }
    let folder = Folder::new();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/torture/syscalls.c");
    let object = |name: &str| folder.path().join(name).display().to_string();
    let words = |out: &str| {
        let source = source.display().to_string();
        ["gcc", "-O2", "-c", "-o", out, &source].map(str::to_owned)
    };
    let plain = words(&object("plain.o"));
    let mut bare = support::children::command("gcc");
    bare.args(&plain[1..]);
    run_bounded(TEST, &mut bare, LIMIT).expect_success(TEST);
    flashvm_run(TEST, &["--ram", "12M"], &words(&object("paged.o")), LIMIT).expect_success(TEST);
    let read = |name: &str| std::fs::read(object(name)).expect("an object file");
    assert!(
        read("plain.o") == read("paged.o"),
        "{TEST}: the object files differ"
    );
}

/// The examples at small sizes.
#[test]
fn examples() {
    const TEST: &str = "examples";
    let sort = example("sort.sh").display().to_string();
    if can_page(TEST) {
        flashvm_run(TEST, &["--ram", "16M"], &["sh", &sort, "400000"], LIMIT).expect_success(TEST);
    }
    if has_program(TEST, "cc") {
        let folder = Folder::new();
        let join = folder.path().join("hash-join").display().to_string();
        let mut compile = support::children::command("cc");
        compile
            .args(["-O2", "-o", &join])
            .arg(example("hash-join.c"));
        run_bounded(TEST, &mut compile, LIMIT).expect_success(TEST);
        same_output(TEST, &["--ram", "16M"], &[&join, "1000000", "1000000"]);
    }
    let numpy = [python(), "python3"].into_iter().find(|python| {
        support::children::command(python)
            .args(["-c", "import numpy"])
            .output_in_time()
            .is_ok_and(|o| o.status.success())
    });
    match numpy {
        Some(python) => {
            let columns = example("column-sum.py").display().to_string();
            same_output(TEST, &["--ram", "32M"], &[python, &columns, "4096"]);
        }
        None => support::say("SKIPPED: examples, column-sum.py: python3 has no numpy"),
    }
}

/// Pages are read and written at random, a quarter of them most of the time; each read is checked. What is written does not compress,
/// so pages reach flash under every policy.
const PAGES: &str = "
import random
chance, pages = random.Random(1), 8192
memory, known = bytearray(pages * 4096), [0] * pages
for turn in range(1, 8001):
    page = chance.randrange(pages if turn % 8 == 0 else pages // 4)
    at = page * 4096 + page % 4000
    assert int.from_bytes(memory[at:at + 8], 'little') == known[page], page
    if chance.randrange(3) == 0:
        memory[page * 4096:(page + 1) * 4096] = chance.randbytes(4096)
        known[page] = int.from_bytes(memory[at:at + 8], 'little')
print(sum(known))
";

/// Every live policy, with a program that holds four times its budget, changes it at random and checks each read.
fn all_policies(preset: &str) {
    let test = format!("policies_{preset}");
    if !can_page(&test) || !has_program(&test, python()) {
        return;
    }
    let mut sums = Vec::new();
    for info in PolicyKind::ALL
        .iter()
        .filter(|info| !info.kind.is_offline())
    {
        let options = ["--ram", "8M", "--preset", preset, "--policy", info.name];
        let program = [python(), "-c", PAGES];
        let outcome = flashvm_run(&test, &options, &program, LIMIT).expect_success(info.name);
        assert!(outcome.stat("pages_out") > 0, "{}", info.name);
        sums.push((info.name, outcome.stdout));
    }
    for (name, sum) in &sums {
        assert_eq!(*sum, sums[0].1, "{name}");
    }
}

#[test]
fn policies_under_preset_modern() {
    all_policies("modern");
}

#[test]
fn policies_under_preset_flashvm() {
    all_policies("flashvm");
}

/// A folder with a program of `tests/carried`, built by `words`, the compiler first.
fn built(name: &str, words: &[&str]) -> Folder {
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/carried")
        .join(name);
    let mut compiler = support::children::command(words[0]);
    compiler
        .args(&words[1..])
        .arg("-o")
        .arg(folder.path().join("program"))
        .arg(source);
    let outcome = run_bounded("compiler", compiler.env("CGO_ENABLED", "0"), LIMIT);
    assert_eq!(outcome.shell_code(), 0, "{words:?}: {}", outcome.stderr);
    folder
}

/// Programs that the dynamic linker does not start: the object carries them.
#[test]
fn programs_without_glibc() {
    const TEST: &str = "programs_without_glibc";
    if support::is_run_elsewhere(TEST, &["--fault"]) {
        return;
    }
    for (source, compiler, ram) in [
        ("self.c", &["cc", "-O2", "-pthread", "-static"][..], "8M"),
        ("self.c", &["cc", "-O2", "-pthread", "-static-pie"], "8M"),
        ("self.c", &["musl-gcc", "-O2", "-pthread", "-static"], "8M"),
        ("self.c", &["musl-gcc", "-O2", "-pthread"], "8M"),
        ("table.go", &["go", "build"], "24M"),
    ] {
        if !has_program(TEST, compiler[0]) {
            continue;
        }
        let folder = built(source, compiler);
        let program = folder.path().join("program").display().to_string();
        // Also as the child of a program that is preloaded.
        let script = format!("'{program}' again | cksum; '{program}' again");
        for fault in ["inline", "protect"] {
            let options = [
                "--ram",
                ram,
                ROOM,
                "512M",
                "--fault",
                fault,
                "--granularity",
                "4096",
            ];
            same_output(TEST, &options, &[&program, "again"]);
            if fault == "inline" {
                same_output(TEST, &options, &["sh", "-c", &script]);
            }
        }
    }
}
