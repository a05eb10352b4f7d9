//! Copies that soft faults leave in the shadow.

use super::*;

/// Frames enough for two stale copies at once; pages are proposed in the order of their first touch.
const FRAMES: u32 = 256;

/// An engine that copies pages back; `filled` pages are dirty and mapped.
fn copying(filled: u32) -> Rig {
    let mut settings = settings();
    settings.preclean = 4;
    let config = EngineConfig {
        pages: 512,
        slots: 512,
        frames: FRAMES,
        shadow: true,
        protects: true,
        copies_back: true,
        settings,
    };
    let clusters = LocalClusters::new(512 / config.settings.cluster_pages);
    let engine = Engine::new(config, clusters).expect("a valid configuration");
    let mut rig = Rig { engine, now: 0 };
    for page in 0..filled {
        rig.fault(page, Write);
    }
    rig
}

/// The same with pages 0 to 3 in the shadow.
fn leaving(filled: u32) -> Rig {
    let mut rig = copying(filled);
    let moved = Action::Shadow {
        first: PageId(0),
        count: 4,
    };
    assert_eq!(rig.tell(Event::Reclaim), [moved]);
    rig
}

#[test]
fn copies_are_dropped_together() {
    let mut rig = leaving(200);
    let frames = rig.engine.frames_in_use();
    assert_eq!(rig.fault(2, Read), [copy_of(2, false)]);
    assert_eq!(rig.fault(1, Write), [copy_of(1, false)]);
    assert_eq!(rig.engine.frames_in_use(), frames + 2, "a copy has a frame");
    assert_eq!(rig.engine.stale_copies(), [PageId(2), PageId(1)]);
    // FRAMES / STALE_SHARE = 2 are there already: they go first.
    let both = Action::Drop {
        first: PageId(1),
        count: 2,
    };
    assert_eq!(rig.fault(3, Read), [both, copy_of(3, false)]);
    assert_eq!(rig.engine.stale_copies(), [PageId(3)]);
    assert_eq!(rig.engine.frames_in_use(), frames + 1);
}

#[test]
fn they_go_before_pages_move_into_the_shadow() {
    let mut rig = leaving(200);
    rig.fault(1, Read);
    let actions = rig.tell(Event::Reclaim);
    let at = |wanted: &dyn Fn(&Action) -> bool| actions.iter().position(wanted);
    let moved = at(&|action| matches!(action, Action::Shadow { .. }));
    assert!(moved.is_some() && at(&|&action| action == drop_of(1)) < moved);
    assert_eq!(rig.engine.stale_copies(), []);
}

#[test]
fn a_page_is_moved_where_no_frame_is_left_for_a_copy() {
    let mut rig = leaving(FRAMES);
    let page = PageId(1);
    assert_eq!(rig.fault(1, Read), [Action::Restore { page }]);
    assert_eq!(rig.engine.stale_copies(), []);
}

#[test]
fn they_make_room_for_a_fault_before_any_page_leaves() {
    let mut rig = leaving(FRAMES - 1);
    assert_eq!(rig.fault(1, Read), [copy_of(1, false)]);
    let zero = Action::Zero {
        first: PageId(400),
        count: 1,
        protect: false,
    };
    assert_eq!(rig.fault(400, Write), [drop_of(1), zero]);
}

#[test]
fn they_go_when_the_program_changes_its_mappings_and_at_a_fork() {
    let zapped = Event::Zap {
        first: PageId(100),
        count: 1,
    };
    let moved = Event::Relocate {
        from: PageId(0),
        to: PageId(300),
        count: 4,
    };
    for event in [zapped, moved, Event::Forked] {
        let mut rig = leaving(200);
        rig.fault(1, Read);
        assert_eq!(rig.tell(event), [drop_of(1)]);
        assert_eq!(rig.engine.stale_copies(), []);
    }
}

/// A clean page that comes back protected keeps its slot.
#[test]
fn a_clean_page_leaves_a_copy_too() {
    let mut rig = leaving(200);
    let writes = rig.tell(Event::Reclaim);
    let Some(&Action::Write { io, slot, .. }) = writes
        .iter()
        .find(|action| matches!(action, Action::Write { .. }))
    else {
        panic!("{writes:?} has no write");
    };
    rig.tell(Event::WriteDone { io, failed: 0 });
    assert_eq!((slot, rig.state(0)), (SlotId(0), Standby));
    assert_eq!(rig.fault(0, Read), [copy_of(0, true)]);
    assert_eq!(rig.engine.stale_copies(), [PageId(0)]);
    assert!(rig.engine.is_protected(PageId(0)));
}
