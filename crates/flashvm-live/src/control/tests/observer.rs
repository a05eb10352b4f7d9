//! An observer reads what processes count, and refuses memory that is no control region.

use super::*;

#[test]
fn an_observer_sees_what_a_process_counts() {
    let (control, fd) = Control::create(&settings(64 * MIB, 64 * MIB)).unwrap();
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let read_only = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap();
    let observer = Observer::attach(read_only.as_fd()).unwrap();
    assert_eq!(observer.supervisor(), std::process::id());
    assert_eq!(observer.settings().unwrap(), settings(64 * MIB, 64 * MIB));
    assert_eq!(observer.processes(), []);

    let process = control.register(4711, "sort words").unwrap();
    process.set_used(100);
    assert!(process.commit(300));
    let counters = flashvm_core::Counters {
        faults_total: 9,
        ..flashvm_core::Counters::default()
    };
    let gauges = flashvm_core::Gauges {
        slots_used: 5,
        read_time_ns: 80_000,
        locked_pages: 3,
        ..flashvm_core::Gauges::default()
    };
    process.stats().publish(&counters, gauges);
    process.stats().latency.record(1000);
    let [seen] = &observer.processes()[..] else {
        panic!("one process");
    };
    assert_eq!((seen.pid, &*seen.command), (4711, "sort words"));
    assert_eq!((seen.resident_pages, seen.committed_pages), (100, 300));
    assert_eq!((seen.stats.faults_total, seen.stats.gauges), (9, gauges));
    assert_eq!(seen.stats.latency.total().0, 1);
    let run = observer.run();
    assert_eq!((run.used_frames, run.budget_frames), (100, 16 << 10));
    assert_eq!(run.store_slots, control.store_slots());
    let fresh = observer.processes().remove(0).identity;
    assert_eq!(fresh, seen.identity);

    // After an exec the same process counts from 0.
    let process = control.register(4711, "sort numbers").unwrap();
    let after = observer.processes();
    assert_eq!(after.len(), 1);
    assert_ne!(after[0].identity, seen.identity);
    assert_eq!(after[0].stats.faults_total, 0);
    process.retire();
    assert_eq!(observer.processes(), []);
}

/// Processes come and go on one process slot while the observer reads it: no reading mixes two of them.
#[test]
fn an_observer_never_mixes_two_processes() {
    let (control, fd) = Control::create(&settings(64 * MIB, 64 * MIB)).unwrap();
    let observer = Observer::attach(fd.as_fd()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reaper = Reaper::new(control);
            for pid in 1..=2000 {
                let process = control.register(pid, &format!("{pid}")).unwrap();
                let faults_total = u64::from(pid);
                let counters = flashvm_core::Counters {
                    faults_total,
                    zapped: faults_total,
                    ..flashvm_core::Counters::default()
                };
                process.stats().publish(&counters, Default::default());
                process.retire();
                reaper.look(Instant::now());
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            for seen in observer.processes() {
                assert_eq!(seen.command, seen.pid.to_string());
                let own = [0, u64::from(seen.pid)];
                assert!(own.contains(&seen.stats.faults_total), "{seen:?}");
                assert!(own.contains(&seen.stats.zapped), "{seen:?}");
            }
        }
    });
}

#[test]
fn an_observer_refuses_another_version_and_size() {
    let (_, fd) = Control::create(&settings(64 * MIB, 64 * MIB)).unwrap();
    assert!(Observer::attach(fd.as_fd()).is_ok());
    let size = rustix::fs::fstat(&fd).unwrap().st_size as u64;
    let mut head = [0; 4096];
    rustix::io::pread(&fd, &mut head, 0).unwrap();
    let copy = |size: u64, sealed: bool, change: fn(&mut [u8])| {
        let fd = rustix::fs::memfd_create(MEMFD_NAME, MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        let mut head = head;
        change(&mut head);
        rustix::io::pwrite(&fd, &head, 0).unwrap();
        if sealed {
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        }
        Observer::attach(fd.as_fd()).map(drop)
    };
    assert!(copy(size, true, |_| {}).is_ok());
    let refused = [
        copy(size, false, |_| {}),
        copy(size + 4096, true, |_| {}),
        copy(4096, true, |_| {}),
        copy(size, true, |head| head[0] ^= 1),
        copy(size, true, |head| head[8] ^= 1),
        copy(size, true, |head| head[12..24].fill(0xff)),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::Foreign)));
    }
}
