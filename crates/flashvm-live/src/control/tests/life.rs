//! What a process leaves behind, and who returns it.

use super::*;
use crate::control::budget::FIRST_FRAMES_WAIT_MAX;
use crate::control::layout::ProcessSlot;
use crate::sys::STORES_MAX;
use crate::sys::disk_space::Space;
use rustix::process::PidfdFlags;

#[test]
fn a_dead_process_returns_what_it_held() {
    let control = control(64 * MIB, 64 * MIB);
    let mut reaper = Reaper::new(control);
    let mut program = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let other = control.register(own_pid().unwrap(), "other").unwrap();
    let process = control.register(program.id(), "sleep 1000").unwrap();
    process.clusters().lease().unwrap();
    process.set_used(16 << 10);
    assert!(process.commit(500));
    process.stats().faults_major.store(7, Ordering::Relaxed);
    let orphan = process.fork().unwrap();
    let start = Instant::now();
    assert!(reaper.look(start).is_empty());
    assert_eq!(reaper.alive().len(), 2);
    assert_eq!(other.limit(), 8 << 10);

    program.kill().unwrap();
    // Not reaped yet: a zombie counts as dead.
    let killed = Instant::now();
    while reaper.pidfds().count() > 2 || control.committed_pages().0 == 1000 {
        assert!(reaper.look(start).is_empty());
        assert!(killed.elapsed() < PATIENCE, "the death is not noticed");
    }
    assert_eq!(other.limit(), 16 << 10);
    let records = reaper.look(start + Duration::from_secs(2));
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].pid, &*records[0].command),
        (program.id(), "sleep 1000")
    );
    assert_eq!(records[0].stats.faults_major, 7);
    program.wait().unwrap();
    assert_eq!(
        control.committed_pages().0,
        500,
        "those of the fork that never happened"
    );
    assert!(
        !other.clusters().shared(ClusterId(0)),
        "the dead process shares no cluster any more"
    );

    // The process slot for a fork that never happened is freed later, and cannot be adopted then.
    assert!(reaper.look(start + Duration::from_secs(20)).is_empty());
    assert_eq!(control.committed_pages().0, 0);
    assert!(matches!(orphan.adopt(1), Err(Error::Stale)));
    assert_eq!(std::iter::from_fn(|| other.clusters().lease()).count(), 512);
    assert_eq!(reaper.alive().len(), 1);
}

/// Nobody returns frames of dead processes any more, so a child that waited for them would outlive its run.
#[test]
fn a_new_process_does_not_wait_for_frames_without_the_supervisor() {
    let control = control(4 * MIB, 4 * MIB);
    let parent = control.register(own_pid().unwrap(), "parent").unwrap();
    let child = control.register(1_000_001, "child").unwrap();
    parent.grow(control.budget_frames());
    let mut supervisor = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&supervisor);
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_wanting = |slot: &ProcessSlot| slot.wanting.load(Ordering::Relaxed) > 0;
            while !control.slots_taken().any(|(_, slot)| is_wanting(slot)) {
                std::thread::yield_now();
            }
            supervisor.kill().and_then(|()| supervisor.wait()).unwrap();
        });
        child.await_first_frames(&pidfd);
    });
    assert!(
        start.elapsed() < FIRST_FRAMES_WAIT_MAX / 2,
        "waited {:?}",
        start.elapsed()
    );
    assert_eq!(child.granted(), LIMIT_FRAMES_MIN);
}

#[test]
fn space_is_allocated_before_it_is_promised() {
    let control = control(4 * MIB, 512 * MIB);
    let file = tempfile::tempfile_in("/var/tmp").unwrap();
    let taken = || rustix::fs::fstat(&file).unwrap().st_blocks as u64 * 512;
    control.set_backed(0);
    let process = control.register(own_pid().unwrap(), "first").unwrap();
    assert!(
        !process.commit(2000) && taken() == 0,
        "no disk to allocate from"
    );
    let mut files = [None; STORES_MAX];
    files[0] = Some(file.as_raw_fd());
    process.take_space_from(Space::whole(files));
    // The budget needs no disk space.
    assert!(process.commit(1024) && taken() == 0);
    assert!(process.commit(100));
    let ahead = taken();
    assert!((MIB..300 * MIB).contains(&ahead), "{ahead}");
    assert!(process.commit(100) && taken() == ahead);
    assert!(process.commit(100_000) && taken() > 390 * MIB);
    assert!(!process.commit(100_000) && !control.disk_was_full());
    // Every cluster gets disk space too.
    let leased = std::iter::from_fn(|| process.clusters().lease()).count();
    assert_eq!(leased, control.clusters().0 as usize);
    assert!(taken() >= 512 * MIB);
}

#[test]
fn the_first_reason_stays_until_the_process_slot_is_taken_again() {
    let control = control(4 * MIB, 64 * MIB);
    let mut reaper = Reaper::new(control);
    let process = control.register(own_pid().unwrap(), "first").unwrap();
    process.note_end("no room");
    process.note_end("worse");
    process.note_refusal(&"x".repeat(1000));
    let [record] = &reaper.alive()[..] else {
        panic!("one process");
    };
    assert_eq!(record.ended.as_deref(), Some("no room"));
    assert_eq!(record.refused.as_ref().map(String::len), Some(252));
    process.retire();
    assert_eq!(reaper.look(Instant::now()).len(), 1);
    control.register(own_pid().unwrap(), "second").unwrap();
    let second = &reaper.alive()[0];
    assert_eq!((&second.ended, &second.refused), (&None, &None));
}

/// If the fork failed, or the child died at once, no process slot is left behind; a child that lives keeps its slot.
#[test]
fn a_slot_that_nobody_adopts_is_given_back() {
    let control = control(4 * MIB, 16 * MIB);
    let parent = control.register(1_000_000, "parent").unwrap();
    assert!(parent.commit(100));
    let child = parent.fork().unwrap();
    assert_eq!(control.committed_pages().0, 200);
    child.retire_unadopted();
    assert_eq!(control.committed_pages().0, 100);
    let child = parent.fork().unwrap();
    child.adopt(1_000_001).unwrap();
    child.retire_unadopted();
    assert_eq!(control.committed_pages().0, 200, "the child lives");
    assert!(child.commit(1));
}

#[test]
fn pressure_wakes_waiting_processes() {
    let control = control(4 * MIB, 4 * MIB);
    let seen = control.pressure();
    assert_eq!(control.wait_pressure(seen, Duration::from_millis(5)), seen);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut now = seen;
            let begun = Instant::now();
            while now == seen {
                now = control.wait_pressure(seen, Duration::from_secs(10));
                assert!(begun.elapsed() < PATIENCE, "nobody is woken");
            }
        });
        control.raise_pressure();
    });
}

#[test]
fn own_pid_is_this_process() {
    assert_eq!(own_pid().unwrap(), std::process::id());
}

#[test]
fn states_keep_their_generation() {
    let word = State::Live.within(0b101_000);
    assert_eq!(State::of(word), State::Live);
    assert_eq!(State::Retired.within(word) >> 3, word >> 3);
}
