//! Moves between region and shadow, and from one address to another.

use super::*;

fn away(space: &Program, run: Run) -> Done {
    space.pages().shift(Place::Shadow, run)
}

#[test]
fn pages_are_taken_away_and_back() {
    each_kind(WITH_SHADOW, |space| {
        for at in 0..3 {
            space.put(Place::Region, at, at as u8 + 1);
        }
        assert_eq!(away(space, run(0, 3)), Done::all(3));
        for at in 0..3 {
            assert_eq!(space.held(at), (false, true));
            assert_eq!(space.load(at), None, "a touch is a fault");
            assert!(!space.store(at, 9));
            assert_eq!(space.in_shadow(at), Some(at as u8 + 1));
        }
        assert_eq!(space.pages().shift(Place::Region, run(0, 3)), Done::all(3));
        for at in 0..3 {
            assert_eq!(space.held(at), (true, false));
            assert_eq!(space.load(at), Some(at as u8 + 1));
            assert!(space.store(at, 9), "what comes back is not protected");
        }
    });
}

#[test]
fn a_move_stops_at_a_page_that_is_not_at_its_source() {
    each_kind(WITH_SHADOW, |space| {
        space.put(Place::Region, 0, 1);
        space.put(Place::Region, 2, 3);
        assert_eq!(away(space, run(0, 3)), Done::stopped(1, Stop::Again));
        assert_eq!(away(space, run(1, 2)), Done::stopped(0, Stop::Missing));
        assert_eq!(away(space, run(2, 1)), Done::all(1));
        assert_eq!([0, 1, 2].map(|at| space.held(at).1), [true, false, true]);
        // A page that has been moved already: the destination is looked at first.
        assert_eq!(away(space, run(0, 1)), Done::stopped(0, Stop::Exists));
        assert_eq!(space.in_shadow(0), Some(1));
    });
}

#[test]
fn a_move_stops_at_a_page_that_is_at_its_destination() {
    each_kind(WITH_SHADOW, |space| {
        for at in [0, 2] {
            space.put(Place::Region, at, 1);
        }
        space.put(Place::Shadow, 1, 2);
        let from = Source::Page(Place::Shadow, PageId(1));
        let copied = space.0.copy(Place::Region, run(1, 1), from, false);
        assert_eq!(copied, Done::all(1));
        assert_eq!(away(space, run(0, 3)), Done::stopped(1, Stop::Again));
        assert_eq!(away(space, run(1, 2)), Done::stopped(0, Stop::Exists));
        assert_eq!((space.load(1), space.in_shadow(1)), (Some(2), Some(2)));
        space.zap(Place::Shadow, &[run(1, 1)]).unwrap();
        assert_eq!(away(space, run(1, 2)), Done::all(2));
        assert_eq!(space.in_shadow(1), Some(2));
    });
}

#[test]
fn a_page_changes_its_address() {
    each_kind(ALL, |space| {
        space.put(Place::Region, 0, 8);
        let moved = space.pages().relocate(Place::Region, PageId(0), PageId(9));
        if moved != Done::all(1) {
            // It is bound to its address, and is copied.
            assert_eq!(moved, Done::stopped(0, Stop::Invalid));
            assert_eq!(space.held(0), (true, false));
            let from = Source::Page(Place::Region, PageId(0));
            let copied = space.0.copy(Place::Region, run(9, 1), from, false);
            assert_eq!(copied, Done::all(1));
            space.zap(Place::Region, &[run(0, 1)]).unwrap();
        }
        assert_eq!(space.held(0), (false, false));
        assert_eq!(space.load(9), Some(8));
        assert!(space.store(9, 7));
        space.put(Place::Region, 10, 1);
        let onto = space.pages().relocate(Place::Region, PageId(10), PageId(9));
        assert!(matches!(onto.stop, Some(Stop::Exists | Stop::Invalid)));
        assert_eq!(space.load(9), Some(7));
    });
}

#[test]
fn a_page_that_is_not_there_cannot_be_unshared() {
    each_kind(ALL, |space| {
        assert!(!space.pages().unshare(PageId(0)));
        assert_eq!(space.held(0), (false, false));
    });
}
