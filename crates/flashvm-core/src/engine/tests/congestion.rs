//! Waiting for a congested device.

use super::*;
use crate::event::Advice;
use crate::settings::CongestionWait;

#[test]
fn a_starved_fault_waits_for_a_write_or_the_congestion_timeout() {
    for preset in [Preset::Native, Preset::Flashvm] {
        let timeout = preset.settings().congestion_allocator;
        let settings = Settings {
            congestion_allocator: timeout,
            ..settings()
        };
        let mut rig = rig(4, settings, true);
        for page in 0..4 {
            rig.fault(page, Write);
        }
        assert_eq!(rig.fault(9, Write), [shadow_of(0)]);
        assert_eq!(
            rig.engine.deadline(),
            Some(Nanos(rig.now)),
            "at once: pages have moved"
        );
        rig.tell(Event::Tick);
        let mut ticks = 0;
        while rig.engine.deadline().is_some_and(|at| at.0 <= rig.now) {
            rig.tell(Event::Tick);
            ticks += 1;
            assert!(ticks < 20, "it spins");
        }
        let deadline = rig.engine.deadline().expect("a fault waits");
        assert!(
            deadline.since(Nanos(rig.now)).0 + 20 > timeout.0,
            "{preset}"
        );
        let served = rig.tell(Event::WriteDone {
            io: IoId(0),
            failed: 0,
        });
        assert!(
            served.iter().any(|a| matches!(a, Action::Zero { .. })),
            "{served:?}"
        );
        assert_eq!(rig.engine.deadline(), None);
    }
}

/// All eight frames hold dirty pages, and the cleaner has issued what it may.
fn with_a_write_in_flight(settings: Settings) -> Rig {
    let mut rig = rig(8, settings, true);
    for page in 0..8 {
        rig.fault(page, Write);
    }
    for _ in 0..4 {
        rig.tell(Event::Reclaim);
    }
    rig
}

#[test]
fn the_cleaner_issues_another_request_when_its_wait_has_been_long_enough() {
    let settings = Settings {
        write_requests_max: 1,
        reserve_share: 2,
        ..settings()
    };
    let timeout = settings.congestion_cleaner.0;
    let mut rig = with_a_write_in_flight(settings);
    let deadline = rig
        .engine
        .deadline()
        .expect("its only request is in flight");
    assert!(deadline.0 <= rig.now + timeout);
    rig.now += timeout;
    let actions = rig.tell(Event::Tick);
    assert!(matches!(actions[..], [Action::Write { .. }]), "{actions:?}");
}

#[test]
fn a_whole_wait_ends_with_the_timeout_alone() {
    let settings = Settings {
        congestion_wait: CongestionWait::Whole,
        ..settings()
    };
    let timeout = settings.congestion_allocator.0;
    let mut rig = rig(4, settings, true);
    for page in 0..4 {
        rig.fault(page, Write);
    }
    rig.fault(9, Write);
    while rig.engine.deadline().is_some_and(|at| at.0 <= rig.now) {
        rig.tell(Event::Tick);
    }
    let write_ended = rig.tell(Event::WriteDone {
        io: IoId(0),
        failed: 0,
    });
    let is_served = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Zero { .. }));
    assert!(!is_served(&write_ended), "{write_ended:?}");
    let deadline = rig.engine.deadline().expect("a fault waits");
    assert!(deadline.0 + 20 > rig.now + timeout);
    rig.now = deadline.0;
    let due = rig.tell(Event::Tick);
    assert!(is_served(&due), "{due:?}");
}

#[test]
fn a_cleaner_that_waits_the_whole_time_reclaims_nothing() {
    let settings = Settings {
        write_requests_max: 1,
        reserve_share: 2,
        congestion_wait: CongestionWait::Whole,
        ..settings()
    };
    let timeout = settings.congestion_cleaner.0;
    let mut rig = with_a_write_in_flight(settings);
    rig.tell(Event::WriteDone {
        io: IoId(0),
        failed: 0,
    });
    assert!(!rig.engine.wants_reclaim(), "it waits");
    rig.now += timeout;
    let actions = rig.tell(Event::Tick);
    assert!(matches!(actions[..], [Action::Write { .. }]), "{actions:?}");
}

#[test]
fn a_fault_that_meets_only_locked_pages_sleeps() {
    let settings = Settings {
        preclean: 2,
        write_run: 100,
        ..settings()
    };
    let mut rig = rig(20, settings, true);
    rig.tell(Event::Advise {
        first: PageId(10),
        count: 10,
        advice: Advice::Lock,
    });
    for page in 0..20 {
        rig.fault(page, Write);
    }
    // The other half is being written.
    rig.fault(30, Write);
    let mut ticks = 0;
    while rig.engine.deadline().is_some_and(|at| at.0 <= rig.now) {
        rig.tell(Event::Tick);
        ticks += 1;
        assert!(ticks < 100, "it spins");
    }
    assert!(rig.engine.deadline().is_some(), "a fault waits");
}
