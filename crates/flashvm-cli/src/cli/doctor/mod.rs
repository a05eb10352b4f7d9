//! `flashvm doctor`: what this machine supports, and how to enable the rest.
//!
//! The lines for people and the JSON show the same list of checks. Exit code 0: a fault mode and the store work.

mod userfaultfd;

use crate::cli::machine::{self, file_system_name, free_bytes, in_ram};
use crate::cli::options::FaultMode;
use crate::cli::refusal::Refusal;
use crate::cli::units::Size;
use flashvm::{Delivery, Features, probe_user_mode, probe_userfaultfd};
use rustix::io::Errno;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The least `vm.max_map_count` for large programs: the kernel's default.
const MAPS_MIN: u64 = 65530;
/// Mappings that suffice to reach hundreds of megabytes of scattered small pages without faults.
const OVERLAYS_WANTED: u32 = 1 << 20;
/// The features of userfaultfd that a mode cannot do without: their names, and the Linux that has them.
const WRITE_PROTECTION: (u64, &str, &str) = (Features::WRITE_PROTECT, "write-protection", "5.7");
const SIGBUS: (u64, &str, &str) = (Features::SIGBUS, "SIGBUS for faults", "4.14");
const EVENTS: (u64, &str, &str) = (
    Features::EVENT_FORK | Features::EVENTS,
    "events of forks and mappings",
    "4.11",
);
/// Remedy for a kernel without the system call.
const BUILD: &str =
    "run a kernel with CONFIG_USERFAULTFD, and allow the call in the container's seccomp profile";
/// Remedy for a forbidden userfaultfd.
const ALLOW: &str = "set sysctl vm.unprivileged_userfaultfd=1, or allow access to /dev/userfaultfd, or grant CAP_SYS_PTRACE";
/// Remedy for a container profile that forbids the system call.
const ALLOW_CALL: &str = "allow userfaultfd in the container's seccomp profile (docker run --security-opt seccomp=PROFILE.json)";
/// Remedy for missing Syscall User Dispatch.
const GUARD: &str = "run Linux 5.11 or later on x86-64, or use --fault handler";
/// Remedy for missing guard regions.
const REGIONS: &str =
    "run Linux 6.15 or later, or allow userfaultfd in the container's seccomp profile";
/// Remedy for missing fork events.
const ALLOW_FORK: &str =
    "run as root, or grant CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE)";

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// Works in full.
    Good,
    /// Works, but slower or only for some programs.
    Limited,
    /// Forbidden or absent; the fault modes show whether programs can run nevertheless.
    Missing,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    value: String,
    /// How to enable what is limited or missing.
    remedy: Option<String>,
}

#[derive(Debug, Serialize)]
struct Modes {
    handler: bool,
    inline: bool,
    /// Whether `--fault protect` works.
    protect: bool,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    checks: Vec<Check>,
    fault_modes: Modes,
    works: bool,
}

fn good(name: &'static str, value: impl Into<String>) -> Check {
    Check {
        name,
        verdict: Verdict::Good,
        value: value.into(),
        remedy: None,
    }
}

fn bad(
    name: &'static str,
    verdict: Verdict,
    value: impl Into<String>,
    remedy: impl Into<String>,
) -> Check {
    Check {
        name,
        verdict,
        value: value.into(),
        remedy: Some(remedy.into()),
    }
}

/// Chooses the delivery of faults: as asked, or with `auto` the first that works here. `no_move`: the run does without
/// UFFDIO_MOVE.
pub(crate) fn choose_delivery(asked: FaultMode, no_move: bool) -> Result<Delivery, Refusal> {
    match asked {
        FaultMode::Inline => inline_mode().map(|()| Delivery::Inline),
        FaultMode::Handler => handler_mode(no_move).map(|()| Delivery::Handler),
        FaultMode::Protect if no_move => Err(Refusal::new(
            "--no-move is about userfaultfd, which --fault protect does without: leave one of them out",
        )),
        FaultMode::Protect => protect_mode().map(|()| Delivery::Protect),
        FaultMode::Auto => inline_mode().map(|()| Delivery::Inline).or_else(|why| {
            if !no_move && protect_mode().is_ok() {
                Ok(Delivery::Protect)
            } else if handler_mode(no_move).is_ok() {
                Ok(Delivery::Handler)
            } else {
                Err(why)
            }
        }),
    }
}

/// Checks the mode without userfaultfd.
fn protect_mode() -> Result<(), Refusal> {
    flashvm::probe_guard_regions().map_err(|e| {
        Refusal::new(format!(
            "this kernel has no guard regions in shared memory ({e}), which --fault protect needs: {REGIONS}"
        ))
    })?;
    guarded()
}

/// Refuses a kernel without one of these features.
fn need(features: Features, needed: &[(u64, &str, &str)]) -> Result<(), Refusal> {
    let lacking = needed.iter().find(|(bits, ..)| !features.has(*bits));
    lacking.map_or(Ok(()), |(_, name, since)| {
        Err(Refusal::new(format!(
            "this kernel's userfaultfd has no {name}: run Linux {since} or later"
        )))
    })
}

/// Checks inline mode; the error says why it cannot work here.
fn inline_mode() -> Result<(), Refusal> {
    match probe_user_mode() {
        Ok(features) => need(features, &[WRITE_PROTECTION, SIGBUS]).and_then(|()| guarded()),
        Err(Errno::PERM | Errno::ACCESS) => Err(Refusal::new(format!(
            "userfaultfd is not permitted: {ALLOW_CALL}"
        ))),
        Err(e) => Err(Refusal::new(format!(
            "userfaultfd is missing ({e}): {BUILD}"
        ))),
    }
}

fn guarded() -> Result<(), Refusal> {
    if flashvm::guard::can_guard() {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "this kernel has no Syscall User Dispatch, which inline and protect mode need: {GUARD}"
    )))
}

/// Checks handler mode; the error says why it cannot work here.
fn handler_mode(no_move: bool) -> Result<(), Refusal> {
    match probe_userfaultfd() {
        Ok(features) => need(features, &[WRITE_PROTECTION, EVENTS])
            .and_then(|()| moved(!no_move && features.has(Features::MOVE)))
            .and_then(|()| traced()),
        Err(Errno::PERM | Errno::ACCESS) => Err(Refusal::new(format!(
            "userfaultfd is not permitted: {ALLOW}"
        ))),
        Err(e) => Err(Refusal::new(format!(
            "userfaultfd is missing ({e}): {BUILD}"
        ))),
    }
}

fn moved(moves: bool) -> Result<(), Refusal> {
    if moves {
        return Ok(());
    }
    Err(Refusal::new(
        "handler mode needs pages to be moved (UFFDIO_MOVE), otherwise memory under direct I/O \
         looks idle: run Linux 6.8 or later, or use --fault inline",
    ))
}

fn traced() -> Result<(), Refusal> {
    if machine::may_trace() {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "userfaultfd gives no fork events without CAP_SYS_PTRACE: {ALLOW_FORK}"
    )))
}

/// Makes all checks and prints the report. The exit code is 1 if no program can be run.
pub(crate) fn doctor(flash: Option<&Path>, json: bool) -> Result<ExitCode, Refusal> {
    let report = report(flash);
    if json {
        let json = serde_json::to_string(&report)
            .map_err(|e| Refusal::new(format!("the report cannot be written: {e}")))?;
        println!("{json}");
    } else {
        print_lines(&report);
    }
    Ok(if report.works {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn report(flash: Option<&Path>) -> DoctorReport {
    let features = probe_userfaultfd().or_else(|_| probe_user_mode());
    let (handler, inline) = (handler_mode(false).is_ok(), inline_mode().is_ok());
    let protect = protect_mode().is_ok();
    let mut checks = vec![kernel()];
    checks.extend(userfaultfd::checks(&features));
    checks.extend([io_uring(), maps(), small_pages(inline || protect)]);
    checks.extend([overcommit(), address_space()]);
    let mut flash = flash_path(flash);
    let store = flash.iter().all(|check| check.verdict != Verdict::Missing);
    checks.append(&mut flash);
    DoctorReport {
        checks,
        fault_modes: Modes {
            handler,
            inline,
            protect,
        },
        works: (handler || inline || protect) && store,
    }
}

fn kernel() -> Check {
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

fn io_uring() -> Check {
    let slower = "without it, reads and writes take a thread each";
    match machine::io_uring() {
        Ok(()) => good("io_uring", "works"),
        Err(e) => {
            let disabled = machine::number(Path::new("/proc/sys/kernel/io_uring_disabled"));
            let remedy = match disabled {
                Some(1 | 2) => format!("as root: sysctl -w kernel.io_uring_disabled=0 ({slower})"),
                _ => format!("allow io_uring_* in the container's seccomp profile ({slower})"),
            };
            bad("io_uring", Verdict::Limited, e.to_string(), remedy)
        }
    }
}

fn maps() -> Check {
    match machine::number(Path::new("/proc/sys/vm/max_map_count")) {
        Some(count) if count >= MAPS_MIN => good("vm.max_map_count", count.to_string()),
        Some(count) => bad(
            "vm.max_map_count",
            Verdict::Limited,
            count.to_string(),
            format!("as root: sysctl -w vm.max_map_count={MAPS_MIN}"),
        ),
        None => good("vm.max_map_count", "unknown"),
    }
}

/// How many mappings `--granularity 512` can have here.
fn small_pages(inline: bool) -> Check {
    const NAME: &str = "small pages";
    if !inline {
        return bad(
            NAME,
            Verdict::Limited,
            "no inline mode",
            "--granularity 512 needs it: see above",
        );
    }
    let allowed = flashvm::overlays_allowed();
    let most = flashvm::overlays_most(allowed);
    let value = format!(
        "{most} of {allowed} mappings: this many scattered pages of 512 bytes need no fault; neighbours \
         count as one"
    );
    if allowed < OVERLAYS_WANTED {
        let remedy = format!("as root, for more: sysctl -w vm.max_map_count={OVERLAYS_WANTED}");
        bad(NAME, Verdict::Limited, value, remedy)
    } else {
        good(NAME, value)
    }
}

fn overcommit() -> Check {
    match machine::number(Path::new("/proc/sys/vm/overcommit_memory")) {
        Some(2) => bad(
            "vm.overcommit_memory",
            Verdict::Limited,
            "2",
            "as root: sysctl -w vm.overcommit_memory=0, or the address range for paged memory may be refused",
        ),
        Some(value) => good("vm.overcommit_memory", value.to_string()),
        None => good("vm.overcommit_memory", "unknown"),
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

fn flash_path(given: Option<&Path>) -> Vec<Check> {
    let path = match given.map_or_else(machine::temporary_folder, |path| Ok(PathBuf::from(path))) {
        Ok(path) => path,
        Err(refusal) => {
            return vec![bad(
                "flash path",
                Verdict::Missing,
                "none",
                refusal.to_string(),
            )];
        }
    };
    let shown = path.display();
    let statfs = match rustix::fs::statfs(&path) {
        Ok(statfs) => statfs,
        Err(e) => {
            let remedy = "name a folder, an empty file or a block device with --flash";
            return vec![bad(
                "flash path",
                Verdict::Missing,
                format!("{shown}: {e}"),
                remedy,
            )];
        }
    };
    if !path.is_dir() {
        return vec![good(
            "flash path",
            format!("{shown}: checked when a run opens it"),
        )];
    }
    let value = format!("{shown} on {}", file_system_name(&statfs));
    if in_ram(&statfs) {
        let remedy = "tmpfs is RAM: name a folder on a disk with --flash";
        return vec![bad("flash path", Verdict::Missing, value, remedy)];
    }
    vec![
        good("flash path", value),
        good(
            "free space",
            format!("{} at {shown}", Size(free_bytes(&statfs))),
        ),
        match crate::cli::store::open(&path, 0, Some(Size(4096))) {
            Ok(_) => good("direct I/O", format!("works at {shown}")),
            Err(refusal) => bad(
                "direct I/O",
                Verdict::Missing,
                refusal.to_string(),
                "name a folder on a local disk with --flash",
            ),
        },
    ]
}

fn print_lines(report: &DoctorReport) {
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let paint = |verdict: Verdict| {
        let (text, colour) = match verdict {
            Verdict::Good => ("ok", 32),
            Verdict::Limited => ("limited", 33),
            Verdict::Missing => ("missing", 31),
        };
        if colours {
            format!("\x1b[{colour}m{text:<8}\x1b[0m")
        } else {
            format!("{text:<8}")
        }
    };
    for check in &report.checks {
        println!(
            "{} {:<28} {}",
            paint(check.verdict),
            check.name,
            check.value
        );
        if let Some(remedy) = &check.remedy {
            println!("{:9}{:<28} -> {remedy}", "", "");
        }
    }
    let modes = [
        (
            report.fault_modes.inline,
            "fault mode inline",
            "the faulting thread resolves its faults; system calls are intercepted",
        ),
        (
            report.fault_modes.protect,
            "fault mode protect",
            "the same without userfaultfd",
        ),
        (
            report.fault_modes.handler,
            "fault mode handler",
            "a pager thread resolves faults",
        ),
    ];
    for (works, name, what) in modes {
        let verdict = if works {
            Verdict::Good
        } else {
            Verdict::Missing
        };
        println!("{} {name:<28} {what}", paint(verdict));
    }
    if report.works {
        println!("\nPrograms can be run: flashvm run --ram SIZE -- PROGRAM [ARGS]...");
    } else {
        println!("\nPrograms cannot be run here: enable what is missing above.");
    }
}
