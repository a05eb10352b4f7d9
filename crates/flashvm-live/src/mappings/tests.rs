//! Compares mappings with an array of pages.

use super::*;
use proptest::prelude::*;

const PAGES: u32 = 1024;

/// The state of a page in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Free,
    Managed,
    Foreign,
}

/// The array, and whether each unit is promised.
struct Naive {
    pages: [Page; PAGES as usize],
    promised: [bool; (PAGES / UNIT_PAGES) as usize],
}

impl Naive {
    fn of(&mut self, first: PageId, count: u32) -> &mut [Page] {
        &mut self.pages[first.0 as usize..(first.0 + count) as usize]
    }

    fn promised_pages(&self) -> u64 {
        let units = self.promised.iter().filter(|&&promised| promised).count();
        units as u64 * u64::from(UNIT_PAGES)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32),
    Extend(u32, u32),
    Claim(u32, u32),
    ClaimForeign(u32, u32),
    Give(u32, u32),
    Commit(u32, u32),
    Uncommit(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || {
        (0..PAGES, prop_oneof![1..40u32, 500..600u32])
            .prop_map(|(at, count)| (at, count.min(PAGES - at)))
    };
    prop_oneof![
        prop_oneof![1..40u32, 500..600u32].prop_map(Step::Take),
        range().prop_map(|(at, count)| Step::Extend(at, count)),
        range().prop_map(|(at, count)| Step::Claim(at, count)),
        range().prop_map(|(at, count)| Step::ClaimForeign(at, count)),
        range().prop_map(|(at, count)| Step::Give(at, count)),
        range().prop_map(|(at, count)| Step::Commit(at, count)),
        range().prop_map(|(at, count)| Step::Uncommit(at, count)),
    ]
}

proptest! {
    #[test]
    fn like_an_array_of_pages(
        steps in prop::collection::vec(step(), 1..60),
        room in 0..u64::from(PAGES),
    ) {
        let mappings = Mappings::new(PAGES, false);
        let mut naive = Naive {
            pages: [Page::Free; PAGES as usize],
            promised: [false; (PAGES / UNIT_PAGES) as usize],
        };
        let promised = std::cell::Cell::new(0);
        for step in steps {
            match step {
                Step::Take(count) => if let Some(first) = mappings.take(count) {
                    let align = match count {
                        512.. => 512,
                        16..512 => 16,
                        _ => 1,
                    };
                    prop_assert!(first.0.is_multiple_of(align));
                    prop_assert!(naive.of(first, count).iter().all(|&page| page == Page::Free));
                    naive.of(first, count).fill(Page::Managed);
                },
                Step::Extend(end, count) => {
                    let free = naive.of(PageId(end), count).iter().all(|&page| page == Page::Free);
                    let behind = end > 0 && naive.pages[end as usize - 1] != Page::Free;
                    let extended = mappings.extend(PageId(end), count);
                    prop_assert_eq!(extended, free && behind);
                    if extended {
                        naive.of(PageId(end), count).fill(Page::Managed);
                    }
                }
                Step::Claim(at, count) => {
                    mappings.claim(PageId(at), count);
                    naive.of(PageId(at), count).fill(Page::Managed);
                    prop_assert_eq!(mappings.starting_at(PageId(at)), Some(count));
                }
                Step::ClaimForeign(at, count) => {
                    mappings.claim_foreign(PageId(at), count);
                    naive.of(PageId(at), count).fill(Page::Foreign);
                    prop_assert_eq!(mappings.starting_at(PageId(at)), Some(count));
                }
                Step::Give(at, count) => {
                    mappings.give(PageId(at), count);
                    naive.of(PageId(at), count).fill(Page::Free);
                    prop_assert_eq!(mappings.starting_at(PageId(at)), None);
                }
                Step::Commit(at, count) => {
                    let given = mappings.commit(PageId(at), count, |pages| {
                        assert!(pages > 0, "asked for nothing");
                        let fits = promised.get() + pages <= room;
                        promised.set(promised.get() + if fits { pages } else { 0 });
                        fits
                    });
                    if given {
                        for page in at..at + count {
                            naive.promised[(page / UNIT_PAGES) as usize] = true;
                        }
                    }
                }
                Step::Uncommit(at, count) => {
                    mappings.uncommit(PageId(at), count, |pages| {
                        promised.set(promised.get() - pages);
                    });
                    for unit in 0..PAGES / UNIT_PAGES {
                        let inside = unit * UNIT_PAGES >= at
                            && (unit + 1) * UNIT_PAGES <= at + count;
                        naive.promised[unit as usize] &= !inside;
                    }
                }
            }
            prop_assert_eq!(promised.get(), naive.promised_pages());
            let mut managed = [false; PAGES as usize];
            for (first, count) in mappings.managed() {
                for page in first.0..first.0 + count {
                    prop_assert!(!managed[page as usize], "twice in the runs");
                    managed[page as usize] = true;
                }
            }
            for page in 0..PAGES {
                let is = naive.pages[page as usize];
                prop_assert_eq!(mappings.is_foreign(PageId(page)), is == Page::Foreign);
                prop_assert_eq!(managed[page as usize], is == Page::Managed);
            }
            let part = naive.of(PageId(40), 100).to_vec();
            let count = |what| part.iter().filter(|&&page| page == what).count();
            prop_assert_eq!(mappings.foreign(PageId(40), 100), match count(Page::Foreign) {
                0 => Foreign::No,
                100 => Foreign::Whole,
                _ => Foreign::Part,
            });
            prop_assert_eq!(mappings.is_managed_whole(PageId(40), 100), count(Page::Managed) == 100);
        }
    }
}

/// A refused promise changes nothing; the next `commit` asks again.
#[test]
fn a_refused_promise_leaves_nothing() {
    let mappings = Mappings::new(PAGES, false);
    assert!(!mappings.commit(PageId(20), 20, |pages| {
        assert_eq!(pages, 32);
        false
    }));
    mappings.uncommit(PageId(0), PAGES, |pages| {
        panic!("{pages} pages were promised")
    });
    assert!(mappings.commit(PageId(20), 20, |_| true));
    // Only units that lie entirely in the range are given back.
    let mut given_back = 0;
    mappings.uncommit(PageId(17), 31, |pages| given_back = pages);
    assert_eq!(given_back, 16);
}

/// A lock that another thread held at the fork does not stop the child.
#[test]
fn a_child_does_not_wait_for_a_thread_it_does_not_have() {
    let mappings = Mappings::new(PAGES, false);
    let first = mappings.take(64).expect("room");
    std::mem::forget((mappings.places.lock(), mappings.committed.lock()));
    let child = mappings.for_child();
    assert!(child.places.try_lock().is_some() && child.committed.try_lock().is_some());
    assert_eq!(child.managed(), vec![(first, 64)]);
}

/// Managed pages become foreign and managed again.
#[test]
fn a_page_changes_hands() {
    let mappings = Mappings::new(PAGES, false);
    let first = mappings.take(64).expect("room");
    mappings.claim_foreign(first.plus(16), 16);
    let rest = vec![(first, 16), (first.plus(32), 32)];
    assert_eq!(mappings.managed(), rest);
    assert_eq!(mappings.foreign(first, 64), Foreign::Part);
    mappings.claim(first.plus(16), 16);
    assert!(mappings.is_managed_whole(first, 64));
    assert_eq!(mappings.starting_at(first.plus(32)), Some(32));
}

/// A huge page is wanted where the program asked for all of it, in what is still the same mapping.
#[test]
fn a_huge_page_is_wanted_as_a_whole() {
    let (huge, middle) = (HUGE_PAGES, PageId(HUGE_PAGES + 7));
    let mappings = Mappings::new(4 * huge, false);
    let first = mappings.take(2 * huge).expect("room");
    assert!(!mappings.is_huge(middle));
    mappings.want_huge(first.plus(1), 2 * huge - 1, true);
    assert!(!mappings.is_huge(first) && mappings.is_huge(middle));
    mappings.want_huge(middle, 1, false);
    assert!(!mappings.is_huge(middle));
    mappings.want_huge(middle, 1, true);
    assert!(mappings.is_huge(middle));
    mappings.give(middle, 1);
    assert!(!mappings.is_huge(middle));
}

/// Where every mapping has huge pages, the program may still ask for none.
#[test]
fn all_mappings_want_huge_pages() {
    let mappings = Mappings::new(4 * HUGE_PAGES, true);
    let first = mappings.take(HUGE_PAGES).expect("room");
    assert!(mappings.is_huge(first));
    let end = first.plus(HUGE_PAGES);
    assert!(!mappings.is_huge(end) && mappings.extend(end, HUGE_PAGES));
    assert!(mappings.is_huge(end));
    mappings.want_huge(first, HUGE_PAGES, false);
    mappings.claim_foreign(end, 1);
    assert!(!mappings.is_huge(first) && !mappings.is_huge(end));
}
