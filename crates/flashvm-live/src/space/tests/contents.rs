//! Contents that come, are read and go: copies, poison, zaps, and what the program does to its mappings.

use super::*;

fn zeros(space: &Program, run: Run) -> Done {
    space.0.copy(Place::Region, run, Source::Zeros, false)
}

#[test]
fn a_run_is_mapped_with_its_contents() {
    each_kind(ALL, |space| {
        assert_eq!(space.load(3), None);
        let contents = [page(1), page(2), page(3)].concat();
        let from = Source::Bytes(&contents);
        assert_eq!(
            space.0.copy(Place::Region, run(3, 3), from, false),
            Done::all(3)
        );
        for (at, byte) in [(3, 1), (4, 2), (5, 3)] {
            assert_eq!(space.load(at), Some(byte));
            assert!(space.store(at, 9));
        }
        assert_eq!(space.held(2), (false, false));
        assert_eq!(space.held(5), (true, false));
        assert_eq!(zeros(space, run(64, 64)), Done::all(64));
        assert_eq!(space.load(127), Some(0));
    });
}

#[test]
fn a_copy_stops_at_a_page_that_is_there() {
    each_kind(ALL, |space| {
        space.put(Place::Region, 2, 5);
        // The reason is given only for the first page of a call.
        assert_eq!(zeros(space, run(0, 4)), Done::stopped(2, Stop::Again));
        assert_eq!(zeros(space, run(2, 2)), Done::stopped(0, Stop::Exists));
        assert_eq!(space.load(2), Some(5));
        assert_eq!(space.held(3), (false, false));
        assert_eq!(zeros(space, run(3, 1)), Done::all(1));
    });
}

#[test]
fn a_run_beyond_a_mapping_is_refused_as_a_whole() {
    each_kind(ALL, |space| {
        let last = MAPPED - 1;
        assert_eq!(zeros(space, run(last, 2)), Done::stopped(0, Stop::Missing));
        assert_eq!(space.held(last), (false, false));
        assert_eq!(
            zeros(space, run(MAPPED, 1)),
            Done::stopped(0, Stop::Missing)
        );
        assert_eq!(zeros(space, run(last, 1)), Done::all(1));
        if space.0.has_shadow() {
            let away = space.pages().shift(Place::Shadow, run(last, 2));
            assert_eq!(away, Done::stopped(0, Stop::Invalid));
            assert_eq!(space.held(last), (true, false));
        }
    });
}

#[test]
fn a_copy_of_a_page_may_take_its_place() {
    each_kind(WITH_SHADOW, |space| {
        space.put(Place::Shadow, 7, 4);
        let from = Source::Page(Place::Shadow, PageId(7));
        let copied = space.0.copy(Place::Region, run(7, 1), from, false);
        assert_eq!(copied, Done::all(1));
        assert_eq!(space.held(7), (true, true), "until the source is zapped");
        assert_eq!(space.load(7), Some(4));
        space.zap(Place::Shadow, &[run(7, 1)]).unwrap();
        assert_eq!(space.held(7), (true, false));
        assert!(space.load(7) == Some(4) && space.store(7, 5));
    });
}

#[test]
fn a_poisoned_page_is_no_page_until_it_is_overwritten_or_zapped() {
    each_kind(ALL, |space| {
        let absent = |at| space.load(at).is_none() && !space.store(at, 1);
        for at in 0..2 {
            space.pages().poison(PageId(at)).unwrap();
            assert!(absent(at));
        }
        space.put(Place::Region, 0, 3);
        assert_eq!(space.load(0), Some(3));
        space.zap(Place::Region, &[run(1, 1)]).unwrap();
        assert_eq!(space.held(1), (false, false));
        assert_eq!(zeros(space, run(1, 1)), Done::all(1));
    });
}

#[test]
fn a_page_that_is_there_cannot_be_poisoned() {
    each_kind(ALL, |space| {
        space.put(Place::Region, 0, 2);
        assert_eq!(space.pages().poison(PageId(0)), Err(Stop::Exists));
        assert_eq!(space.load(0), Some(2));
    });
}

#[test]
fn zapped_pages_are_gone() {
    each_kind(ALL, |space| {
        let places = [Place::Region, Place::Shadow];
        for &place in &places[..1 + usize::from(space.0.has_shadow())] {
            for at in 0..MAPPED {
                space.put(place, at, 1);
            }
            // More runs than one call of the kernel takes; the second time there are no pages in them.
            let odd: Vec<Run> = (0..MAPPED / 2).map(|i| run(2 * i + 1, 1)).collect();
            for _ in 0..2 {
                space.zap(place, &odd).unwrap();
                for at in 0..MAPPED {
                    assert_eq!(space.pages().holds(place, PageId(at)), at % 2 == 0);
                }
            }
            space.zap(place, &[run(0, MAPPED)]).unwrap();
            assert!(!(0..MAPPED).any(|at| space.pages().holds(place, PageId(at))));
        }
        assert_eq!(space.load(0), None, "a touch is a fault again");
        assert_eq!(zeros(space, run(0, 1)), Done::all(1));
        assert_eq!(space.load(0), Some(0), "nothing is left of the contents");
    });
}

#[test]
fn a_page_is_copied_out_of_where_it_waits() {
    each_kind(ALL, |space| {
        let place = if space.0.has_shadow() {
            Place::Shadow
        } else {
            Place::Region
        };
        let mut contents = page(0);
        (contents[0], contents[PAGE_SIZE - 1]) = (1, 2);
        let from = Source::Bytes(&contents);
        assert_eq!(space.0.copy(place, run(5, 1), from, false), Done::all(1));
        // The pager can read a page that the program may not.
        let nothing = MprotectFlags::empty();
        space.0.set_rights(run(5, 1), nothing).unwrap();
        let mut copy = PageBuffer::new();
        // SAFETY: no other thread uses the space, so the page stays where it is, unchanged.
        unsafe { space.0.copy_out(run(5, 1), &mut copy.0) }.unwrap();
        assert!(copy.0 == contents);
    });
}

#[test]
fn zeros_in_the_shadow_are_told_from_a_last_byte() {
    each_kind(WITH_SHADOW, |space| {
        for byte in [None, Some(0), Some(2000), Some(PAGE_SIZE - 1)] {
            let mut contents = page(0);
            if let Some(byte) = byte {
                contents[byte] = 1;
            }
            let from = Source::Bytes(&contents);
            let copied = space.0.copy(Place::Shadow, run(0, 1), from, false);
            assert_eq!(copied, Done::all(1));
            // SAFETY: no other thread uses the space, so the page stays in the shadow, unchanged.
            let is_zero = unsafe { space.0.is_zero(PageId(0)) };
            assert_eq!(is_zero, byte.is_none(), "{byte:?}");
            space.zap(Place::Shadow, &[run(0, 1)]).unwrap();
        }
    });
}

#[test]
fn a_page_given_up_by_the_program_is_gone() {
    each_kind(ALL, |space| {
        for at in 0..4 {
            space.put(Place::Region, at, 1);
        }
        space.0.zap(run(0, 1)).unwrap();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        space.0.map_anew(run(1, 1), prot).unwrap();
        space.0.unmap(run(2, 1)).unwrap();
        for at in 0..3 {
            assert_eq!(space.load(at), None);
            assert_eq!(space.held(at), (false, false));
        }
        assert_eq!(space.load(3), Some(1));
        assert_eq!(zeros(space, run(0, 2)), Done::all(2));
        assert_eq!((space.load(0), space.load(1)), (Some(0), Some(0)));
        assert_eq!(zeros(space, run(2, 1)), Done::stopped(0, Stop::Missing));
    });
}

#[test]
fn rights_taken_away_come_back_with_the_contents() {
    each_kind(ALL, |space| {
        space.put(Place::Region, 1, 6);
        space
            .0
            .set_rights(run(0, 3), MprotectFlags::empty())
            .unwrap();
        assert!(space.load(1).is_none() && !space.store(1, 7));
        assert_eq!(space.held(1), (true, false));
        space.0.set_rights(run(1, 1), MprotectFlags::READ).unwrap();
        assert!(space.load(1) == Some(6) && !space.store(1, 7));
        let mapping = space.pages().mapping(PageId(1)).unwrap();
        let expected = (1, ProtFlags::READ.bits(), false);
        assert_eq!(
            (mapping.pages, mapping.protection, mapping.writable),
            expected
        );
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        space.0.set_rights(run(0, 3), all).unwrap();
        assert!(space.store(1, 7) && space.load(1) == Some(7));
        assert!(space.pages().mapping(PageId(1)).unwrap().writable);
    });
}
