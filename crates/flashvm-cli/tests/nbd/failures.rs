//! Servers that fail, are slow, die, come back, or come back without their data.

use super::servers::Kit;
use super::support::{Folder, children};
use super::{EXPORT, LIMIT, compiled, ready, run, torture};
use std::fs;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

#[test]
fn errors_of_the_server_are_hidden() {
    let test = "errors_of_the_server_are_hidden";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    let filter = ["--filter=error", "memory", EXPORT];
    let rates = ["error-pread-rate=0.5%", "error-pwrite-rate=1%", "error=EIO"];
    let kit = Kit::start(&[&filter[..], &rates].concat());
    let outcome = torture(test, &kit.uri(), &[], "rewrite", "0.1");
    assert!(outcome.stat("write_errors") > 0, "{}", outcome.stats);
}

#[test]
fn a_slow_server_is_waited_for() {
    let test = "a_slow_server_is_waited_for";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    let kit = Kit::start(&[
        "--filter=delay",
        "memory",
        EXPORT,
        "rdelay=3ms",
        "wdelay=3ms",
    ]);
    let options = ["--flash-timeout", "1s"];
    let outcome = torture(test, &kit.uri(), &options, "rewrite", "0.1");
    assert!(
        !outcome.stderr.contains("waiting for it"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_server_that_is_killed_and_started_again_loses_nothing() {
    let test = "a_server_that_is_killed_and_started_again_loses_nothing";
    if !ready(test, &["cc", "nbdkit"]) {
        return;
    }
    let mut kit = Kit::with_file(256 << 20);
    let uri = kit.uri();
    // The second time long enough for the program to be told.
    let outcome = torture_with_outages(test, &uri, [100, 1300], |gone| match gone {
        true => kit.kill(),
        false => kit.restart(),
    });
    let told = outcome
        .stderr
        .contains("connection refused; waiting for it");
    assert!(
        told && outcome.stderr.contains("answers again"),
        "{}",
        outcome.stderr
    );
}

/// Runs a part of the torture program, and calls `away(true)` and `away(false)` twice: its server goes for so many milliseconds, and
/// comes back.
pub(crate) fn torture_with_outages(
    test: &str,
    uri: &str,
    milliseconds: [u64; 2],
    mut away: impl FnMut(bool),
) -> super::Outcome {
    // Before the clock runs.
    compiled("torture");
    scope(|scope| {
        let run = scope.spawn(|| torture(test, uri, &[], "rewrite", "3"));
        let mut outages = 0;
        while outages < 2 && !run.is_finished() {
            sleep(Duration::from_millis(600));
            away(true);
            sleep(Duration::from_millis(milliseconds[outages]));
            away(false);
            outages += usize::from(!run.is_finished());
        }
        let outcome = run.join().expect("the run");
        assert_eq!(outages, 2, "outages while the program ran");
        outcome
    })
}

/// A program that fills memory, creates the file `ready`, waits for the file `go`, and reads its memory.
const FILLS_AND_READS: &str = "
import os, sys, time
folder = sys.argv[1]
data = bytearray(os.urandom(32 << 20))
open(folder + '/ready', 'w').close()
while not os.path.exists(folder + '/go'):
    time.sleep(0.01)
print(sum(data[::4096]))
";

/// Runs that program, and `meanwhile` while it waits.
pub(crate) fn filled(
    test: &str,
    flash: &str,
    options: &[&str],
    meanwhile: impl FnOnce(),
) -> super::Outcome {
    told(test, flash, options, FILLS_AND_READS, |_| meanwhile())
}

/// Runs a program that creates the file `ready` and waits for the file `go`, and `meanwhile` while it waits, with their
/// folder.
pub(crate) fn told(
    test: &str,
    flash: &str,
    options: &[&str],
    script: &str,
    meanwhile: impl FnOnce(&Path),
) -> super::Outcome {
    let folder = Folder::new();
    let path = folder.path().display().to_string();
    scope(|scope| {
        let program = ["python3", "-c", script, &path];
        let run = scope.spawn(move || run(test, flash, options, &program));
        let ready = folder.path().join("ready");
        children::wait_until("memory is full", LIMIT, || {
            ready.exists() || run.is_finished()
        });
        meanwhile(folder.path());
        fs::write(folder.path().join("go"), "").expect("a file");
        run.join().expect("the run")
    })
}

#[test]
fn a_server_that_stays_away_ends_the_program_with_a_reason() {
    let test = "a_server_that_stays_away_ends_the_program_with_a_reason";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let mut kit = Kit::start(&["memory", EXPORT]);
    let uri = kit.uri();
    let outcome = filled(test, &uri, &["--flash-timeout", "1s"], || kit.kill());
    assert_eq!(
        outcome.shell_code(),
        128 + libc::SIGABRT,
        "{}",
        outcome.stderr
    );
    let reason = "has not answered for 1 s: no connection: connection refused";
    assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
    assert!(outcome.stats.contains(reason), "{}", outcome.stats);
}

#[test]
fn a_server_that_comes_back_empty_is_found_out() {
    let test = "a_server_that_comes_back_empty_is_found_out";
    if !ready(test, &["python3", "nbdkit"]) {
        return;
    }
    let mut kit = Kit::start(&["memory", EXPORT]);
    let uri = kit.uri();
    let outcome = filled(test, &uri, &[], || {
        kit.kill();
        kit.restart();
    });
    assert_eq!(
        outcome.shell_code(),
        128 + libc::SIGBUS,
        "{}",
        outcome.stderr
    );
    assert!(outcome.stat("pages_lost") > 0, "{}", outcome.stats);
    assert!(outcome.stderr.contains("lost"), "{}", outcome.stderr);
}
