//! Tiers (`--flash tier:LOCAL,REMOTE`): what is in use comes to the local side, and remote sides that are killed.

use super::failures::{filled, told};
use super::servers::{Kit, numbers};
use super::support::Folder;
use super::{EXPORT, Outcome, compiled, ready, run, torture};
use std::fs;
use std::thread::{scope, sleep};
use std::time::Duration;

fn tier(here: &Folder, kit: &Kit) -> String {
    format!("tier:{},{}", here.path().display(), kit.uri())
}

/// Reads and writes of both sides.
fn requests(outcome: &Outcome) -> [Vec<u64>; 2] {
    let (_, tier) = outcome.stats.split_once("\"tier\":{").expect("a tier");
    [numbers(tier, "reads"), numbers(tier, "writes")]
}

#[test]
fn torture_with_a_small_local_side() {
    let test = "torture_with_a_small_local_side";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    let (here, kit) = (Folder::new(), Kit::start(&["memory", EXPORT]));
    let options = ["--flash-size", "4M"];
    let outcome = torture(test, &tier(&here, &kit), &options, "rewrite,fork", "2");
    let [reads, writes] = requests(&outcome);
    assert!(reads.iter().chain(&writes).all(|&requests| requests > 0));
    assert!(outcome.stat("demoted_bytes") > 0, "{}", outcome.stats);
    assert_eq!(outcome.stat("pages_lost"), 0, "{}", outcome.stats);
    let left = fs::read_dir(here.path()).expect("the folder");
    assert_eq!(left.count(), 0, "left behind");
}

#[test]
fn a_shell_sorts_with_most_of_its_memory_far_away() {
    let test = "a_shell_sorts_with_most_of_its_memory_far_away";
    if !ready(test, &["nbdkit", "sort"]) {
        return;
    }
    let (here, kit) = (Folder::new(), Kit::start(&["memory", EXPORT]));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sort.sh");
    let (flash, options) = (tier(&here, &kit), ["--flash-size", "8M"]);
    let outcome = run(test, &flash, &options, &["sh", script, "200000"]).expect_success(test);
    assert!(outcome.stdout.contains("sorted and checked: 200000 lines"));
    assert!(outcome.stat("pages_in") > 1000, "{}", outcome.stderr);
}

/// A program fills 40 MiB, then uses 12 MiB of it again and again.
#[test]
fn what_is_in_use_comes_to_the_local_side() {
    const USES_A_PART: &str = "
import os, sys, time
data = bytearray(os.urandom(40 << 20))
part = memoryview(data)[:12 << 20]
end = time.time() + 4
while time.time() < end:
    assert sum(part[::4096]) >= 0
print('done')
";
    let test = "what_is_in_use_comes_to_the_local_side";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let here = Folder::new();
    let kit = Kit::start(&["--filter=delay", "memory", EXPORT, "rdelay=2ms"]);
    let options = ["--flash-size", "24M"];
    let program = ["python3", "-c", USES_A_PART];
    let outcome = run(test, &tier(&here, &kit), &options, &program).expect_success(test);
    let [reads, _] = requests(&outcome);
    assert!(outcome.stat("promoted_bytes") > 0, "{}", outcome.stats);
    assert!(reads[0] > reads[1], "{reads:?}");
}

#[test]
fn a_remote_side_that_is_killed_and_started_again_loses_nothing() {
    let test = "a_remote_side_that_is_killed_and_started_again_loses_nothing";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    // Before the clock runs.
    compiled("torture");
    let (here, mut kit) = (Folder::new(), Kit::with_file(256 << 20));
    let flash = tier(&here, &kit);
    let options = ["--flash-size", "4M"];
    scope(|scope| {
        let run = scope.spawn(|| torture(test, &flash, &options, "rewrite", "3"));
        for _ in 0..2 {
            sleep(Duration::from_millis(700));
            kit.kill();
            sleep(Duration::from_millis(300));
            kit.restart();
        }
        assert!(!run.is_finished(), "killed too late");
        let outcome = run.join().expect("the run");
        assert_eq!(outcome.stat("pages_lost"), 0, "{}", outcome.stats);
    });
}

#[test]
fn a_remote_side_that_stays_away_loses_its_pages() {
    let test = "a_remote_side_that_stays_away_loses_its_pages";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let (here, mut kit) = (Folder::new(), Kit::start(&["memory", EXPORT]));
    let options = ["--flash-size", "8M", "--flash-timeout", "1s"];
    let outcome = filled(test, &tier(&here, &kit), &options, || kit.kill());
    assert_eq!(
        outcome.shell_code(),
        128 + libc::SIGBUS,
        "{}",
        outcome.stderr
    );
    let said = "connection refused; the run goes on without the pages that are there";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    assert!(outcome.stat("pages_lost") > 0, "{}", outcome.stats);
}

/// All pages fit the local side: the remote one is not missed.
#[test]
fn a_program_outlives_a_remote_side_that_it_does_not_need() {
    const READS: &str = "
import hashlib, os, sys, time
folder = sys.argv[1]
data = bytearray(os.urandom(24 << 20))
right = hashlib.sha1(data).hexdigest()
open(folder + '/ready', 'w').close()
while not os.path.exists(folder + '/go'):
    time.sleep(0.01)
for _ in range(3):
    assert hashlib.sha1(data).hexdigest() == right
print('all bytes are right')
";
    let test = "a_program_outlives_a_remote_side_that_it_does_not_need";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let (here, mut kit) = (Folder::new(), Kit::start(&["memory", EXPORT]));
    let options = ["--flash-size", "128M", "--flash-timeout", "1s"];
    let outcome = told(test, &tier(&here, &kit), &options, READS, |_| kit.kill());
    let outcome = outcome.expect_success(test);
    assert_eq!(outcome.stdout, "all bytes are right\n");
    assert_eq!(outcome.stat("pages_lost"), 0, "{}", outcome.stats);
}
