//! Mirrors (`--flash mirror:A,B`): sides that are killed, come back, are slow, silent, wrong, or both gone.

use super::failures::told;
use super::servers::{Kit, numbers};
use super::support::{Folder, children};
use super::{EXPORT, LIMIT, Outcome, compiled, ready, run, torture};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Reads answered by both sides together that make a choice of sides visible.
const READS_MIN: u64 = 200;

fn mirror(a: &str, b: &str) -> String {
    format!("mirror:{a},{b}")
}

/// The reads that each side answered.
fn reads(outcome: &Outcome) -> [u64; 2] {
    let (_, mirror) = outcome.stats.split_once("\"mirror\":{").expect("a mirror");
    numbers(mirror, "reads").try_into().expect("two numbers")
}

/// The longest fault, in seconds.
fn longest(outcome: &Outcome) -> f64 {
    let (_, after) = outcome
        .stats
        .rsplit_once("\"fault_latency_us\":")
        .expect("latencies");
    let (_, after) = after.split_once("\"max\":").expect("a maximum");
    let number = after.split([',', '}']).next().expect("a number");
    number.parse::<f64>().expect("a number") / 1e6
}

/// A program that fills memory, creates the file `ready`, reads its memory until there is a file `go`, and once more. It
/// creates `rebuilt` once the run has said that a side is up to date.
const READS_AGAIN: &str = "
import os, sys, hashlib
folder = sys.argv[1]
data = bytearray(os.urandom(24 << 20))
right = hashlib.sha1(data).hexdigest()
open(folder + '/ready', 'w').close()
while not os.path.exists(folder + '/go'):
    assert hashlib.sha1(data).hexdigest() == right
    if 'is up to date again' in open('/proc/self/fd/2').read():
        open(folder + '/rebuilt', 'w').close()
assert hashlib.sha1(data).hexdigest() == right
print('all bytes are right')
";

/// Runs that program, and `meanwhile` while it reads.
fn reading(test: &str, flash: &str, options: &[&str], meanwhile: impl FnOnce(&Path)) -> Outcome {
    told(test, flash, options, READS_AGAIN, meanwhile)
}

fn reads_right(test: &str, outcome: Outcome) -> Outcome {
    let outcome = outcome.expect_success(test);
    assert_eq!(outcome.stdout, "all bytes are right\n");
    assert_eq!(outcome.stat("pages_lost"), 0, "{}", outcome.stats);
    outcome
}

#[test]
fn torture_outlives_a_side_that_is_killed() {
    let test = "torture_outlives_a_side_that_is_killed";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    // Before the clock runs.
    compiled("torture");
    for side in 0..2 {
        let mut kits = [
            Kit::start(&["memory", EXPORT]),
            Kit::start(&["memory", EXPORT]),
        ];
        let flash = mirror(&kits[0].uri(), &kits[1].uri());
        let lives = kits[1 - side].uri();
        scope(|scope| {
            let run = scope.spawn(|| torture(test, &flash, &[], "rewrite,fork", "1"));
            sleep(Duration::from_millis(700));
            kits[side].kill();
            assert!(!run.is_finished(), "killed too late");
            let outcome = run.join().expect("the run");
            let told = format!("; the run goes on with {lives}");
            assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
            assert_eq!(outcome.stat("sides_lost"), 1, "{}", outcome.stats);
            assert!(longest(&outcome) < 2.0, "{}", outcome.stats);
        });
    }
}

/// Waits until the program of [`reading`] hears that a side is up to date.
fn wait_until_rebuilt(folder: &Path) {
    let rebuilt = folder.join("rebuilt");
    children::wait_until("the side is rebuilt", LIMIT / 2, || rebuilt.exists());
}

/// One side is killed and comes back empty; then the other is killed, for good.
#[test]
fn a_side_that_comes_back_empty_is_rebuilt_and_serves_alone() {
    let test = "a_side_that_comes_back_empty_is_rebuilt_and_serves_alone";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let mut a = Kit::with_file(256 << 20);
    let mut b = Kit::start(&["memory", EXPORT]);
    let flash = mirror(&a.uri(), &b.uri());
    let outcome = reading(test, &flash, &[], |folder| {
        a.kill();
        let data = File::create(a.data()).expect("the file, without its bytes");
        data.set_len(256 << 20).expect("the file");
        a.restart();
        wait_until_rebuilt(folder);
        b.kill();
        // The program reads all its memory from the other side.
        sleep(Duration::from_secs(1));
    });
    let outcome = reads_right(test, outcome);
    for told in [
        " answers again, and is brought up to date",
        " is up to date again: ",
    ] {
        assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
    }
    assert_eq!(outcome.stat("sides_lost"), 2, "{}", outcome.stderr);
    assert!(outcome.stat("resynced_bytes") > 12 << 20);
}

#[test]
fn a_slow_side_is_left_to_itself() {
    let test = "a_slow_side_is_left_to_itself";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let slow = Kit::start(&["--filter=delay", "memory", EXPORT, "rdelay=10ms"]);
    let fast = Kit::start(&["memory", EXPORT]);
    for slow_is_first in [true, false] {
        let flash = match slow_is_first {
            true => mirror(&slow.uri(), &fast.uri()),
            false => mirror(&fast.uri(), &slow.uri()),
        };
        let outcome = reading(test, &flash, &[], |_| sleep(Duration::from_secs(2)));
        let outcome = reads_right(test, outcome);
        let [a, b] = reads(&outcome);
        let (slow, fast) = if slow_is_first { (a, b) } else { (b, a) };
        assert!(
            fast > READS_MIN && slow < fast / 20,
            "{slow} and {fast} reads"
        );
        assert_eq!(outcome.stat("sides_lost"), 0);
    }
}

/// A side that stands still: reads go to the other one at once, writes wait until it counts as lost.
#[test]
fn a_side_that_is_silent_is_lost_in_time() {
    let test = "a_side_that_is_silent_is_lost_in_time";
    if !ready(test, &["cc", "nbdkit", "kill"]) {
        return;
    }
    compiled("torture");
    let kits = [
        Kit::start(&["memory", EXPORT]),
        Kit::start(&["memory", EXPORT]),
    ];
    let flash = mirror(&kits[0].uri(), &kits[1].uri());
    scope(|scope| {
        let options = ["--flash-timeout", "1s"];
        let run = scope.spawn(move || torture(test, &flash, &options, "rewrite", "4"));
        sleep(Duration::from_millis(700));
        kits[0].signal("STOP");
        assert!(!run.is_finished(), "stopped too late");
        let outcome = run.join().expect("the run");
        kits[0].signal("CONT");
        assert!(
            outcome.stderr.contains(": no answer; the run goes on"),
            "{}",
            outcome.stderr
        );
        assert!(longest(&outcome) < 2.0, "{} s", longest(&outcome));
    });
}

#[test]
fn wrong_bytes_of_a_side_are_mended() {
    let test = "wrong_bytes_of_a_side_are_mended";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let wrong = Kit::with_file(256 << 20);
    // Reads go to the other side.
    let right = Kit::start(&["--filter=delay", "memory", EXPORT, "rdelay=2ms"]);
    let flash = mirror(&wrong.uri(), &right.uri());
    let outcome = reading(test, &flash, &[], |_| {
        let data = File::options()
            .write(true)
            .open(wrong.data())
            .expect("the file");
        for at in (0..32 << 20).step_by(64 * 4096) {
            data.write_all_at(b"other bytes", at).expect("a write");
        }
        sleep(Duration::from_secs(2));
    });
    let outcome = reads_right(test, outcome);
    assert!(outcome.stat("mended") > 0, "{}", outcome.stats);
    assert!(outcome.stat("resynced_bytes") > 0, "{}", outcome.stats);
}

#[test]
fn both_sides_gone_end_the_program_with_a_reason() {
    let test = "both_sides_gone_end_the_program_with_a_reason";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let mut kits = [
        Kit::start(&["memory", EXPORT]),
        Kit::start(&["memory", EXPORT]),
    ];
    let flash = mirror(&kits[0].uri(), &kits[1].uri());
    let mut begun = None;
    let outcome = reading(test, &flash, &["--flash-timeout", "2s"], |_| {
        kits.iter_mut().for_each(Kit::kill);
        begun = Some(Instant::now());
    });
    let took = begun.expect("both were killed").elapsed();
    assert_eq!(
        outcome.shell_code(),
        128 + libc::SIGABRT,
        "{}",
        outcome.stderr
    );
    let reason = "has not answered for 2 s: no connection: connection refused";
    assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
    assert!(outcome.stats.contains(reason), "{}", outcome.stats);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// Sides in folders of this machine, with programs that execute others.
#[test]
fn a_shell_sorts_with_sides_here() {
    let test = "a_shell_sorts_with_sides_here";
    if !ready(test, &["nbdkit", "sort"]) {
        return;
    }
    let kit = Kit::start(&["memory", EXPORT]);
    let (here, there) = (Folder::new(), Folder::new());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sort.sh");
    let path = here.path().display().to_string();
    let other = there.path().display().to_string();
    let flashes = [
        mirror(&path, &kit.uri()),
        mirror(&kit.uri(), &path),
        mirror(&path, &other),
    ];
    for flash in flashes {
        let outcome = run(test, &flash, &[], &["sh", script, "200000"]).expect_success(test);
        assert!(outcome.stdout.contains("sorted and checked: 200000 lines"));
        assert!(outcome.stat("pages_in") > 1000, "{}", outcome.stderr);
        assert_eq!(outcome.stat("sides_lost"), 0, "{}", outcome.stderr);
        let left = fs::read_dir(here.path()).expect("the folder");
        assert_eq!(left.count(), 0, "left behind");
    }
}

/// A side is killed for good, the spare takes its place; then the other side is killed, too.
#[test]
fn a_spare_takes_the_place_of_a_side_that_stays_away() {
    let test = "a_spare_takes_the_place_of_a_side_that_stays_away";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    for lost in 0..2 {
        let mut kits = [
            Kit::start(&["memory", EXPORT]),
            Kit::start(&["memory", EXPORT]),
        ];
        let spare = Kit::start(&["memory", EXPORT]);
        let flash = format!(
            "{},spare={}",
            mirror(&kits[0].uri(), &kits[1].uri()),
            spare.uri()
        );
        let outcome = reading(test, &flash, &["--flash-timeout", "1s"], |folder| {
            kits[lost].kill();
            wait_until_rebuilt(folder);
            kits[1 - lost].kill();
        });
        let outcome = reads_right(test, outcome);
        let told = format!("stays away: {} takes its place", spare.uri());
        assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("is up to date again"),
            "{}",
            outcome.stderr
        );
        assert_eq!(outcome.stat("sides_lost"), 2, "{}", outcome.stats);
    }
}
