//! Stripes (`--flash stripe:A,B[,C...]`): all sides are used, and sides that are killed, come back, or stay away.

use super::failures::filled;
use super::servers::{Kit, numbers};
use super::support::Folder;
use super::{EXPORT, Outcome, compiled, ready, run, torture};
use std::fs;
use std::thread::{scope, sleep};
use std::time::Duration;

fn stripe(kits: &[Kit]) -> String {
    let uris: Vec<_> = kits.iter().map(Kit::uri).collect();
    format!("stripe:{}", uris.join(","))
}

fn kits(count: usize) -> Vec<Kit> {
    let words = ["memory", EXPORT];
    (0..count).map(|_| Kit::start(&words)).collect()
}

/// Requests that each side answered.
fn requests(outcome: &Outcome) -> Vec<u64> {
    let (_, sides) = outcome.stats.split_once("\"stripe\":{").expect("a stripe");
    let reads = numbers(sides, "reads");
    let writes = numbers(sides, "writes");
    reads.iter().zip(writes).map(|(a, b)| a + b).collect()
}

#[test]
fn torture_over_three_servers_uses_all() {
    let test = "torture_over_three_servers_uses_all";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    let kits = kits(3);
    let outcome = torture(test, &stripe(&kits), &[], "rewrite,fork", "0.3");
    let requests = requests(&outcome);
    let (most, least) = (requests.iter().max(), requests.iter().min());
    assert!(
        least.expect("sides") * 4 > *most.expect("sides"),
        "{requests:?}"
    );
}

#[test]
fn a_shell_sorts_with_a_folder_and_a_server() {
    let test = "a_shell_sorts_with_a_folder_and_a_server";
    if !ready(test, &["nbdkit", "sort"]) {
        return;
    }
    let (here, there) = (Folder::new(), Folder::new());
    let kit = Kit::start(&["memory", EXPORT]);
    let path = here.path().display().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sort.sh");
    let sides = [
        format!("stripe:{path},{}", kit.uri()),
        format!("stripe:{path},{}", there.path().display()),
    ];
    for flash in sides {
        let outcome = run(test, &flash, &[], &["sh", script, "200000"]).expect_success(test);
        assert!(outcome.stdout.contains("sorted and checked: 200000 lines"));
        assert!(outcome.stat("pages_in") > 1000, "{}", outcome.stderr);
        assert!(requests(&outcome).iter().all(|&requests| requests > 0));
        let left = fs::read_dir(here.path()).expect("the folder");
        assert_eq!(left.count(), 0, "left behind");
    }
}

#[test]
fn a_side_that_is_killed_and_started_again_loses_nothing() {
    let test = "a_side_that_is_killed_and_started_again_loses_nothing";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    // Before the clock runs.
    compiled("torture");
    let mut kits = vec![Kit::with_file(256 << 20), Kit::start(&["memory", EXPORT])];
    let flash = stripe(&kits);
    scope(|scope| {
        let run = scope.spawn(|| torture(test, &flash, &[], "rewrite", "2"));
        sleep(Duration::from_millis(600));
        kits[0].kill();
        sleep(Duration::from_millis(300));
        kits[0].restart();
        assert!(!run.is_finished(), "killed too late");
        let outcome = run.join().expect("the run");
        assert_eq!(outcome.stat("given_up"), 0, "{}", outcome.stats);
    });
}

#[test]
fn a_side_that_stays_away_loses_its_pages() {
    let test = "a_side_that_stays_away_loses_its_pages";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let mut kits = kits(2);
    let flash = stripe(&kits);
    let outcome = filled(test, &flash, &["--flash-timeout", "1s"], || kits[0].kill());
    assert_eq!(
        outcome.shell_code(),
        128 + libc::SIGBUS,
        "{}",
        outcome.stderr
    );
    let told = "connection refused; the run goes on without the pages that are there";
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
    assert_eq!(outcome.stat("given_up"), 1, "{}", outcome.stats);
    assert!(outcome.stat("pages_lost") > 0, "{}", outcome.stats);
}

#[test]
fn a_side_that_comes_back_empty_is_found_out() {
    let test = "a_side_that_comes_back_empty_is_found_out";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let mut kits = kits(2);
    let flash = stripe(&kits);
    let outcome = filled(test, &flash, &[], || {
        kits[1].kill();
        kits[1].restart();
    });
    assert_eq!(
        outcome.shell_code(),
        128 + libc::SIGBUS,
        "{}",
        outcome.stderr
    );
    assert!(outcome.stat("pages_lost") > 0, "{}", outcome.stats);
}
