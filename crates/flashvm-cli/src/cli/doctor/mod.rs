//! `flashvm doctor`: whether programs run here and how fast, what would make them faster, and all checks of the machine.
//!
//! The lines for people and the JSON show the same. Exit code 0: a fault mode and the store work.
//!
//! - `ways`: the ways to deliver faults;
//! - `userfaultfd`, `checks`, `flash`: the checks;
//! - `advice`: the verdict, and what would make programs faster; `lines`: the report for people.

mod advice;
mod checks;
mod flash;
mod lines;
mod userfaultfd;
mod ways;

pub(crate) use flash::read_time;
pub(crate) use ways::choose_delivery;

use crate::cli::environment::{Environment, Need};
use crate::cli::machine;
use crate::cli::refusal::Refusal;
use crate::cli::write_out;
use advice::{Advice, Facts, WayHere};
use flashvm_live::{Features, probe_user_mode, probe_userfaultfd};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use ways::{WAYS, Way};

/// The least `vm.max_map_count` for large programs: the kernel's default.
const MAPS_MIN: u64 = 65530;
/// Mappings that suffice to reach hundreds of megabytes of scattered small pages without faults.
const OVERLAYS_WANTED: u32 = 1 << 20;
/// Remedy for a kernel without the system call.
const BUILD: &str =
    "run a kernel with CONFIG_USERFAULTFD, and allow the call in the container's seccomp profile";
/// Remedy for missing Syscall User Dispatch.
const GUARD: &str = "run Linux 5.11 or later, or use --fault handler";

/// Remedy for a userfaultfd of kernel mode that is not permitted. `user_mode`: that of user mode is, so no filter forbids
/// the call. `/dev/userfaultfd` and `vm.unprivileged_userfaultfd` would not do: fork events need the capability, too.
fn privilege(place: &Environment, user_mode: bool) -> String {
    match user_mode {
        true => format!("grant CAP_SYS_PTRACE ({})", place.remedy(Need::Trace)),
        false => place.remedy(Need::Calls),
    }
}

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

impl Check {
    /// The check as one line.
    fn line(&self) -> String {
        let remedy = self.remedy.as_ref().map(|remedy| format!(": {remedy}"));
        format!("{} {}{}", self.name, self.value, remedy.unwrap_or_default())
    }
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    /// Whether programs run here, and how fast: one line.
    verdict: String,
    works: bool,
    /// What surrounds this process, in words.
    environment: String,
    /// What would make programs faster, the largest gain first.
    faster: Vec<Advice>,
    /// Median of random reads of the store, in nanoseconds; null: not measured.
    store_read_ns: Option<u64>,
    checks: Vec<Check>,
    /// The ways to deliver faults, the fastest first.
    ways: Vec<WayHere>,
    /// The same by name: whether each works.
    fault_modes: BTreeMap<&'static str, bool>,
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

/// Makes all checks and prints the report. The exit code is 1 if no program can be run.
pub(crate) fn doctor(flash: Option<&Path>, json: bool) -> Result<ExitCode, Refusal> {
    let report = report(flash);
    let text = if json {
        serde_json::to_string(&report)
            .map_err(|e| Refusal::new(format!("the report cannot be written: {e}")))?
            + "\n"
    } else {
        lines::text(&report)
    };
    write_out(&text)?;
    Ok(if report.works {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn report(path: Option<&Path>) -> DoctorReport {
    let place = Environment::here();
    let features = probe_userfaultfd().or_else(|_| probe_user_mode());
    let ways: Vec<_> = WAYS
        .iter()
        .map(|way| WayHere {
            name: way.name,
            needs: way.needs,
            relative_time: way.relative_time,
            exists: way.exists(),
            lacks: way.check(false).err().map(|refusal| refusal.to_string()),
        })
        .collect();
    let works = |(way, here): (_, &WayHere)| here.lacks.is_none().then_some(way);
    let working: Vec<&Way> = WAYS.iter().zip(&ways).filter_map(works).collect();
    let io_uring = checks::io_uring_lacks(&place);
    let flash = flash::look(path, &place);
    let facts = Facts {
        ways,
        moves: features.is_ok_and(|features| features.has(Features::MOVE))
            || working.first().is_some_and(|way| way.hides_pages()),
        io_submit: flashvm_live::io_submit_is_allowed(),
        io_uring_remedy: io_uring.as_ref().map(|(_, remedy)| remedy.clone()),
        lacks: machine::check_page_bytes()
            .and_then(|()| machine::check_proc(&place))
            .err()
            .map(|refusal| refusal.to_string())
            .or_else(|| flash.lacks().map(Check::line)),
        read_ns: flash.read_ns,
        place,
    };
    let mut checks = vec![checks::kernel()];
    checks.extend(checks::page_bytes());
    checks.extend(userfaultfd::checks(&features, &facts.place));
    let in_thread = working.iter().any(|way| way.resolves_in_thread());
    checks.extend(checks::checks(&facts.place, in_thread, io_uring.as_ref()));
    checks.extend(flash.checks);
    DoctorReport {
        verdict: facts.verdict(),
        works: facts.works(),
        environment: facts.place.to_string(),
        faster: facts.advice(),
        store_read_ns: facts.read_ns,
        checks,
        fault_modes: facts
            .ways
            .iter()
            .map(|way| (way.name, way.lacks.is_none()))
            .collect(),
        ways: facts.ways,
    }
}
