//! `--encrypt`: the programs run as without it, and their data is not in the store.

use crate::compiled::compiled;
use crate::support::{FLASHVM, Folder, children, flashvm_run, run_bounded};
use crate::{LIMIT, ready, seed, torture};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ENCRYPT: [&str; 3] = ["--encrypt", "--granularity", "4096"];

/// Families of processes share slots and the key, and each writes pages of its own.
#[test]
fn encrypted() {
    torture("encrypted", "rewrite,syscalls,forking,remap", &ENCRYPT);
    torture("encrypted, fork", "fork", &ENCRYPT);
}

/// The other ways to the store, and with writes that fail.
#[test]
fn encrypted_by_other_ways() {
    let inject = format!("write=2000,seed={}", seed());
    for (options, part) in [
        (&["--no-uring", "--compress", "off"][..], "fork"),
        (&["--device-model", "ocz-vertex"], "rewrite"),
        (&["--compress", "lz4", "--inject", &inject], "rewrite"),
    ] {
        let options = [&ENCRYPT[..], options].concat();
        torture(
            &format!("encrypted_by_other_ways, {options:?}"),
            part,
            &options,
        );
    }
}

/// What `sigbus` stores: words that differ by this number. Its pages do not shrink, so they are written as they are.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Pages that begin as the program's do.
fn pages_of_the_program(store: &[u8]) -> usize {
    let word =
        |page: &[u8], i: usize| u64::from_ne_bytes(*page[8 * i..].first_chunk().expect("8 bytes"));
    let is_of_it =
        |page: &&[u8]| (0..15).all(|i| word(page, i).wrapping_add(STEP) == word(page, i + 1));
    store.chunks_exact(4096).filter(is_of_it).count()
}

/// A run of `sigbus ARGS` over the store at `path`, which keeps what was written to it.
fn over(path: &Path, options: &[&str], args: [&str; 2]) -> Command {
    let mut command = children::command(FLASHVM);
    let sizes = ["--ram", "8M", "--flash-size", "64M", "--discard", "off"];
    command.arg("run").args(sizes).args(options);
    command.arg("--flash").arg(path);
    command.arg("--").arg(compiled("sigbus")).args(args);
    command
}

#[test]
fn the_store_does_not_show_what_is_encrypted() {
    const TEST: &str = "the_store_does_not_show_what_is_encrypted";
    if !ready(TEST) {
        return;
    }
    for (encrypt, shows) in [(&ENCRYPT[1..], true), (&ENCRYPT[..], false)] {
        let folder = Folder::new();
        let path = folder.path().join("store");
        fs::write(&path, "").expect("a file");
        // The run removes its name.
        let mut store = File::open(&path).expect("the file");
        let options = [&["--quiet"], encrypt].concat();
        let mut command = over(&path, &options, ["24", "2"]);
        let outcome = run_bounded(TEST, &mut command, LIMIT).expect_success(TEST);
        assert!(outcome.stdout.contains(" 0 of "), "{}", outcome.stdout);
        let mut bytes = Vec::new();
        store.read_to_end(&mut bytes).expect("the store");
        let pages = pages_of_the_program(&bytes);
        let written = bytes
            .chunks(4096)
            .filter(|page| page.iter().any(|&byte| byte != 0))
            .count();
        assert!(written > 1024, "{written} pages were written");
        assert_eq!(
            pages > 1024,
            shows,
            "{pages} of {written} pages are the program's: {encrypt:?}"
        );
        assert!(shows || pages == 0, "{pages} pages can be read");
    }
}

/// Somebody writes old contents of the store back while the program runs: SIGBUS or the right data, never old data.
#[test]
fn replayed_slots_give_sigbus() {
    const TEST: &str = "replayed_slots_give_sigbus";
    if !ready(TEST) {
        return;
    }
    let folder = Folder::new();
    let path = folder.path().join("store");
    fs::write(&path, "").expect("a file");
    let store = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("the file");
    let mut command = over(&path, &ENCRYPT, ["24", "8"]);
    let ended = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut old = vec![0; 64 << 20];
            while !ended.load(Ordering::Relaxed) {
                let len = store.read_at(&mut old, 0).expect("the store");
                std::thread::sleep(Duration::from_millis(100));
                store
                    .write_all_at(&old[..len], 0)
                    .expect("room, as it was read");
            }
        });
        let outcome = run_bounded(TEST, &mut command, LIMIT);
        ended.store(true, Ordering::Relaxed);
        outcome
    });
    let (code, out) = (outcome.shell_code(), &outcome.stdout);
    // 3, or 128 and SIGBUS: a page of the C library or of the stack was lost.
    assert!(
        matches!(code, 0 | 3 | 135),
        "{TEST}: exit code {code}: {out}{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("are lost"),
        "{TEST}: nothing was found: {out}{}",
        outcome.stderr
    );
}

/// Bits that flip on their way give SIGBUS or the right data, as without encryption.
#[test]
fn damaged_pages_give_sigbus() {
    const TEST: &str = "damaged_pages_give_sigbus";
    if !ready(TEST) {
        return;
    }
    for round in 0..4 {
        let inject = format!("flip=500000,seed={}{round}", seed());
        let options = [
            &["--ram", "4M", "--check", "--inject", &inject][..],
            &ENCRYPT,
        ]
        .concat();
        let program = [&compiled("sigbus").display().to_string(), "12", "2"];
        let outcome = flashvm_run(TEST, &options, &program, LIMIT);
        let (code, out) = (outcome.shell_code(), &outcome.stdout);
        assert!(
            matches!(code, 0 | 3),
            "{TEST}: exit code {code}: {out}{}",
            outcome.stderr
        );
        assert!(
            outcome.stderr.contains("are lost") && !out.contains(" 0 of "),
            "{TEST}: no fault reached the program: {out}{}",
            outcome.stderr
        );
        // Code 3: a page of the C library was lost as well. Then another seed is tried.
        if code == 0 {
            return;
        }
    }
    panic!("{TEST}: no run could check all its pages");
}
