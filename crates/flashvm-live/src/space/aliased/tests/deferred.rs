//! Drops that wait until the engine is free.

use super::*;

/// Pages 0 to 99 are in the shadow, with contents, and drops may wait.
fn deferring(way: Way) -> Option<Aliased> {
    let space = way.open("deferred drops")?;
    space.map_anew(space.range.all(), Some(LOAD_STORE)).unwrap();
    (0..100).for_each(|at| space.put(Place::Shadow, at, 7));
    space.defer_drops(true);
    Some(space)
}

fn drop_pages(mut space: &Aliased, first: u32, count: u32) {
    AddressSpace::zap(&mut space, Place::Shadow, &[run(first, count)]).unwrap();
}

#[test]
fn a_page_that_comes_back_loses_its_old_contents_alone() {
    for space in WAYS.into_iter().filter_map(deferring) {
        drop_pages(&space, 5, 2);
        assert_eq!(space.contents(5)[0], 7, "freed later");
        let zeros = space.copy(Place::Region, run(5, 1), Source::Zeros, false);
        assert_eq!(zeros, Done::all(1));
        space.put(Place::Region, 6, 9);
        space.finish_drops();
        assert_eq!((space.load(5), space.load(6)), (Some(0), Some(9)));
    }
}

#[test]
fn few_pages_wait() {
    for space in WAYS.into_iter().filter_map(deferring) {
        drop_pages(&space, 0, 60);
        drop_pages(&space, 60, 30);
        assert_eq!(space.contents(0)[0], 7, "noted");
        assert_eq!(space.contents(60)[0], 0, "freed at once");
        drop_pages(&space, 90, 4);
        assert_eq!(space.contents(90)[0], 7, "noted");
        space.defer_drops(false);
        drop_pages(&space, 94, 1);
        assert_eq!(space.contents(94)[0], 0, "freed at once");
        space.finish_drops();
        assert_eq!((space.contents(0)[0], space.contents(90)[0]), (0, 0));
    }
}
