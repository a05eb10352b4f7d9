//! Checks of userfaultfd: its features here, and the ways to open one.

use super::{BUILD, Check, Verdict, bad, good, privilege};
use crate::cli::environment::{Environment, Need};
use crate::cli::machine;
use flashvm_live::Features;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// `UFFD_FEATURE_THREAD_ID`: a fault names its thread. Reported only.
const THREAD_ID: u64 = 1 << 8;

/// The checks; `features` is the result of opening a userfaultfd.
pub(super) fn checks(features: &Result<Features, Errno>, place: &Environment) -> Vec<Check> {
    let open = features.is_ok();
    let mut checks = found(features, place);
    checks.extend([
        device(open),
        sysctl(open, place),
        capability(place),
        seccomp(open, place),
    ]);
    checks
}

fn found(features: &Result<Features, Errno>, place: &Environment) -> Vec<Check> {
    let features = match features {
        Ok(features) => *features,
        Err(Errno::PERM | Errno::ACCESS) => {
            // User mode needs no privilege: a filter forbids the call.
            let remedy = privilege(place, false);
            return vec![bad(
                "userfaultfd",
                Verdict::Missing,
                "not permitted",
                remedy,
            )];
        }
        Err(e) => return vec![bad("userfaultfd", Verdict::Missing, e.to_string(), BUILD)],
    };
    // The report also lists unused features: they show what a later version could use here.
    let table = [
        (
            "MOVE",
            Features::MOVE,
            Verdict::Limited,
            "6.8; without it pages are evicted by copying, and there is no handler mode",
        ),
        (
            "WP",
            Features::WRITE_PROTECT,
            Verdict::Missing,
            "5.7; without it no program can be paged",
        ),
        (
            "POISON",
            Features::POISON,
            Verdict::Limited,
            "6.6; without it a page that is lost ends the process",
        ),
        (
            "SIGBUS",
            Features::SIGBUS,
            Verdict::Limited,
            "4.14; without it there is no inline mode",
        ),
        (
            "THREAD_ID",
            THREAD_ID,
            Verdict::Limited,
            "4.14; nothing uses it yet",
        ),
        (
            "events",
            Features::EVENTS,
            Verdict::Limited,
            "4.11; without it there is no handler mode",
        ),
    ];
    let there: Vec<&str> = table
        .iter()
        .filter(|(_, bit, _, _)| features.has(*bit))
        .map(|(name, ..)| *name)
        .collect();
    let lacking = table.iter().filter(|(_, bit, _, _)| !features.has(*bit));
    std::iter::once(good(
        "userfaultfd",
        format!("permitted, with {}", there.join(", ")),
    ))
    .chain(lacking.map(|(name, _, verdict, since)| {
        bad(
            "userfaultfd",
            *verdict,
            format!("{name} is lacking"),
            format!("needs Linux {since}"),
        )
    }))
    .collect()
}

/// The check of a closed way to a userfaultfd. `open`: another way works, so this one is not needed.
fn closed(name: &'static str, open: bool, value: &str, remedy: &str) -> Check {
    if open {
        good(name, format!("{value} (not needed here)"))
    } else {
        bad(name, Verdict::Missing, value, remedy)
    }
}

fn device(open: bool) -> Check {
    let path = "/dev/userfaultfd";
    match rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => good(path, "accessible"),
        Err(Errno::NOENT) => closed(path, open, "missing", "since Linux 6.1; or use the sysctl"),
        Err(e) => {
            let remedy = "as root: setfacl -m u:USER:rw /dev/userfaultfd";
            closed(path, open, &e.to_string(), remedy)
        }
    }
}

fn sysctl(open: bool, place: &Environment) -> Check {
    let name = "vm.unprivileged_userfaultfd";
    match machine::number(Path::new("/proc/sys/vm/unprivileged_userfaultfd")) {
        Some(1) => good(name, "1"),
        Some(value) => {
            let remedy = format!(
                "{}: sysctl -w vm.unprivileged_userfaultfd=1, for all users",
                place.root()
            );
            closed(name, open, &value.to_string(), &remedy)
        }
        None => closed(name, open, "missing", "since Linux 5.2"),
    }
}

fn capability(place: &Environment) -> Check {
    if machine::may_trace() {
        good("CAP_SYS_PTRACE", "held")
    } else {
        bad(
            "CAP_SYS_PTRACE",
            Verdict::Missing,
            "not held: no fork events",
            place.remedy(Need::Trace),
        )
    }
}

fn seccomp(open: bool, place: &Environment) -> Check {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))
        .map_or("unknown", str::trim);
    match mode {
        "0" => good("seccomp", "off"),
        _ if open => good("seccomp", "a filter is active, and lets userfaultfd pass"),
        _ => bad(
            "seccomp",
            Verdict::Missing,
            "a filter is active",
            place.remedy(Need::Calls),
        ),
    }
}
