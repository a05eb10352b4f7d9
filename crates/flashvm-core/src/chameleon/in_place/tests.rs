//! Slots against a naive model, a map from page to contents: torn writes, pages that are stored to
//! or freed while they are written, another process that reads the data of a fork.

use super::*;
use crate::LocalClusters;
use crate::chameleon::{Check, FrameId, SECTOR_BYTES};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BLOCKS: u32 = 12;

/// The clusters of a store that another process shares.
struct Clusters {
    store: LocalClusters,
    ours: BTreeSet<u32>,
    others: BTreeSet<u32>,
}

impl ClusterSource for Clusters {
    fn lease(&mut self) -> Option<ClusterId> {
        let cluster = self.store.lease()?;
        self.ours.insert(cluster.0);
        Some(cluster)
    }

    fn release(&mut self, cluster: ClusterId) {
        assert!(self.ours.remove(&cluster.0), "{cluster:?} is not ours");
        if !self.others.contains(&cluster.0) {
            self.store.release(cluster);
        }
    }

    fn shared(&self, cluster: ClusterId) -> bool {
        self.others.contains(&cluster.0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Hands out pages.
    TakePages(Shape, u32),
    /// Frees one page, chosen by index.
    Free(usize),
    /// The program stores to a page, which is in a frame from then on.
    Change(usize, u8),
    /// Writes changed pages. Meanwhile some are stored to, others freed; the write may fail.
    Round {
        fails: bool,
        stored: Vec<usize>,
        freed: Vec<usize>,
    },
    Fork,
    /// The other process ends.
    OtherEnds,
}

fn step() -> impl Strategy<Value = Step> {
    let shape = (1_u8..=15).prop_map(|number| Shape::from_number(number).expect("a shape"));
    let some = || prop::collection::vec(any::<usize>(), 0..4);
    prop_oneof![
        2 => (shape, 1_u32..=64).prop_map(|(shape, count)| Step::TakePages(shape, count)),
        4 => any::<usize>().prop_map(Step::Free),
        12 => (any::<usize>(), any::<u8>()).prop_map(|(at, fill)| Step::Change(at, fill)),
        4 => (prop::bool::weighted(0.1), some(), some())
            .prop_map(|(fails, stored, freed)| Step::Round { fails, stored, freed }),
        1 => Just(Step::Fork),
        1 => Just(Step::OtherEnds),
    ]
}

struct World {
    in_place: InPlace,
    table: Table,
    clusters: Clusters,
    /// By sector of the store.
    flash: BTreeMap<u64, [u8; SECTOR_BYTES]>,
    /// The contents of each page: this byte pattern, repeated.
    model: BTreeMap<Svmp, (Shape, u64)>,
    changed: BTreeSet<Svmp>,
    /// The pages of the other process.
    others: Vec<(Location, Shape, u64)>,
    next: u32,
    stores: u64,
    /// A write failed or a fork happened: there may be too few slots.
    short: bool,
}

impl World {
    fn new() -> Self {
        Self {
            in_place: InPlace::new(BLOCKS),
            table: Table::new(),
            clusters: Clusters {
                store: LocalClusters::new(BLOCKS),
                ours: BTreeSet::new(),
                others: BTreeSet::new(),
            },
            flash: BTreeMap::new(),
            model: BTreeMap::new(),
            changed: BTreeSet::new(),
            others: Vec::new(),
            next: 0,
            stores: 0,
            short: false,
        }
    }

    fn some_page(&self, at: usize) -> Option<Svmp> {
        let count = self.model.len();
        (count > 0).then(|| {
            *self
                .model
                .keys()
                .nth(at % count)
                .expect("an index below the count")
        })
    }

    fn write(&mut self, at: Location, shape: Shape, contents: u64) {
        let mut sector = [0; SECTOR_BYTES];
        for word in sector.chunks_exact_mut(8) {
            word.copy_from_slice(&contents.to_le_bytes());
        }
        let first = at.offset() / SECTOR_BYTES as u64;
        for at in first..first + u64::from(shape.sectors()) {
            self.flash.insert(at, sector);
        }
    }

    fn reads(&self, at: Location, shape: Shape, contents: u64) -> bool {
        let first = at.offset() / SECTOR_BYTES as u64;
        (first..first + u64::from(shape.sectors())).all(|at| {
            self.flash.get(&at).is_some_and(|sector| {
                sector
                    .chunks_exact(8)
                    .all(|word| word == contents.to_le_bytes())
            })
        })
    }

    fn take_pages(&mut self, shape: Shape, count: u32) {
        if self
            .in_place
            .promise(&mut self.clusters, shape, count)
            .is_err()
        {
            return;
        }
        for page in self.next..self.next + count {
            self.table.set(Svmp(page), shape, SvmpState::Fresh);
            self.model.insert(Svmp(page), (shape, 0));
        }
        self.next += count;
    }

    fn free(&mut self, page: Svmp) {
        let Some((shape, _)) = self.model.remove(&page) else {
            return;
        };
        if let Some(at) = self.table.get(page).1.location() {
            self.in_place.release(&mut self.clusters, at, shape);
        }
        self.table.set(page, shape, SvmpState::Absent);
        self.in_place.forget(&mut self.clusters, shape, 1);
        self.changed.remove(&page);
    }

    fn change(&mut self, page: Svmp, fill: u8) {
        self.stores += 1;
        let (shape, contents) = self.model.get_mut(&page).expect("a page of the model");
        *contents = self.stores << 8 | u64::from(fill);
        let location = self.table.get(page).1.location();
        self.table.set(
            page,
            *shape,
            SvmpState::Condemned(FrameId(page.0), location),
        );
        self.changed.insert(page);
    }

    fn round(&mut self, fails: bool, stored: &[usize], freed: &[usize]) {
        let mut writes = Vec::new();
        for page in std::mem::take(&mut self.changed) {
            let begun = self
                .in_place
                .begin(&mut self.table, &mut self.clusters, page);
            match begun {
                Ok(slot) => {
                    let (shape, contents) = self.model[&page];
                    writes.push((page, shape, slot, contents));
                }
                Err(Full) => {
                    assert!(self.short, "there is a slot for each page");
                    self.changed.insert(page);
                }
            }
        }
        for &(_, shape, slot, contents) in &writes {
            assert!(!self.clusters.shared(ClusterId(slot.block())));
            assert!(slot.sector().is_multiple_of(shape.sectors()));
            assert!(self.clusters.ours.contains(&slot.block()));
            self.write(slot, shape, if fails { 0xbad } else { contents });
        }
        for &at in stored {
            if let Some(page) = self.some_page(at) {
                self.change(page, 1);
            }
        }
        for &at in freed {
            if let Some(page) = self.some_page(at) {
                self.free(page);
            }
        }
        for &(_, _, slot, _) in &writes {
            assert!(
                self.clusters.ours.contains(&slot.block()),
                "given up while it was written"
            );
        }
        if fails {
            self.short = true;
            self.in_place
                .fail(writes.iter().map(|&(_, shape, ..)| shape));
            for (page, ..) in writes {
                if self.model.contains_key(&page) {
                    self.changed.insert(page);
                }
            }
            return;
        }
        for (page, shape, slot, contents) in writes {
            let Self {
                in_place,
                table,
                clusters,
                ..
            } = self;
            let place = in_place.commit(table, clusters, page, shape, slot);
            assert_eq!(place.is_some(), self.model.contains_key(&page));
            if place.is_some() && self.model[&page].1 == contents {
                let check = Check::of(contents);
                self.table.set(page, shape, SvmpState::OnFlash(slot, check));
            }
        }
    }

    fn fork(&mut self) {
        if !self.clusters.others.is_empty() {
            return;
        }
        self.short = true;
        self.clusters.others = self.clusters.ours.clone();
        let pages = self
            .table
            .pages()
            .filter_map(|(_, shape, place)| match place {
                SvmpState::OnFlash(at, check) => Some((at, shape, u64::from(check))),
                _ => None,
            });
        self.others = pages.collect();
        self.in_place.forked(&mut self.clusters);
    }

    fn other_ends(&mut self) {
        self.others.clear();
        for cluster in std::mem::take(&mut self.clusters.others) {
            if !self.clusters.ours.contains(&cluster) {
                self.clusters.store.release(ClusterId(cluster));
            }
        }
    }

    fn check(&self) {
        let mut slots = BTreeSet::new();
        for (&page, &(shape, contents)) in &self.model {
            let (found, place) = self.table.get(page);
            assert_eq!(found, shape);
            if let Some(at) = place.location() {
                let first = at.offset() / SECTOR_BYTES as u64;
                for sector in first..first + u64::from(shape.sectors()) {
                    assert!(slots.insert(sector), "{page:?} shares a sector");
                }
                assert!(self.clusters.ours.contains(&at.block()));
            }
            match place {
                SvmpState::Fresh => assert_eq!(contents, 0),
                SvmpState::OnFlash(at, _) => {
                    assert!(self.reads(at, shape, contents), "{page:?} is lost")
                }
                SvmpState::Condemned(..) => assert!(self.changed.contains(&page)),
                place => panic!("{page:?} is {place:?}"),
            }
        }
        for &(at, shape, contents) in &self.others {
            // The table keeps 24 bits of the model's checksum.
            let first = self.flash[&(at.offset() / SECTOR_BYTES as u64)];
            let there = u64::from_le_bytes(first[..8].try_into().expect("eight bytes"));
            assert_eq!(
                u64::from(Check::of(there)),
                contents,
                "the other process lost a page"
            );
            assert!(self.reads(at, shape, there));
        }
        assert_eq!(self.in_place.held() as usize, self.clusters.ours.len());
        let counters = self.in_place.counters;
        assert!(counters.bytes_written >= counters.bytes_changed);
    }
}

proptest! {
    #[test]
    fn no_page_is_lost(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::TakePages(shape, count) => world.take_pages(shape, count),
                Step::Free(at) => if let Some(page) = world.some_page(at) {
                    world.free(page);
                },
                Step::Change(at, fill) => if let Some(page) = world.some_page(at) {
                    world.change(page, fill);
                },
                Step::Round { fails, stored, freed } => world.round(fails, &stored, &freed),
                Step::Fork => world.fork(),
                Step::OtherEnds => world.other_ends(),
            }
            world.check();
        }
        for page in world.model.keys().copied().collect::<Vec<_>>() {
            world.free(page);
        }
        world.check();
        if !world.short {
            prop_assert_eq!(world.in_place.held(), 0);
        }
    }
}

/// A page is written in place, and nothing else with it: write amplification is 1.
#[test]
fn writes_in_place_have_an_amplification_of_one() {
    let mut world = World::new();
    world.take_pages(Shape::ALL[14], 64);
    let mut places = BTreeSet::new();
    for round in 0..10 {
        for page in 0..64 {
            world.change(Svmp(page), round);
        }
        world.round(false, &[], &[]);
        world.check();
        let now = (0..64).map(|page| world.table.get(Svmp(page)).1.location());
        places.extend(now.flatten());
    }
    assert_eq!(places.len(), 64);
    let counters = world.in_place.counters;
    assert_eq!(counters.pages_changed, 640);
    assert_eq!(counters.bytes_changed, 640 * SECTOR_BYTES as u64);
    assert_eq!(counters.bytes_written, counters.bytes_changed);
}

/// The allocator is refused what the store cannot hold, whatever sizes came before.
#[test]
fn a_full_store_refuses_new_pages() {
    let mut world = World::new();
    let (small, whole) = (Shape::ALL[14], Shape::WHOLE);
    world.take_pages(small, 3 * 512);
    assert_eq!(world.in_place.held(), 3);
    world.take_pages(whole, 9 * 64);
    assert_eq!(world.in_place.held(), BLOCKS);
    assert_eq!(
        world.in_place.promise(&mut world.clusters, whole, 1),
        Err(Full)
    );
    // In each block of small slots one page stays: larger pages find no room.
    for page in 0..3 * 512 {
        world.change(Svmp(page), 0);
    }
    world.round(false, &[], &[]);
    for page in (0..3 * 512).filter(|page| page % 512 > 0) {
        world.free(Svmp(page));
    }
    assert_eq!(world.in_place.held(), BLOCKS);
    assert_eq!(
        world.in_place.promise(&mut world.clusters, whole, 1),
        Err(Full)
    );
    world.free(Svmp(0));
    assert_eq!(
        world.in_place.promise(&mut world.clusters, whole, 64),
        Ok(())
    );
    world.check();
}
