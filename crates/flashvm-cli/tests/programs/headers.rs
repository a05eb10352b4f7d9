//! Programs in C and C++ that use the headers of `include`, under `flashvm run`, and in Rust with the crate
//! `flashvm`.

mod library;

use crate::support::{self, Folder, can_page, flashvm_run, has_program, run_bounded};
use crate::{LIMIT, example};
use std::path::{Path, PathBuf};

/// A folder with a program, built by `words`, the compiler first. Warnings are errors.
fn built(words: &[&str], source: &Path) -> (Folder, String) {
    let folder = Folder::new();
    let program = folder.path().join("program").display().to_string();
    let mut compiler = support::children::command(words[0]);
    compiler
        .args(&words[1..])
        .args(["-O2", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include"))
        .args(["-o", &program])
        .arg(source);
    let outcome = run_bounded("compiler", &mut compiler, LIMIT);
    assert_eq!(outcome.shell_code(), 0, "{words:?}: {}", outcome.stderr);
    (folder, program)
}

/// A program of `tests/headers`.
fn checking(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/headers")
        .join(name)
}

/// Objects at random in an arena, for C and for C++.
#[test]
fn an_arena_keeps_its_objects() {
    const TEST: &str = "an_arena_keeps_its_objects";
    for (seed, compiler) in [
        ("1", &["cc", "-std=c99"][..]),
        ("2", &["c++", "-x", "c++", "-std=c++17"]),
    ] {
        if !can_page(TEST) || !has_program(TEST, compiler[0]) {
            continue;
        }
        let (_folder, program) = built(compiler, &checking("arena.c"));
        for select in ["api", "all"] {
            let options = ["--ram", "16M", "--select", select];
            let found = flashvm_run(TEST, &options, &[&program, seed, "20000"], LIMIT);
            let found = found.expect_success(TEST);
            assert!(found.stdout.starts_with("arena: 20000 turns"), "{TEST}");
        }
    }
}

/// Pinned memory stays in RAM while other memory is paged, under each of these options.
fn pins_hold(test: &str, all_options: &[&[&str]]) {
    if !has_program(test, "cc") {
        return;
    }
    let (_folder, program) = built(&["cc"], &checking("pin.c"));
    for options in all_options {
        let options = [&["--ram", "8M"], *options].concat();
        let found = flashvm_run(test, &options, &[&program, "12"], LIMIT);
        let found = found.expect_success(test);
        assert_eq!(found.stdout, "pin: ok\n", "{options:?}");
    }
}

/// In each mode of faults, with few frames.
#[test]
fn pins() {
    const TEST: &str = "pins";
    if !can_page(TEST) {
        return;
    }
    let policies = ["segmented-fifo", "car", "craw-a", "fab", "two-list"];
    let by_policy = policies.map(|policy| ["--select", "api", "--policy", policy]);
    let by_policy = by_policy.iter().map(|options| &options[..]);
    let others = [&["--compress", "off"][..], &["--encrypt"]];
    pins_hold(TEST, &by_policy.chain(others).collect::<Vec<_>>());
}

/// With the engine checked against itself. In handler mode that takes minutes.
#[test]
fn checked_pins() {
    const TEST: &str = "checked_pins";
    if !support::is_run_elsewhere(TEST, &["--fault"]) {
        pins_hold(TEST, &[&["--check"]]);
    }
}

/// The examples that use the headers print what they should, and a sentence where no pager runs.
#[test]
fn examples_with_the_headers() {
    const TEST: &str = "examples_with_the_headers";
    for (source, compiler, argument, output) in [
        (
            "tree.c",
            &["cc", "-std=c99"][..],
            "260000",
            "173333 keys, checksum ef8d48ccec268490\n",
        ),
        (
            "words.cc",
            &["c++", "-std=c++17"],
            "100000",
            "78267 words; 38 times: a generated word, number 254\n",
        ),
    ] {
        if !can_page(TEST) || !has_program(TEST, compiler[0]) {
            continue;
        }
        let (_folder, program) = built(compiler, &example(source));
        let options = ["--ram", "8M", "--select", "api"];
        let found = flashvm_run(TEST, &options, &[&program, argument], LIMIT);
        let found = found.expect_success(source);
        assert_eq!(found.stdout, output, "{source}");
        assert!(
            found.stderr.contains(" faults, "),
            "{source}: {}",
            found.stderr
        );
        let mut alone = support::children::command(&program);
        let alone = run_bounded(TEST, alone.arg(argument), LIMIT);
        assert_eq!(alone.shell_code(), 1, "{source}: {}", alone.stderr);
        assert!(
            alone.stderr.contains("start it with flashvm run --ram"),
            "{source}: {}",
            alone.stderr
        );
    }
}

/// The sample of the document.
#[test]
fn the_sample_of_the_document() {
    const TEST: &str = "the_sample_of_the_document";
    if !can_page(TEST) || !has_program(TEST, "cc") {
        return;
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/c.md");
    let document = std::fs::read_to_string(document).expect("docs/c.md");
    let (_, sample) = document.split_once("```c\n").expect("a sample");
    let (sample, _) = sample.split_once("```").expect("its end");
    let folder = Folder::new();
    let source = folder.path().join("sample.c");
    std::fs::write(&source, sample).expect("written");
    let (_folder, program) = built(&["cc", "-std=c99"], &source);
    let options = ["--ram", "64M", "--select", "api"];
    let found = flashvm_run(TEST, &options, &[&program], LIMIT).expect_success(TEST);
    assert_eq!(found.stdout, "64 MiB of RAM\n");
}
