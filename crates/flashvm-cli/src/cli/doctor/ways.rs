//! The ways to deliver faults, as a list: what each needs, the check for it, and its relative speed. `flashvm run` takes
//! the one that was asked for, or the fastest that works.
//!
//! A further way is one more row of [`WAYS`], and its check.

use super::{BUILD, GUARD, privilege};
use crate::cli::environment::{Environment, Need};
use crate::cli::machine;
use crate::cli::options::FaultMode;
use crate::cli::refusal::Refusal;
use flashvm_live::{Delivery, Features, guard, probe_user_mode, probe_userfaultfd};
use rustix::io::Errno;
use std::env::consts::ARCH;

/// The features of userfaultfd that a way cannot do without: their names, and the Linux that has them.
const WRITE_PROTECTION: (u64, &str, &str) = (Features::WRITE_PROTECT, "write-protection", "5.7");
const SIGBUS: (u64, &str, &str) = (Features::SIGBUS, "SIGBUS for faults", "4.14");
const EVENTS: (u64, &str, &str) = (
    Features::EVENT_FORK | Features::EVENTS,
    "events of forks and mappings",
    "4.11",
);

/// A way to deliver faults.
#[derive(Debug)]
pub(super) struct Way {
    /// The value of `--fault` that asks for it.
    pub(super) name: &'static str,
    mode: FaultMode,
    delivery: Delivery,
    /// What happens at a fault.
    pub(super) what: &'static str,
    /// What the machine must have.
    pub(super) needs: &'static str,
    /// The time of a fault without I/O, as a multiple of inline mode's. Geometric mean over the kinds of faults of
    /// `cargo bench --bench fault_path` (docs/performance.md).
    pub(super) relative_time: f64,
    /// Says why it does not work here. `no_move`: the run does without UFFDIO_MOVE.
    check: fn(no_move: bool) -> Result<(), Refusal>,
}

/// All ways, the fastest first.
pub(super) const WAYS: &[Way] = &[
    Way {
        name: "inline",
        mode: FaultMode::Inline,
        delivery: Delivery::Inline,
        what: "the faulting thread resolves its faults; system calls are intercepted",
        needs: "userfaultfd, Syscall User Dispatch (Linux 5.11 on x86-64)",
        relative_time: 1.0,
        check: |_| inline_mode(),
    },
    Way {
        name: "protect",
        mode: FaultMode::Protect,
        delivery: Delivery::Protect,
        what: "the same without userfaultfd: pages are hidden in the program's mappings",
        needs: "Syscall User Dispatch (Linux 5.11, x86-64); faster with guard regions in shared memory (Linux 6.15)",
        relative_time: 1.04,
        check: protect_mode,
    },
    Way {
        name: "handler",
        mode: FaultMode::Handler,
        delivery: Delivery::Handler,
        what: "a pager thread resolves faults",
        needs: "userfaultfd with UFFDIO_MOVE (Linux 6.8), CAP_SYS_PTRACE",
        relative_time: 2.7,
        check: handler_mode,
    },
];

impl Way {
    /// Whether the faulting thread resolves its fault: small pages need that.
    pub(super) fn resolves_in_thread(&self) -> bool {
        self.delivery.is_in_thread()
    }

    /// Whether it evicts without a copy and without UFFDIO_MOVE.
    pub(super) fn hides_pages(&self) -> bool {
        self.delivery == Delivery::Protect
    }

    /// Whether some Linux on this processor has what the way needs. Where faulting threads resolve their faults, the
    /// guard makes memory resident for system calls.
    pub(super) fn exists(&self) -> bool {
        self.exists_where(guard::EXISTS)
    }

    fn exists_where(&self, guard: bool) -> bool {
        guard || !self.resolves_in_thread()
    }

    /// Checks that it works here.
    ///
    /// # Errors
    /// Why not, and the remedy.
    pub(super) fn check(&self, no_move: bool) -> Result<(), Refusal> {
        if self.exists() {
            (self.check)(no_move)
        } else {
            Err(Refusal::new(format!(
                "{}, which inline and protect mode need: use --fault handler",
                no_dispatch()
            )))
        }
    }
}

/// What this processor lacks where [`guard::EXISTS`] is false.
fn no_dispatch() -> String {
    format!("{ARCH} has no Syscall User Dispatch (Linux 7.3)")
}

/// The ways to try for `asked`, the fastest first. `auto` leaves out those that no kernel on this processor can have: their
/// remedies would not help.
fn candidates(asked: FaultMode, guard: bool) -> impl Iterator<Item = &'static Way> {
    WAYS.iter().filter(move |way| match asked {
        FaultMode::Auto => way.exists_where(guard),
        mode => mode == way.mode,
    })
}

/// Chooses the delivery of faults: as asked, or with `auto` the fastest that works here. `no_move`: the run does without
/// UFFDIO_MOVE.
///
/// # Errors
/// Why what was asked for does not work here; with `auto`, why the fastest does not.
pub(crate) fn choose_delivery(asked: FaultMode, no_move: bool) -> Result<Delivery, Refusal> {
    let mut why = None;
    for way in candidates(asked, guard::EXISTS) {
        match way.check(no_move) {
            Ok(()) => return Ok(way.delivery),
            Err(refusal) => why = why.or(Some(refusal)),
        }
    }
    let why = why.expect("every fault mode has its way");
    if guard::EXISTS || asked != FaultMode::Auto {
        return Err(why);
    }
    Err(Refusal::new(format!(
        "{}, which leaves handler mode: {why}",
        no_dispatch()
    )))
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
        // The kernel permits user mode to everybody: a filter forbids the call.
        Err(Errno::PERM | Errno::ACCESS) => Err(Refusal::new(format!(
            "userfaultfd is not permitted, a seccomp profile forbids it: {}",
            Environment::here().remedy(Need::Calls)
        ))),
        Err(e) => Err(Refusal::new(format!(
            "userfaultfd is missing ({e}): {BUILD}"
        ))),
    }
}

fn guarded() -> Result<(), Refusal> {
    if guard::can_guard() {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "this kernel has no Syscall User Dispatch, which inline and protect mode need: {GUARD}"
    )))
}

/// Checks the mode without userfaultfd; the error says why it cannot work here. It never moves pages as `no_move` forbids:
/// the option is a mistake then.
fn protect_mode(no_move: bool) -> Result<(), Refusal> {
    if no_move {
        return Err(Refusal::new(
            "--no-move is about userfaultfd, which --fault protect does without: leave one of them out",
        ));
    }
    guarded()
}

/// Checks handler mode; the error says why it cannot work here.
fn handler_mode(no_move: bool) -> Result<(), Refusal> {
    match probe_userfaultfd() {
        Ok(features) => need(features, &[WRITE_PROTECTION, EVENTS])
            .and_then(|()| moved(!no_move && features.has(Features::MOVE)))
            .and_then(|()| traced()),
        Err(Errno::PERM | Errno::ACCESS) => Err(Refusal::new(format!(
            "userfaultfd is not permitted: {}",
            privilege(&Environment::here(), probe_user_mode().is_ok())
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
        "userfaultfd gives no fork events without CAP_SYS_PTRACE: {}",
        Environment::here().remedy(Need::Trace)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::options::FaultMode;

    #[test]
    fn the_list_is_in_order_of_speed_and_has_every_mode_once() {
        assert!(WAYS.is_sorted_by(|a, b| a.relative_time <= b.relative_time));
        for (mode, word) in FaultMode::ALL {
            let ways: Vec<_> = WAYS.iter().filter(|way| way.mode == mode).collect();
            let wanted = usize::from(mode != FaultMode::Auto);
            assert_eq!(ways.len(), wanted, "{word}");
            assert!(ways.iter().all(|way| way.name == word), "{word}");
        }
    }

    #[test]
    fn without_a_guard_auto_is_handler_mode() {
        let names = |asked, guard| {
            candidates(asked, guard)
                .map(|way| way.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(FaultMode::Auto, true),
            ["inline", "protect", "handler"]
        );
        assert_eq!(names(FaultMode::Auto, false), ["handler"]);
        // What was asked for by name is refused by name.
        assert_eq!(names(FaultMode::Inline, false), ["inline"]);
    }
}
