//! Parked actions, on an address space that postpones what a test says.

use super::*;
use crate::event::Packed;
use crate::ids::{HUGE_PAGES, IoId};
use crate::space::Mapping;
use std::collections::HashMap;

/// An address space whose pages have one byte each.
struct FakeSpace {
    region: HashMap<u32, u8>,
    shadow: HashMap<u32, u8>,
    protected: HashSet<u32>,
    reads: HashMap<IoId, Vec<u8>>,
    /// Pages that the kernel still changes before it postpones every call.
    allowed: u32,
    woken: Vec<(u32, u32)>,
}

/// All pages are mapped; those from this one on have stale copies.
struct StaleFrom(u32);

impl Pages for StaleFrom {
    fn state(&self, _: PageId) -> PageState {
        PageState::Mapped
    }

    fn is_protected(&self, _: PageId) -> bool {
        false
    }

    fn is_stale(&self, page: PageId) -> bool {
        page.0 >= self.0
    }
}

impl FakeSpace {
    fn pages(&mut self, place: Place) -> &mut HashMap<u32, u8> {
        match place {
            Place::Region => &mut self.region,
            Place::Shadow => &mut self.shadow,
        }
    }

    fn may(&mut self) -> bool {
        let may = self.allowed > 0;
        self.allowed = self.allowed.saturating_sub(1);
        may
    }
}

fn unpacked(from: Packed) -> u8 {
    match from {
        Packed::Pool(object) => object.bytes as u8,
        Packed::Read { bytes, .. } => bytes as u8,
    }
}

impl Executor for FakeSpace {
    type Space = Self;
    type Kept = Vec<u8>;

    fn space(&mut self) -> &mut Self {
        self
    }

    fn copy(
        &mut self,
        place: Place,
        run: Run,
        from: &Contents<'_, Vec<u8>>,
        protect: bool,
    ) -> Done {
        for done in 0..run.count {
            let page = run.first.0 + done;
            let byte = match *from {
                Contents::Zeros => 0,
                Contents::Page(from, first) => self.pages(from)[&(first.0 + done)],
                Contents::Read(io, index) => self.reads[&io][(index + done) as usize],
                // The page's byte is its compressed length: contents that differ from page to page.
                Contents::Packed(from) => unpacked(from[done as usize]),
                Contents::Kept(bytes, index) => bytes[(index + done) as usize],
            };
            if !self.may() {
                return Done::stopped(done, Stop::Again);
            }
            assert!(self.pages(place).insert(page, byte).is_none());
            if protect {
                self.protected.insert(page);
            }
        }
        Done::all(run.count)
    }

    fn leave_frames(&mut self, _: Run) {}

    fn keep(&self, io: IoId, index: u32, count: u32) -> Vec<u8> {
        self.reads[&io][index as usize..][..count as usize].to_vec()
    }

    fn inflate(&self, from: &Packed) -> Vec<u8> {
        vec![unpacked(*from)]
    }

    fn part(kept: &Vec<u8>, index: u32, count: u32) -> Vec<u8> {
        kept[index as usize..][..count as usize].to_vec()
    }

    fn address(&self, page: PageId) -> usize {
        page.0 as usize
    }

    fn tell_lost(&mut self, _: PageId) {}

    fn fail(&self, why: &str) -> ! {
        panic!("{why}")
    }
}

impl AddressSpace for FakeSpace {
    fn has_shadow(&self) -> bool {
        true
    }

    fn shift(&mut self, to: Place, run: Run) -> Done {
        let from = match to {
            Place::Region => Place::Shadow,
            Place::Shadow => Place::Region,
        };
        for done in 0..run.count {
            if !self.may() {
                return Done::stopped(done, Stop::Again);
            }
            let page = run.first.0 + done;
            let byte = self.pages(from).remove(&page).expect("at its source");
            assert!(self.pages(to).insert(page, byte).is_none());
        }
        Done::all(run.count)
    }

    fn relocate(&mut self, _: Place, _: PageId, _: PageId) -> Done {
        unreachable!("no test relocates")
    }

    fn zero_huge(&mut self, first: PageId) -> Done {
        self.copy(
            Place::Region,
            Run::new(first, HUGE_PAGES),
            &Contents::Zeros,
            false,
        )
    }

    fn protect(&mut self, run: Run, on: bool) -> Result<(), Stop> {
        if !self.may() {
            return Err(Stop::Again);
        }
        for page in run.pages().map(|page| page.0) {
            if on {
                self.protected.insert(page);
            } else {
                self.protected.remove(&page);
            }
        }
        Ok(())
    }

    fn poison(&mut self, _: PageId) -> Result<(), Stop> {
        if self.may() { Ok(()) } else { Err(Stop::Again) }
    }

    fn wake(&mut self, run: Run) {
        self.woken.push((run.first.0, run.count));
    }

    fn zap(&mut self, place: Place, runs: &[Run]) -> Result<(), Stop> {
        for page in runs.iter().flat_map(|run| run.pages()) {
            self.pages(place).remove(&page.0);
        }
        Ok(())
    }

    fn holds(&self, place: Place, page: PageId) -> bool {
        match place {
            Place::Region => self.region.contains_key(&page.0),
            Place::Shadow => self.shadow.contains_key(&page.0),
        }
    }

    fn unshare(&mut self, _: PageId) -> bool {
        false
    }

    fn mapping(&self, _: PageId) -> Option<Mapping> {
        None
    }

    fn open_to_moves(&mut self, _: Run, _: u32) -> Result<(), Stop> {
        unreachable!("no mapping is protected")
    }

    fn close_to_moves(&mut self, _: Run, _: u32) -> Result<(), Stop> {
        unreachable!("no mapping is protected")
    }
}

/// A placement with its surroundings.
struct Bench {
    placement: Placement<Vec<u8>>,
    space: FakeSpace,
    events: VecDeque<Event>,
}

const IO: IoId = IoId(1);

impl Bench {
    /// A bench whose kernel postpones calls after `allowed` pages. Read 1 has brought bytes from 10 on.
    fn new(allowed: u32) -> Self {
        Self {
            placement: Placement::default(),
            space: FakeSpace {
                region: HashMap::new(),
                shadow: HashMap::new(),
                protected: HashSet::new(),
                reads: HashMap::from([(IO, (10..30).collect())]),
                allowed,
                woken: Vec::new(),
            },
            events: VecDeque::new(),
        }
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Placement<Vec<u8>>, &mut ActionContext<'_, FakeSpace, StaleFrom>) -> T,
    ) -> T {
        let mut context = ActionContext {
            executor: &mut self.space,
            engine: &StaleFrom(50),
            events: &mut self.events,
        };
        work(&mut self.placement, &mut context)
    }

    fn carry_out(&mut self, action: Action) {
        self.with(|placement, context| placement.carry_out(context, &action));
    }

    /// The kernel goes on for `allowed` pages. Returns whether nothing is left.
    fn retry(&mut self, allowed: u32) -> bool {
        self.space.allowed = allowed;
        self.with(|placement, context| placement.retry(context))
    }

    fn region(&self) -> Vec<(u32, u8)> {
        let mut pages: Vec<_> = self
            .space
            .region
            .iter()
            .map(|(&page, &byte)| (page, byte))
            .collect();
        pages.sort_unstable();
        pages
    }
}

fn map(first: u32, count: u32, index: u32) -> Action {
    Action::Map {
        io: IO,
        index,
        first: PageId(first),
        count,
        place: Place::Region,
        protect: true,
    }
}

fn zero(first: u32, count: u32) -> Action {
    Action::Zero {
        first: PageId(first),
        count,
        protect: false,
    }
}

#[test]
fn a_postponed_map_continues_where_it_stopped_with_the_contents_of_its_read() {
    let mut bench = Bench::new(2);
    bench.carry_out(map(100, 5, 3));
    assert!(bench.placement.is_parked());
    assert!(bench.placement.is_parked_on(PageId(102), 1));
    assert!(bench.placement.is_parked_on(PageId(90), 13));
    assert!(
        !bench.placement.is_parked_on(PageId(100), 2),
        "done already"
    );
    assert!(!bench.placement.is_parked_on(PageId(105), 1));
    // By now another read uses the buffer.
    bench.space.reads.insert(IO, vec![99; 20]);
    assert!(!bench.retry(1));
    assert!(!bench.retry(1));
    assert!(bench.retry(1));
    let bytes = [(100, 13), (101, 14), (102, 15), (103, 16), (104, 17)];
    assert_eq!(bench.region(), bytes);
    assert_eq!(bench.space.protected.len(), 5);
}

#[test]
fn later_actions_on_parked_pages_wait_behind_them() {
    let mut bench = Bench::new(0);
    bench.carry_out(map(1, 2, 0));
    bench.space.allowed = 8;
    // The page is not there yet, so it has no protection to remove.
    bench.carry_out(Action::Unprotect { page: PageId(2) });
    assert_eq!(bench.space.allowed, 8, "nothing was tried");
    // Parked actions do not delay actions on other pages.
    bench.carry_out(zero(7, 1));
    assert_eq!(bench.region(), [(7, 0)]);
    assert!(bench.retry(8));
    assert_eq!(bench.region(), [(1, 10), (2, 11), (7, 0)]);
    assert_eq!(bench.space.protected, HashSet::from([1]));
}

#[test]
fn a_retry_stops_at_the_first_action_that_is_postponed_again() {
    let mut bench = Bench::new(0);
    bench.carry_out(zero(1, 1));
    bench.carry_out(zero(2, 1));
    bench.carry_out(zero(3, 1));
    assert!(!bench.retry(2));
    assert_eq!(bench.region(), [(1, 0), (2, 0)]);
    assert!(bench.placement.is_parked_on(PageId(3), 1));
    assert!(bench.retry(1));
}

#[test]
fn pages_that_are_not_there_yet_do_not_leave() {
    let mut bench = Bench::new(0);
    bench.carry_out(zero(4, 2));
    bench.carry_out(Action::Shadow {
        first: PageId(5),
        count: 1,
    });
    assert_eq!(bench.events, [Event::Refused { page: PageId(5) }]);
    assert!(bench.retry(2));
    assert_eq!(bench.region(), [(4, 0), (5, 0)]);
}

#[test]
fn drops_wait_for_what_is_parked() {
    let mut bench = Bench::new(0);
    bench.space.shadow.insert(9, 3);
    let restore = Action::Restore { page: PageId(9) };
    let drop = Action::Drop {
        first: PageId(9),
        count: 1,
    };
    bench.carry_out(restore);
    let dropped = bench.with(|placement, context| placement.carry_out_first(context, &[drop]));
    assert_eq!(dropped, 0);
    assert_eq!(bench.space.shadow.get(&9), Some(&3));
    assert!(bench.retry(1));
    assert_eq!(bench.region(), [(9, 3)]);
    assert_eq!(
        bench.with(|placement, context| placement.carry_out_first(context, &[drop, restore])),
        1
    );
}

/// A page whose one byte is the length of its object.
fn inflate(page: u32, byte: u8) -> Action {
    Action::Inflate {
        page: PageId(page),
        from: Packed::Read {
            io: IO,
            skip: 0,
            bytes: byte.into(),
        },
        place: Place::Region,
        protect: false,
    }
}

#[test]
fn neighbours_are_decompressed_together() {
    let mut actions = vec![inflate(5, 20), inflate(6, 21), inflate(7, 22)];
    actions.extend([inflate(9, 23), zero(10, 1)]);
    for allowed in 0..=3 {
        let mut bench = Bench::new(allowed);
        let first = |bench: &mut Bench, actions: &[Action]| {
            bench.with(|placement, context| placement.carry_out_first(context, actions))
        };
        assert_eq!(first(&mut bench, &actions), 3);
        let there = [(5, 20), (6, 21), (7, 22)];
        assert_eq!(bench.region(), there[..allowed as usize]);
        if allowed < 3 {
            assert_eq!(
                first(&mut bench, &actions[3..]),
                0,
                "others wait their turn"
            );
            assert!(bench.retry(8));
            assert_eq!(bench.region(), there);
        }
        bench.space.allowed = 8;
        assert_eq!(first(&mut bench, &actions[3..]), 1);
        assert_eq!(first(&mut bench, &actions[4..]), 0);
    }
}

#[test]
fn no_more_is_decompressed_together_than_the_buffer_holds() {
    let actions: Vec<_> = (0..40).map(|page| inflate(page, page as u8)).collect();
    let mut bench = Bench::new(40);
    let done = bench.with(|placement, context| placement.carry_out_first(context, &actions));
    assert_eq!(done, INFLATE_PAGES_MAX as usize);
}

#[test]
fn a_zapped_range_takes_its_part_of_a_parked_action_with_it() {
    for start in 0..=6 {
        for count in 1..=7 {
            let mut bench = Bench::new(0);
            bench.carry_out(map(2, 3, 4));
            bench.with(|placement, context| placement.forget_parked(context, PageId(start), count));
            let zapped = start..start + count;
            let hit: Vec<u32> = (2..5).filter(|page| zapped.contains(page)).collect();
            let woken: Vec<u32> = bench
                .space
                .woken
                .iter()
                .flat_map(|&(at, n)| at..at + n)
                .collect();
            assert_eq!(woken, hit, "who waits there tries again");
            assert!(bench.retry(8));
            let left: Vec<(u32, u8)> = (2..5)
                .filter(|page| !zapped.contains(page))
                .map(|page| (page, page as u8 + 12))
                .collect();
            assert_eq!(bench.region(), left);
        }
    }
}

#[test]
fn a_zap_takes_the_shadow_of_a_parked_restore_with_it() {
    let mut bench = Bench::new(0);
    bench.space.shadow.insert(6, 1);
    bench.carry_out(Action::Restore { page: PageId(6) });
    bench.with(|placement, context| placement.forget_parked(context, PageId(6), 1));
    assert!(!bench.placement.is_parked());
    assert!(bench.space.shadow.is_empty() && bench.space.region.is_empty());
    assert_eq!(bench.space.woken, [(6, 1)]);
}

#[test]
fn a_wait_ends_with_the_action_that_resolves_it() {
    let mut bench = Bench::new(0);
    bench.placement.await_page(PageId(3), Nanos(5));
    bench.placement.await_page(PageId(8), Nanos(6));
    let shadow = Action::Shadow {
        first: PageId(0),
        count: 9,
    };
    let mut ended = Vec::new();
    assert!(
        !bench
            .placement
            .end_waits(&shadow, |_, since| ended.push(since))
    );
    assert!(
        bench
            .placement
            .end_waits(&zero(0, 4), |_, since| ended.push(since))
    );
    assert_eq!(ended, [Nanos(5)]);
    assert!(!bench.placement.is_awaited(Some(PageId(3))) && bench.placement.is_awaited(None));
}

/// A program may zap a mapped page before its stale copy is dropped.
#[test]
fn a_stale_copy_is_no_contradiction() {
    let mut bench = Bench::new(8);
    bench.space.shadow.insert(60, 3);
    let mapped = bench.with(|placement, context| placement.resolve_spurious(context, PageId(60)));
    assert!(mapped);
    assert_eq!(bench.region(), [(60, 0)]);
}

#[test]
#[should_panic(expected = "was touched, and is in the shadow alone")]
fn a_mapped_page_that_is_in_the_shadow_alone_is_one() {
    let mut bench = Bench::new(8);
    bench.space.shadow.insert(40, 3);
    bench.with(|placement, context| placement.resolve_spurious(context, PageId(40)));
}
