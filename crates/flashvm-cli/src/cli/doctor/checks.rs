//! Checks of the kernel and its settings, besides userfaultfd.

use super::{Check, MAPS_MIN, OVERLAYS_WANTED, Verdict, bad, good};
use crate::cli::environment::{Environment, Need};
use crate::cli::machine;
use crate::cli::memory::{memory_limit, of_this_machine};
use crate::cli::options::Budget;
use crate::cli::units::Size;
use std::path::Path;

/// All of them. `in_thread`: faulting threads can resolve their faults; `io_uring_lacks`: see [`io_uring_lacks`].
pub(super) fn checks(
    place: &Environment,
    in_thread: bool,
    io_uring_lacks: Option<&(String, String)>,
) -> Vec<Check> {
    vec![
        proc(place),
        io_uring(io_uring_lacks),
        guard_regions(place),
        maps(place),
        small_pages(place, in_thread),
        overcommit(place),
        address_space(),
        memory(place),
    ]
}

pub(super) fn kernel() -> Check {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (5, 7) => bad(
            "kernel",
            Verdict::Missing,
            release,
            "run Linux 5.7 or later, the first with write-protection by userfaultfd",
        ),
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (6, 8) => bad(
            "kernel",
            Verdict::Limited,
            release,
            "Linux 6.8 or later evicts without copying (UFFDIO_MOVE)",
        ),
        _ => good("kernel", release),
    }
}

/// The kernel's pages, where they have another size than the pager's.
pub(super) fn page_bytes() -> Option<Check> {
    let refusal = machine::check_page_bytes().err()?;
    Some(bad(
        "pages",
        Verdict::Missing,
        Size(rustix::param::page_size() as u64).to_string(),
        refusal.to_string(),
    ))
}

/// Why io_uring does not work, and the remedy; `None`: it works.
pub(super) fn io_uring_lacks(place: &Environment) -> Option<(String, String)> {
    let error = machine::io_uring().err()?;
    let disabled = machine::number(Path::new("/proc/sys/kernel/io_uring_disabled"));
    let remedy = match disabled {
        Some(1 | 2) => format!("{}: sysctl -w kernel.io_uring_disabled=0", place.root()),
        _ => place.remedy(Need::Calls),
    };
    Some((error.to_string(), remedy))
}

fn io_uring(lacks: Option<&(String, String)>) -> Check {
    match lacks {
        None => good("io_uring", "works"),
        Some((error, remedy)) => {
            let remedy = format!("{remedy} (without it, io_submit or threads read and write)");
            bad("io_uring", Verdict::Limited, error, remedy)
        }
    }
}

/// How protect mode hides pages here.
fn guard_regions(place: &Environment) -> Check {
    match flashvm_live::probe_guard_regions() {
        Ok(()) => good("guard regions", "work"),
        Err(error) => bad(
            "guard regions",
            Verdict::Limited,
            error.to_string(),
            format!(
                "{}: run Linux 6.15 or later (without them protect mode hides pages by access rights, which takes \
                 mappings)",
                place.root()
            ),
        ),
    }
}

fn maps(place: &Environment) -> Check {
    match machine::number(Path::new("/proc/sys/vm/max_map_count")) {
        Some(count) if count >= MAPS_MIN => good("vm.max_map_count", count.to_string()),
        Some(count) => bad(
            "vm.max_map_count",
            Verdict::Limited,
            count.to_string(),
            format!("{}: sysctl -w vm.max_map_count={MAPS_MIN}", place.root()),
        ),
        None => good("vm.max_map_count", "unknown"),
    }
}

/// How many mappings `--granularity 512` can have here.
fn small_pages(place: &Environment, in_thread: bool) -> Check {
    const NAME: &str = "small pages";
    if !in_thread {
        return bad(
            NAME,
            Verdict::Limited,
            "neither inline nor protect mode",
            "--granularity 512 needs it: see above",
        );
    }
    let allowed = flashvm_live::mappings_allowed();
    let most = flashvm_live::mappings_most(allowed);
    let value = format!(
        "{most} of {allowed} mappings: this many scattered pages of 512 bytes need no fault; neighbours \
         count as one"
    );
    if allowed < OVERLAYS_WANTED {
        let remedy = format!(
            "{}, for more: sysctl -w vm.max_map_count={OVERLAYS_WANTED}",
            place.root()
        );
        bad(NAME, Verdict::Limited, value, remedy)
    } else {
        good(NAME, value)
    }
}

fn overcommit(place: &Environment) -> Check {
    match machine::number(Path::new("/proc/sys/vm/overcommit_memory")) {
        Some(2) => bad(
            "vm.overcommit_memory",
            Verdict::Limited,
            "2",
            format!(
                "{}: sysctl -w vm.overcommit_memory=0, or the address range for paged memory may be refused",
                place.root()
            ),
        ),
        Some(value) => good("vm.overcommit_memory", value.to_string()),
        None => good("vm.overcommit_memory", "unknown"),
    }
}

fn proc(place: &Environment) -> Check {
    match machine::check_proc(place) {
        Ok(()) => good("/proc", "mounted"),
        Err(_) => bad(
            "/proc",
            Verdict::Missing,
            "not mounted",
            place.remedy(Need::Proc),
        ),
    }
}

/// The memory limit, and what `--ram auto` makes of it.
fn memory(place: &Environment) -> Check {
    const NAME: &str = "memory limit";
    match memory_limit(&of_this_machine) {
        None => bad(NAME, Verdict::Limited, "unknown", place.remedy(Need::Proc)),
        Some(limit) => match Budget::Auto.bytes(&of_this_machine, place) {
            Ok(auto) => good(NAME, format!("{limit}; --ram auto is {}", Size(auto))),
            Err(refusal) => bad(
                NAME,
                Verdict::Limited,
                refusal.to_string(),
                place.remedy(Need::Memory),
            ),
        },
    }
}

fn address_space() -> Check {
    match rustix::process::getrlimit(rustix::process::Resource::As).current {
        None => good("RLIMIT_AS", "unlimited"),
        Some(bytes) => bad(
            "RLIMIT_AS",
            Verdict::Limited,
            Size(bytes).to_string(),
            "ulimit -v unlimited: paged memory is reserved as one large address range",
        ),
    }
}
