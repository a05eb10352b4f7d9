//! The log against a naive model, a map from page to contents. Flash fails by a seed: failed reads,
//! failed writes, flipped bits.

use super::*;
use crate::LocalClusters;
use crate::chameleon::block::{back_pointers, write_header};
use crate::chameleon::{Check, FrameId, SECTOR_BYTES, Svmp};
use std::collections::BTreeMap;

const BLOCKS: u32 = 24;
const PAGES: u32 = 3000;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n)) as u32
    }

    fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.below(n) == 0
    }
}

/// One in this many operations fails; 0: none.
#[derive(Clone, Copy)]
struct Faults {
    read: u32,
    write: u32,
    flip: u32,
}

struct World {
    rng: Rng,
    faults: Faults,
    log: Log,
    table: Table,
    clusters: LocalClusters,
    flash: BTreeMap<u32, Vec<u8>>,
    /// The contents of each page.
    model: BTreeMap<Svmp, (Shape, Vec<u8>)>,
    /// Checksum of the copy on flash of each page.
    on_flash: BTreeMap<Svmp, Check>,
    /// Changed pages, which lie in frames.
    changed: Vec<Svmp>,
    full: u32,
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        Self {
            rng: Rng(seed),
            faults,
            log: Log::new(BLOCKS),
            table: Table::new(),
            clusters: LocalClusters::new(BLOCKS),
            flash: BTreeMap::new(),
            model: BTreeMap::new(),
            on_flash: BTreeMap::new(),
            changed: Vec::new(),
            full: 0,
        }
    }

    fn contents(&mut self, shape: Shape) -> Vec<u8> {
        let seed = self.rng.next().to_le_bytes();
        seed.iter().copied().cycle().take(shape.size()).collect()
    }

    /// The program stores to a page, which is in a frame from then on.
    fn change(&mut self, page: Svmp) {
        let shape = match self.model.get(&page) {
            Some((shape, _)) => *shape,
            None => Shape::from_number(1 + self.rng.below(15) as u8).unwrap(),
        };
        let contents = self.contents(shape);
        let location = match self.table.get(page) {
            (_, SvmpState::Absent) => None,
            (_, place) => place.location(),
        };
        self.table
            .set(page, shape, SvmpState::Condemned(FrameId(page.0), location));
        self.model.insert(page, (shape, contents));
        if !self.changed.contains(&page) {
            self.changed.push(page);
        }
    }

    fn free(&mut self, page: Svmp) {
        if self.model.remove(&page).is_some() {
            let (shape, place) = self.table.get(page);
            if let Some(location) = place.location() {
                self.log.release(&mut self.clusters, location, shape);
            }
            self.table.set(page, shape, SvmpState::Absent);
            self.changed.retain(|other| *other != page);
        }
    }

    fn round(&mut self) {
        let most = if self.rng.one_in(3) {
            self.log.fewest()
        } else {
            BLOCKS
        };
        let Ok(round) = self.log.begin(&mut self.clusters, most) else {
            self.full += 1;
            return;
        };
        let mut bytes = vec![0; BLOCK_BYTES];
        let mut layout = BlockLayout::default();
        if let Some(source) = round.source {
            let mut contents = self.flash[&source].clone();
            if self.rng.one_in(self.faults.flip) {
                let at = self.rng.below(BLOCK_BYTES as u32) as usize;
                contents[at] ^= 1 << self.rng.below(8);
            }
            let readable = !self.rng.one_in(self.faults.read);
            let pointers = readable.then(|| back_pointers(&contents)).flatten();
            let on_flash = &self.on_flash;
            let matches = |pointer: &BackPointer, _| {
                on_flash[&pointer.page] == Check::of(checksum(&contents[pointer.range()]))
            };
            let kept = self
                .log
                .keep_live(&self.table, pointers, matches, &mut layout);
            for (from, to) in kept.iter().flatten().zip(layout.pointers()) {
                bytes[to.range()].copy_from_slice(&contents[from.range()]);
            }
        }
        let mut put = 0;
        for page in &self.changed {
            let (shape, contents) = &self.model[page];
            let Some(sector) = layout.push(*page, *shape) else {
                break;
            };
            let start = sector as usize * SECTOR_BYTES;
            bytes[start..start + contents.len()].copy_from_slice(contents);
            put += 1;
        }
        let (len, pointers) = (layout.bytes(), layout.pointers());
        write_header(&mut bytes, pointers);
        // What the program does while the write is under way.
        let in_flight: Vec<Svmp> = self.changed[..put].to_vec();
        let mut again = Vec::new();
        for page in in_flight {
            if self.rng.one_in(20) {
                self.change(page);
                again.push(page);
            } else if self.rng.one_in(40) {
                self.free(page);
            }
        }
        for _ in 0..self.rng.below(8) {
            let page = Svmp(self.rng.below(PAGES));
            self.free(page);
        }
        if self.rng.one_in(self.faults.write) {
            // A failed write leaves arbitrary contents.
            self.flash.insert(round.target, vec![0x5a; BLOCK_BYTES]);
            self.log.abandon(&mut self.clusters);
            return;
        }
        let checks: BTreeMap<Svmp, Check> = pointers[pointers.len() - put..]
            .iter()
            .map(|pointer| (pointer.page, Check::of(checksum(&bytes[pointer.range()]))))
            .collect();
        self.flash.insert(round.target, bytes);
        let mut written = Vec::new();
        self.log.commit(
            &mut self.table,
            &mut self.clusters,
            len,
            pointers,
            |pointer, _| {
                written.push(pointer.page);
            },
        );
        for page in written {
            self.on_flash.insert(page, checks[&page]);
            if again.contains(&page) {
                continue;
            }
            // The page is evicted: another page takes its frame.
            let (shape, place) = self.table.get(page);
            let check = Check::of(checksum(&self.model[&page].1));
            let location = place.location().expect("just written");
            self.table
                .set(page, shape, SvmpState::OnFlash(location, check));
            self.changed.retain(|other| *other != page);
        }
    }

    /// Every page that is only on flash can be read; every block's count is right.
    fn check(&self) {
        let mut live = vec![0; BLOCKS as usize];
        for (&page, (shape, contents)) in &self.model {
            let (found, place) = self.table.get(page);
            assert_eq!(found, *shape);
            if let Some(location) = place.location() {
                live[location.block() as usize] += shape.sectors();
            }
            match place {
                SvmpState::OnFlash(location, check) => {
                    let at = location.sector() as usize * 512;
                    let there = &self.flash[&location.block()][at..at + shape.size()];
                    assert!(there == &contents[..], "{page:?} is lost");
                    assert_eq!(check, Check::of(checksum(there)));
                }
                SvmpState::Condemned(..) => assert!(self.changed.contains(&page)),
                place => panic!("{page:?} is {place:?}"),
            }
        }
        assert_eq!(self.table.pages().count(), self.model.len());
        let counted: Vec<u32> = self.log.live.iter().map(|&live| live.into()).collect();
        assert_eq!(counted, live);
        assert_eq!(self.log.live_sectors, u64::from(live.iter().sum::<u32>()));
        let held = self
            .log
            .states
            .iter()
            .filter(|state| **state != State::Foreign);
        assert_eq!(self.log.held as usize, held.count());
    }
}

fn run(seed: u64, faults: Faults, rounds: u32) -> World {
    let mut world = World::new(seed, faults);
    for _ in 0..rounds {
        for _ in 0..world.rng.below(60) {
            let page = Svmp(world.rng.below(PAGES));
            if world.rng.one_in(6) {
                world.free(page);
            } else {
                world.change(page);
            }
        }
        world.round();
        world.check();
    }
    world
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("FLASHVM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

#[test]
fn cleaning_never_loses_a_live_page() {
    for seed in seeds(12) {
        println!("FLASHVM_SEED={seed}");
        let faults = Faults {
            read: if seed % 3 == 0 { 0 } else { 40 },
            write: if seed % 2 == 0 { 0 } else { 40 },
            flip: if seed % 4 < 2 { 0 } else { 10 },
        };
        let world = run(seed, faults, 100);
        let counters = world.log.counters();
        assert!(counters.rounds > 20, "{counters:?}");
    }
}

#[test]
fn without_faults_no_block_is_given_up() {
    let none = Faults {
        read: 0,
        write: 0,
        flip: 0,
    };
    for seed in seeds(3) {
        println!("FLASHVM_SEED={seed}");
        let world = run(seed, none, 300);
        let counters = world.log.counters();
        assert_eq!(counters.blocks_bad, 0);
        assert!(
            counters.cleaned > 50 && counters.pages_moved > 0,
            "{counters:?}"
        );
        assert!(counters.bytes_written > counters.bytes_changed);
        assert!(counters.bytes_changed > 0);
    }
}

#[test]
fn a_full_log_refuses_rounds_until_pages_are_freed() {
    let none = Faults {
        read: 0,
        write: 0,
        flip: 0,
    };
    let mut world = World::new(1, none);
    let mut page = 0;
    while world.full == 0 {
        for _ in 0..200 {
            let at = Svmp(page);
            let contents = world.contents(Shape::WHOLE);
            world
                .table
                .set(at, Shape::WHOLE, SvmpState::Condemned(FrameId(page), None));
            world.model.insert(at, (Shape::WHOLE, contents));
            world.changed.push(at);
            page += 1;
        }
        while world.changed.len() > 100 && world.full == 0 {
            world.round();
            world.changed.retain(|page| world.model.contains_key(page));
        }
    }
    world.check();
    for page in (0..page).step_by(2) {
        world.free(Svmp(page));
    }
    let before = world.log.counters().rounds;
    world.round();
    world.check();
    assert_eq!(world.log.counters().rounds, before + 1);
}

#[test]
fn a_fork_releases_empty_blocks() {
    let none = Faults {
        read: 0,
        write: 0,
        flip: 0,
    };
    let mut world = run(5, none, 30);
    world.log.forked(&mut world.clusters);
    assert!(world.log.empty.is_empty());
    world.check();
    world.round();
    world.check();
}
