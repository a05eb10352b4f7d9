//! `--save-pages` and `--prefetch-pages`: a program whose order has no pattern waits seldom in its second run.

use super::{compiled, flashvm, folder, left, printed, refused};
use crate::support::can_page;
use serde_json::Value;
use std::path::Path;

/// Follows a linked list through 24 MiB three times, in an order without a pattern. What the pages hold does not shrink.
const LIST: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static uint64_t state = 1;
static uint64_t next(void) {
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state ^ state >> 29;
}
int main(void) {
	enum { PAGES = 6144 };
	static uint32_t order[PAGES];
	uint64_t *data = malloc((size_t)PAGES << 12), sum = 0;
	for (uint32_t i = 0; i < PAGES; i++) order[i] = i;
	for (uint32_t i = PAGES - 1; i > 0; i--) {
		uint32_t j = next() % (i + 1), kept = order[i];
		order[i] = order[j];
		order[j] = kept;
	}
	for (size_t i = 0; i < (size_t)PAGES << 9; i++) data[i] = next();
	for (uint32_t i = 0; i < PAGES; i++) data[(size_t)order[i] << 9] = order[(i + 1) % PAGES];
	for (size_t i = 0, at = 0; i < 3 * PAGES; i++) {
		at = data[at << 9];
		sum += data[(at << 9) + 7] & 255;
	}
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}
"#;

/// Runs the program; its statistics.
fn run(folder: &Path, options: &[&str], program: &str) -> (String, Value) {
    let budget = [
        "run",
        "--quiet",
        "--ram",
        "8M",
        "--flash-size",
        "256M",
        "--stats",
        "stats.json",
    ];
    let args = [&budget[..], options, &["--", program]].concat();
    let text = printed(&flashvm(folder, &args));
    let stats = std::fs::read(folder.join("stats.json")).expect("the statistics");
    (text, serde_json::from_slice(&stats).expect("JSON"))
}

fn waits(stats: &Value) -> u64 {
    stats["totals"]["faults"]["major"]
        .as_u64()
        .expect("a count")
}

#[test]
fn a_second_run_waits_seldom() {
    if !can_page("saved_pages: a_second_run_waits_seldom") {
        return;
    }
    let folder = folder();
    let program = compiled(folder.path(), "list", LIST);
    let (text, first) = run(folder.path(), &["--save-pages", "list.fvt"], &program);
    assert!(waits(&first) > 8000, "{}", first["totals"]["faults"]);
    let (again, second) = run(
        folder.path(),
        &["--prefetch-pages", "list.fvt", "--save-pages", "again.fvt"],
        &program,
    );
    assert_eq!(again, text);
    assert!(
        waits(&second) * 3 < waits(&first),
        "{} and {}",
        waits(&first),
        waits(&second)
    );
    // What was saved anew is as good.
    let (again, third) = run(folder.path(), &["--prefetch-pages", "again.fvt"], &program);
    assert_eq!(again, text);
    assert!(waits(&third) * 3 < waits(&first), "{}", waits(&third));
    // It is a trace, of pages.
    let stat = printed(&flashvm(folder.path(), &["trace", "stat", "list.fvt"]));
    assert!(stat.contains("--save-pages"), "{stat}");
    // Another program is not led astray.
    let other = folder.path().join("other");
    std::fs::copy(&program, &other).expect("a copy");
    let (text_of_other, fourth) = run(
        folder.path(),
        &["--prefetch-pages", "list.fvt"],
        &other.display().to_string(),
    );
    assert_eq!(text_of_other, text);
    assert!(waits(&fourth) > 8000, "{}", waits(&fourth));
}

#[test]
fn bad_input() {
    let folder = folder();
    let file = |name: &str| folder.path().join(name);
    let refused = |options: &[&str], named: &[&str]| {
        let args = [&["run"], options, &["--", "true"]].concat();
        refused(folder.path(), &args, named);
    };
    refused(&["--save-pages", "/nowhere/a.fvt"], &["/nowhere/a.fvt"]);
    refused(&["--prefetch-pages", "none.fvt"], &["none.fvt"]);
    std::fs::write(file("text"), "no trace\n").expect("a file");
    refused(&["--prefetch-pages", "text"], &["--prefetch-pages", "text"]);
    // A trace of another kind.
    std::fs::write(file("keys"), "1\n2\n3\n").expect("a file");
    printed(&flashvm(
        folder.path(),
        &["trace", "convert", "--format", "keys", "keys", "keys.fvt"],
    ));
    refused(
        &["--prefetch-pages", "keys.fvt"],
        &["keys.fvt", "another kind", "--save-pages"],
    );
    if !can_page("saved_pages: bad_input") {
        return;
    }
    // A program that waits for nothing leaves nothing, and the command says so.
    let args = [
        "run",
        "--quiet",
        "--ram",
        "64M",
        "--save-pages",
        "none.fvt",
        "--",
        "true",
    ];
    let output = flashvm(folder.path(), &args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("nothing to save") && errors.lines().count() == 1,
        "{errors}"
    );
    assert!(!left(folder.path()).contains(&"none.fvt".to_owned()));
    // A damaged file.
    let program = compiled(folder.path(), "list", LIST);
    run(folder.path(), &["--save-pages", "list.fvt"], &program);
    let mut bytes = std::fs::read(file("list.fvt")).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(file("list.fvt"), &bytes).expect("the file");
    refused(&["--prefetch-pages", "list.fvt"], &["list.fvt"]);
    refused(
        &["--prefetch-pages", "list.fvt", "--record", "r"],
        &["list.fvt"],
    );
}
