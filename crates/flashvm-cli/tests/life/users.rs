//! Programs that change their user, or give up capabilities, and execute others: all are paged.

use super::children::{self, Bounded as _};
use super::{Bench, fault_mode, skipped};
use std::process::Output;

/// All users may run it.
const PERL: &str = "/usr/bin/perl";
/// Fills 96 MiB, in a budget of 64, and tells its user and group.
const FILL: &str = r#"my $x = "x" x (96 << 20); printf("%d %d %d\n", length $x, $<, $( + 0);"#;

fn bench(test: &str) -> Option<Bench> {
    if !rustix::process::geteuid().is_root() {
        skipped(test, "needs root to become another user");
        return None;
    }
    if fault_mode() == "handler" {
        skipped(
            test,
            "handler mode needs CAP_SYS_PTRACE, also after the change",
        );
        return None;
    }
    Bench::new(test)
}

/// Checks that a program has printed `expected`, and was paged.
fn check(output: &Output, expected: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected);
    assert!(!errors.contains("ld.so"), "{errors}");
    let faults = errors
        .lines()
        .find_map(|line| line.trim().strip_prefix("faults"));
    let total = faults
        .and_then(|line| line.split(':').next())
        .expect("faults");
    let total: u64 = total.trim().replace(',', "").parse().expect("a number");
    assert!(total > 1000, "{errors}");
}

#[test]
fn a_program_becomes_another_user_and_executes_one() {
    let Some(bench) = bench("a_program_becomes_another_user_and_executes_one") else {
        return;
    };
    let become_nobody = "$( = $) = '65534 65534'; $< = $> = 65534;";
    let script = format!("{become_nobody} exec '{PERL}', '-e', q~{FILL}~;");
    let output = bench.run(&[], &[PERL, "-e", &script]);
    check(&output, &format!("{} 65534 65534", 96 << 20));
}

/// `setpriv` keeps its capabilities over the change of its user, and then changes its group. The C library makes all
/// threads do the same. The kernel refuses the pager's threads, which must not make the C library abort.
#[test]
fn capabilities_are_kept_over_a_change_of_user() {
    let test = "capabilities_are_kept_over_a_change_of_user";
    let Some(bench) = bench(test) else {
        return;
    };
    let there = children::command("setpriv")
        .arg("--version")
        .output_in_time();
    if there.is_err() {
        skipped(test, "needs setpriv");
        return;
    }
    let to_nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let program = [&["setpriv"], &to_nobody[..], &[PERL, "-e", FILL]].concat();
    let output = bench.run(&[], &program);
    check(&output, &format!("{} 65534 65534", 96 << 20));
    // A child that may no longer look into /proc of the supervisor.
    let script = format!("setpriv --bounding-set -all {PERL} -e '{FILL}'; true");
    let output = bench.run(&[], &["sh", "-c", &script]);
    check(&output, &format!("{} 0 0", 96 << 20));
}
