//! What few programs do with memory and processes.

use crate::compiled::compiled;
use crate::support::{Outcome, flashvm_run};
use crate::{BUDGET, LIMIT, ready};

/// Runs a part of `tests/torture/unusual.c`. `None` where it cannot run.
fn part(test: &str, name: &str) -> Option<Outcome> {
    ready(test).then(|| {
        let program = [&compiled("unusual").display().to_string(), name];
        flashvm_run(test, &BUDGET, &program, LIMIT).expect_success(test)
    })
}

/// Runs a part, and checks that pages were evicted.
fn paged_part(test: &str, name: &str) {
    if let Some(outcome) = part(test, name) {
        let evicted = outcome.stat("clean") + outcome.stat("dirty");
        assert!(evicted > 0, "{test}: {}", outcome.stats);
    }
}

fn mode_is(mode: &str) -> bool {
    std::env::var_os("FLASHVM_TEST_FAULT").is_some_and(|set| set == mode)
}

/// A program that asks for 1 TiB is refused, asks for less, and its heap is paged.
#[test]
fn a_heap_in_a_smaller_reservation_is_paged() {
    paged_part("a_heap_in_a_smaller_reservation_is_paged", "shrinking");
}

/// 8 TiB of addresses are the kernel's.
#[test]
fn a_reservation_may_be_larger_than_the_managed_range() {
    part(
        "a_reservation_may_be_larger_than_the_managed_range",
        "reservation",
    );
}

/// Pieces below 64 KiB count for the budget once there are many.
#[test]
fn a_heap_of_small_pieces_is_paged() {
    paged_part("a_heap_of_small_pieces_is_paged", "pieces");
}

/// The summary tells of memory that the budget does not count.
#[test]
fn memory_beyond_the_budget_is_told() {
    const TEST: &str = "memory_beyond_the_budget_is_told";
    if let Some(outcome) = part(TEST, "low") {
        let told = outcome
            .stderr
            .contains("in RAM that the budget does not count");
        assert!(told, "{TEST}: {}", outcome.stderr);
        let bytes = outcome.stat("uncounted_pages_max") * 4096;
        assert!(bytes >= 48 << 20, "{TEST}: {bytes}");
    }
}

/// A child that would share the pager's descriptors with its parent is refused.
#[test]
fn a_child_with_its_parents_descriptors_is_refused() {
    const TEST: &str = "a_child_with_its_parents_descriptors_is_refused";
    // A raw clone past the C library ends the process.
    if mode_is("handler") {
        return;
    }
    if let Some(outcome) = part(TEST, "descriptors") {
        let told =
            outcome.stderr.contains("clone with CLONE_FILES") && outcome.stderr.contains("calls");
        assert!(told, "{TEST}: {}", outcome.stderr);
    }
}

/// A signal for each reading of the clock is refused: the pager reads it.
#[test]
fn the_clock_stays_readable() {
    // The pager does not see the call.
    if !mode_is("handler") {
        part("the_clock_stays_readable", "clock");
    }
}

/// Calls that would take descriptors or addresses from the pager are refused.
#[test]
fn descriptors_and_addresses_stay_the_pagers() {
    // The pager does not see these calls.
    if !mode_is("handler") {
        paged_part("descriptors_and_addresses_stay_the_pagers", "refusals");
    }
}

/// What many processes share counts once: a fork neither waits for nor exceeds the budget.
#[test]
fn many_children_share_what_they_have() {
    const TEST: &str = "many_children_share_what_they_have";
    // In protect mode each process is charged for all of its pages.
    if mode_is("protect") || !ready(TEST) {
        return;
    }
    let program = [&compiled("unusual").display().to_string(), "children"];
    let outcome = flashvm_run(TEST, &["--ram", "64M"], &program, LIMIT).expect_success(TEST);
    // In handler mode frames are kept back for stores during a fork, in each process.
    if !mode_is("handler") {
        assert_eq!(
            outcome.stat("budget_overruns"),
            0,
            "{TEST}: {}",
            outcome.stats
        );
    }
}

/// What the pager opens for a fork it closes again.
#[test]
fn forks_leave_no_descriptors() {
    paged_part("forks_leave_no_descriptors", "forks");
}

/// A program pages and forks with all of its descriptors in use: below a limit that it has lowered, and below one that
/// was there before.
#[test]
fn a_program_without_a_free_descriptor_is_paged() {
    const TEST: &str = "a_program_without_a_free_descriptor_is_paged";
    paged_part(TEST, "no-numbers");
    if ready(TEST) {
        let program = compiled("unusual").display().to_string();
        let limited = format!("ulimit -n 200 && exec {program} no-numbers");
        let outcome = flashvm_run(TEST, &BUDGET, &["sh", "-c", &limited], LIMIT);
        outcome.expect_success(TEST);
    }
}

/// Processes that share nearly all of the budget work on data of their own.
#[test]
fn processes_that_share_get_frames() {
    const TEST: &str = "processes_that_share_get_frames";
    if ready(TEST) {
        let program = [&compiled("unusual").display().to_string(), "workers"];
        flashvm_run(TEST, &["--ram", "50M"], &program, LIMIT).expect_success(TEST);
    }
}

/// Transfers between processes, and within one, of more than fits into RAM.
#[test]
fn process_vm_moves_all() {
    paged_part("process_vm_moves_all", "process_vm");
}

/// The program's own userfaultfd does not get managed memory.
#[test]
fn faults_of_managed_memory_are_the_pagers() {
    paged_part("faults_of_managed_memory_are_the_pagers", "faults");
}

/// The guard's stacks are used again.
#[test]
fn threads_one_after_the_other_leave_no_memory() {
    part("threads_one_after_the_other_leave_no_memory", "threads");
}

/// A debugger starts its program by `vfork`, and waits for its `execve`.
#[test]
fn a_child_of_vfork_is_traced_from_its_execve_on() {
    part("a_child_of_vfork_is_traced_from_its_execve_on", "traced");
}
