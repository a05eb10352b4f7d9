//! Fresh pages: private memory until the first of them leaves.

use super::*;

/// Zeros in pages 0 to 99, which the program has stored to.
fn filled() -> Option<Aliased> {
    let space = Way::Markers.open("fresh pages")?;
    space.map_anew(space.range.all(), Some(LOAD_STORE)).unwrap();
    let zeros = space.copy(Place::Region, run(0, 100), Source::Zeros, false);
    assert_eq!(zeros, Done::all(100));
    (0..100).for_each(|at| assert!(space.store(at, at as u8 + 1)));
    Some(space)
}

fn leave(mut space: &Aliased, page: u32) {
    assert_eq!(space.shift(Place::Shadow, run(page, 1)), Done::all(1));
}

#[test]
fn a_page_that_leaves_settles_with_its_neighbours() {
    let Some(space) = filled() else {
        return;
    };
    assert_eq!(space.contents(70)[0], 0, "not in the file");
    leave(&space, 70);
    for page in 0..100 {
        assert_eq!(space.is_private(PageId(page)), page < 64);
        let expected = (page != 70).then_some(page as u8 + 1);
        assert_eq!(space.load(page), expected);
        let in_file = if page < 64 { 0 } else { page as u8 + 1 };
        assert_eq!(space.contents(page)[0], in_file, "page {page}");
        assert_eq!(space.store(page, 200), page != 70);
    }
}

#[test]
fn a_pinned_page_stays_where_it_is() {
    let Some(space) = filled() else {
        return;
    };
    space.pin(run(20, 2), true);
    leave(&space, 10);
    leave(&space, 30);
    let private: Vec<u32> = (0..64)
        .filter(|&page| space.is_private(PageId(page)))
        .collect();
    assert_eq!(private, [20, 21]);
    space.pin(run(20, 2), false);
    leave(&space, 21);
    assert!((0..64).all(|page| !space.is_private(PageId(page))));
    assert_eq!((space.contents(20)[0], space.contents(21)[0]), (21, 22));
}

#[test]
fn once_a_page_has_left_fresh_pages_are_those_of_the_file() {
    let Some(space) = filled() else {
        return;
    };
    // The chunk is open, so pages that the program maps anew can be shown.
    let again = run(80, 10);
    space.map_anew(again, Some(LOAD_STORE)).unwrap();
    assert!(again.pages().all(|page| space.is_private(page)));
    leave(&space, 0);
    space.map_anew(again, Some(LOAD_STORE)).unwrap();
    assert!(again.pages().all(|page| !space.is_private(page)));
    let zeros = space.copy(Place::Region, again, Source::Zeros, false);
    assert_eq!(zeros, Done::all(10));
    assert!(space.store(85, 9) && space.contents(85)[0] == 9);
}

#[test]
fn what_the_program_drops_reads_as_zeros() {
    let Some(space) = filled() else {
        return;
    };
    space.zap(run(5, 1)).unwrap();
    assert_eq!(space.load(5), None);
    let zeros = space.copy(Place::Region, run(5, 1), Source::Zeros, false);
    assert_eq!((zeros, space.load(5)), (Done::all(1), Some(0)));
    space.zap(run(6, 1)).unwrap();
    // An absent page among those that settle.
    leave(&space, 5);
    space.put(Place::Region, 6, 3);
    assert_eq!((space.load(6), space.load(7)), (Some(3), Some(8)));
}

#[test]
fn of_many_runs_whole_chunks_settle() {
    let mut private = Private::new(16 * CHUNK_PAGES).unwrap();
    let chunk = run(14 * CHUNK_PAGES, CHUNK_PAGES);
    private.insert(chunk);
    let page = Run::one(chunk.first.plus(100));
    assert_eq!(private.unit(page), Some(Run::new(chunk.first.plus(64), 64)));
    (0..2000).for_each(|at| private.insert(run(2 * at, 1)));
    assert_eq!(private.unit(page), Some(chunk));
    assert_eq!(private.unit(run(7, 2)), Some(run(8, 1)));
    assert_eq!(private.unit(run(7, 1)), None);
}
