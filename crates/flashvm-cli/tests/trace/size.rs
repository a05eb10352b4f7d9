//! `flashvm size`: the curve of a program whose misses are known, runs that check the forecast, and bad input.

use super::{compiled, flashvm, folder, left, printed, refused};
use crate::support::can_page;
use serde_json::Value;
use std::path::Path;

/// Goes through 64 MiB five times, then stays in 16 MiB.
const CYCLE: &str = r#"
#include <stdlib.h>
#include <stdio.h>
/* Computes for a few microseconds, so that misses on a busy machine do not make it more than 12 times slower. */
static char computed(char value) {
	for (volatile int i = 0; i < 2000; i++) ;
	return value;
}
int main(void) {
	size_t pages = 16384, sum = 0;
	volatile char *data = malloc(pages << 12);
	for (size_t i = 0; i < pages; i++) data[i << 12] = (char)(i * 7);
	for (int round = 0; round < 4; round++)
		for (size_t i = 0; i < pages; i++) sum += computed(data[i << 12]);
	for (int round = 0; round < 20; round++)
		for (size_t i = 0; i < pages / 4; i++) sum += computed(data[i << 12]);
	printf("%zu\n", sum);
	return 0;
}
"#;
const PAGES: f64 = 16384.0;

fn object(folder: &Path, args: &[&str]) -> Value {
    let text = printed(&flashvm(folder, args));
    serde_json::from_str(&text).expect("one object")
}

/// Misses at the size of memory nearest to a share of the pages.
fn misses(found: &Value, share: f64) -> f64 {
    let wanted = share * PAGES * 4096.0;
    let points = found["curve"].as_array().expect("points");
    let far = |point: &&Value| (point["ram_bytes"].as_f64().expect("bytes") - wanted).abs() as u64;
    let point = points.iter().min_by_key(far).expect("a point");
    point["misses"].as_f64().expect("misses")
}

#[test]
fn a_cycle_is_recognised() {
    if !can_page("a_cycle_is_recognised") {
        return;
    }
    let folder = folder();
    let program = compiled(folder.path(), "cycle", CYCLE);
    let size = |options: &[&str]| {
        let args = [
            &["size", "--ram", "256M", "--json"][..],
            options,
            &["--", &program],
        ]
        .concat();
        object(folder.path(), &args)
    };
    let found = size(&["--keep", "touches.fvt", "--try", "--plot", "curve.svg"]);
    // Of 65,536 touches after the first of each page all miss with three quarters of the pages, and the last
    // 81,920 hit with 16 MiB.
    let half = misses(&found, 0.5);
    assert!((0.8..1.25).contains(&(half / (4.0 * PAGES))), "{half}");
    let few = misses(&found, 0.125);
    assert!((0.8..1.25).contains(&(few / (9.0 * PAGES))), "{few}");
    assert_eq!(misses(&found, 1.0), 0.0, "{found}");
    let used = found["forecast"]["used_bytes"].as_f64().expect("bytes") / 4096.0;
    assert!((0.95..1.15).contains(&(used / PAGES)), "{used} pages");
    assert_eq!(found["forecast"]["is_measured"], true, "{found}");
    assert_eq!(found["tried"].as_array().map(Vec::len), Some(3), "{found}");
    let times = found["curve"].as_array().expect("points").iter();
    let times =
        Vec::from_iter(times.map(|point| point["times_slower"].as_f64().expect("a number")));
    assert!(
        times[0] == 1.0 && times.iter().all(|&times| times >= 1.0),
        "{times:?}"
    );

    // The kept trace has the same curve. LRU in small is LRU; OPT misses less.
    let again = object(
        folder.path(),
        &[
            "size",
            "--json",
            "--from",
            "touches.fvt",
            "--compare",
            "lru,opt",
        ],
    );
    assert_eq!(again["sample"]["share"], found["sample"]["share"]);
    let lru = misses(&again, 0.5);
    assert!((lru - half).abs() <= 0.1 * half, "{lru} and {half}");
    for point in again["curve"].as_array().expect("points") {
        let by_policy = &point["misses_by_policy"];
        if let (Some(lru), Some(opt)) = (by_policy["lru"].as_u64(), by_policy["opt"].as_u64()) {
            assert!(opt <= lru, "{point}");
        }
    }
    assert_eq!(
        left(folder.path()),
        ["curve.svg", "cycle", "cycle.c", "touches.fvt"]
    );

    // A sentence for people.
    let text = printed(&flashvm(folder.path(), &["size", "--from", "touches.fvt"]));
    assert!(text.contains("references miss; it uses"), "{text}");
}

#[test]
fn bad_input() {
    let folder = folder();
    let refused = |args: &[&str], named: &[&str]| refused(folder.path(), args, named);
    refused(&["size"], &["PROGRAM"]);
    refused(&["size", "--from", "none.fvt"], &["none.fvt"]);
    refused(&["size", "--from", "none.fvt", "--", "true"], &["--from"]);
    refused(
        &["size", "--device-model", "tape", "--", "true"],
        &["'tape'"],
    );
    refused(&["size", "--ram", "many", "--", "true"], &["'many'"]);
    if can_page("size: bad_input") {
        refused(
            &["size", "--", "sh", "-c", "exit 3"],
            &["sh", "exit status: 3"],
        );
    }
    assert_eq!(left(folder.path()), Vec::<String>::new());
}
