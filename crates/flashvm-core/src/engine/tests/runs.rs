//! Runs of writes: what the cleaner collects before it writes.

use super::*;

/// Sixteen frames of dirty pages, of which eight are to be free.
fn full_of_dirty_pages(write_run: u32) -> Rig {
    let settings = Settings {
        preclean: 2,
        write_run,
        ..settings()
    };
    let mut rig = rig(16, settings, true);
    for page in 0..16 {
        rig.fault(page, Write);
    }
    rig
}

fn written(actions: &[Action]) -> Vec<(u32, u32)> {
    let writes = actions.iter().filter_map(|action| match action {
        Action::Write { slot, count, .. } => Some((slot.0, *count)),
        _ => None,
    });
    writes.collect()
}

/// Reclaims until something is written; returns these writes.
fn first_writes(rig: &mut Rig) -> Vec<(u32, u32)> {
    for _ in 0..20 {
        let writes = written(&rig.tell(Event::Reclaim));
        if !writes.is_empty() {
            return writes;
        }
    }
    panic!("nothing is written");
}

#[test]
fn a_batch_is_written_at_once_without_runs() {
    assert_eq!(first_writes(&mut full_of_dirty_pages(0)), [(0, 2)]);
}

#[test]
fn a_run_is_written_when_it_is_whole() {
    assert_eq!(first_writes(&mut full_of_dirty_pages(4)), [(0, 2), (2, 2)]);
}

#[test]
fn a_run_that_gets_no_longer_is_written_at_the_upper_mark() {
    let mut rig = full_of_dirty_pages(100);
    let writes = first_writes(&mut rig);
    assert_eq!(writes, [(0, 2), (2, 2), (4, 2), (6, 2)]);
    assert!(!rig.engine.wants_reclaim(), "it waits for these writes");
}

#[test]
fn a_fault_without_a_frame_waits_for_no_run() {
    let mut rig = full_of_dirty_pages(100);
    let mut writes = written(&rig.fault(20, Write));
    while writes.is_empty() && rig.engine.deadline().is_some_and(|at| at.0 <= rig.now) {
        writes = written(&rig.tell(Event::Tick));
    }
    assert_eq!(writes, [(0, 2)]);
}

#[test]
fn a_run_that_is_not_whole_waits_while_half_of_the_reserve_is_there() {
    let settings = Settings {
        write_run: 20,
        ..settings()
    };
    let mut rig = rig(64, settings, true);
    for page in 0..64 {
        rig.fault(page, Write);
    }
    let mut count = 0;
    while rig.engine.wants_reclaim() && count < 200 {
        rig.tell(Event::Reclaim);
        count += 1;
    }
    let count_of = |state| (0..64).filter(|&page| rig.state(page) == state).count();
    assert_eq!((count_of(Writing), count_of(Mapped)), (20, 32));
}
