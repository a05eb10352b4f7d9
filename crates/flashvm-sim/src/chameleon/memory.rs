//! The memory of a simulated process, as the engine's host: mappings, and the contents of each
//! sector of each frame, as one number. It panics when the engine maps a page twice, maps a range
//! that another page is mapped from, reads a range that the program may store to, or reuses a frame
//! in use.

use super::flash::Buffer;
use super::{Faults, Sabotage};
use crate::memory::Version;
use crate::rng::Rng;
use crate::store::Store;
use flashvm_core::PAGE_SIZE;
use flashvm_core::chameleon::{
    BackPointer, Failure, FrameId, Host, PageList, Refused, SECTOR_BYTES, SECTORS, Shape, Svmp,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Up to this many mappings the kernel refuses none: with fewer the engine may have to end the process.
const MAPPINGS_FEW: u32 = 24;

/// A page that is handed out, as the program knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub(super) shape: Shape,
    pub(super) version: Version,
    pub(super) is_lost: bool,
    /// Number of requests before it was handed out.
    pub(super) since: u64,
}

#[derive(Clone)]
pub(super) struct Memory {
    pub(super) rng: Rng,
    pub(super) faults: Faults,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) store: Store,
    pub(super) blocks: u32,
    /// Eight sectors a frame.
    frames: Vec<[Version; SECTORS as usize]>,
    /// By page, its frame.
    mapped: BTreeMap<u32, u32>,
    /// By frame and sector, the page that is mapped from it.
    users: HashMap<(u32, u32), u32>,
    /// The naive model: what the program has stored in each page.
    pub(super) truth: BTreeMap<u32, Owned>,
    /// Ranges that reads from flash are filling.
    pub(super) reading: BTreeSet<(FrameId, Shape)>,
    /// The round's two buffers.
    pub(super) target: Buffer,
    pub(super) source: Buffer,
    /// Mappings that the kernel allows.
    pub(super) mappings_most: u32,
    mappings: u32,
    /// Frames that the engine may borrow, and those that it has borrowed.
    pub(super) frames_most: u32,
    frames_lent: u32,
    /// Pages that may be committed, and those that are.
    pub(super) commit_most: u64,
    committed: u64,
    pub(super) writer_called: bool,
}

impl Memory {
    pub(super) fn new(seed: u64, store: Store, blocks: u32, frames_most: u32) -> Self {
        Self {
            rng: Rng::new(seed),
            faults: Faults::default(),
            sabotage: None,
            store,
            blocks,
            frames: vec![[0; SECTORS as usize]; frames_most as usize],
            mapped: BTreeMap::new(),
            users: HashMap::new(),
            truth: BTreeMap::new(),
            reading: BTreeSet::new(),
            target: Buffer::default(),
            source: Buffer::default(),
            mappings_most: u32::MAX,
            mappings: 0,
            frames_most,
            frames_lent: 0,
            commit_most: u64::MAX,
            committed: 0,
            writer_called: false,
        }
    }

    /// Makes this the memory of a forked child: it has a copy of `frames` only. No page is mapped.
    pub(super) fn forked(&mut self, frames: &BTreeSet<u32>, seed: u64) {
        assert!(self.mapped.is_empty(), "pages are mapped during a fork");
        for (frame, sectors) in (0..).zip(&mut self.frames) {
            if !frames.contains(&frame) {
                *sectors = [0; SECTORS as usize];
            }
        }
        self.rng = Rng::new(seed);
    }

    /// Whether the program reaches a page without a fault.
    pub(super) fn is_mapped(&self, page: Svmp) -> bool {
        self.mapped.contains_key(&page.0)
    }

    /// The program loads from a mapped page, and stores `store` if given.
    pub(super) fn access(&mut self, page: Svmp, store: Option<Version>) {
        let frame = self.mapped[&page.0];
        let owned = self.truth.get_mut(&page.0).expect("it was handed out");
        let shape = owned.shape;
        assert!(!owned.is_lost, "{page:?} is mapped and lost");
        for sector in &mut self.frames[frame as usize][sectors(shape)] {
            assert_eq!(*sector, owned.version, "{page:?} has lost what was stored");
            *sector = store.unwrap_or(*sector);
        }
        owned.version = store.unwrap_or(owned.version);
    }

    /// Puts data from flash into a range.
    pub(super) fn fill(&mut self, frame: FrameId, shape: Shape, from: &[Version]) {
        self.assert_unused(frame, shape);
        self.frames[frame.0 as usize][sectors(shape)].copy_from_slice(from);
    }

    /// Pages are handed out: all zeros.
    pub(super) fn own(&mut self, list: &PageList, since: u64) {
        for &page in list.pages() {
            let owned = Owned {
                shape: list.shape(),
                version: 0,
                is_lost: false,
                since,
            };
            let before = self.truth.insert(page, owned);
            assert!(before.is_none(), "page {page} is handed out twice");
        }
    }

    /// All pages that are handed out.
    pub(super) fn pages(&self) -> Vec<Svmp> {
        self.truth.keys().copied().map(Svmp).collect()
    }

    /// Leaves half of the room to a child; returns whether the other half holds what is committed. If not,
    /// nothing changes.
    pub(super) fn share_room(&mut self) -> bool {
        let fits = self.committed <= self.commit_most / 2;
        if fits {
            self.commit_most /= 2;
        }
        fits
    }

    fn chance(&mut self, per_million: u32) -> bool {
        self.rng.chance(per_million)
    }

    fn contents(&self, frame: FrameId, shape: Shape) -> &[Version] {
        &self.frames[frame.0 as usize][sectors(shape)]
    }

    /// Asserts that no page is mapped from any of these sectors.
    fn assert_unused(&self, frame: FrameId, shape: Shape) {
        for sector in sectors(shape) {
            if let Some(user) = self.users.get(&(frame.0, sector as u32)) {
                panic!("{shape:?} of {frame:?} is in use: page {user} is mapped from it");
            }
        }
    }

    /// The engine reads or clears a range: no page is mapped from it, and no read fills it.
    fn look(&self, frame: FrameId, shape: Shape) -> &[Version] {
        self.assert_unused(frame, shape);
        let is_read = self.reading.contains(&(frame, shape));
        assert!(!is_read, "{shape:?} of {frame:?} is being read");
        self.contents(frame, shape)
    }

    /// Whether a page shares a mapping with the previous one.
    fn joins(&self, page: u32, frame: u32) -> bool {
        let before = page.checked_sub(1).and_then(|page| self.mapped.get(&page));
        before.is_some_and(|&before| before + 1 == frame)
    }

    fn count_mappings(&self) -> u32 {
        let joins = |(&page, &frame): (&u32, &u32)| u32::from(!self.joins(page, frame));
        self.mapped.iter().map(joins).sum()
    }

    fn refuses(&mut self) -> bool {
        self.mappings >= self.mappings_most
            || self.mappings > MAPPINGS_FEW && self.chance(self.faults.mappings)
    }

    /// Whether unmapping would split a mapping, which takes one more: the kernel may refuse.
    fn splits(&self, first: u32, count: u32) -> bool {
        let joined = |page: u32| {
            let frame = self.mapped.get(&page);
            frame.is_some_and(|&frame| self.joins(page, frame))
        };
        joined(first) && joined(first + count)
    }
}

/// The checksum of sectors.
pub(super) fn checksum(sectors: &[Version]) -> u64 {
    sectors.iter().fold(sectors.len() as u64, |hash, &sector| {
        Rng::new(hash ^ sector).next_u64()
    })
}

fn sectors(shape: Shape) -> std::ops::Range<usize> {
    let first = shape.first_sector() as usize;
    first..first + shape.sectors() as usize
}

impl Host for Memory {
    fn map(&mut self, first: Svmp, count: u32, frame: FrameId) -> Result<(), Refused> {
        if self.refuses() {
            return Err(Refused);
        }
        for at in 0..count {
            let (page, frame) = (first.0 + at, frame.0 + at);
            let owned = self.truth.get(&page);
            let shape = owned
                .unwrap_or_else(|| panic!("page {page} is nobody's"))
                .shape;
            let before = self.mapped.get(&page);
            assert_eq!(before, None, "page {page} is mapped twice");
            self.assert_unused(FrameId(frame), shape);
            self.mapped.insert(page, frame);
            for sector in sectors(shape) {
                self.users.insert((frame, sector as u32), page);
            }
        }
        self.mappings = self.count_mappings();
        match self.sabotage {
            // The pages are mapped, but the engine is told that they are not.
            Some(Sabotage::MapTwice) if self.rng.one_in(50) => Err(Refused),
            _ => Ok(()),
        }
    }

    fn unmap(&mut self, first: Svmp, count: u32) -> Result<(), Refused> {
        if self.splits(first.0, count) && self.refuses() {
            return Err(Refused);
        }
        if self.sabotage == Some(Sabotage::StayMapped) && self.rng.one_in(50) {
            return Ok(());
        }
        let pages: Vec<u32> = self
            .mapped
            .range(first.0..first.0 + count)
            .map(|(&page, _)| page)
            .collect();
        for page in pages {
            let frame = self.mapped.remove(&page).expect("just seen");
            for sector in sectors(self.truth[&page].shape) {
                self.users.remove(&(frame, sector as u32));
            }
        }
        self.mappings = self.count_mappings();
        Ok(())
    }

    fn fill_zeros(&mut self, frame: FrameId, shape: Shape) {
        self.look(frame, shape);
        self.frames[frame.0 as usize][sectors(shape)].fill(0);
    }

    fn is_zero(&mut self, frame: FrameId, shape: Shape) -> bool {
        self.look(frame, shape).iter().all(|&sector| sector == 0)
    }

    fn checksum(&mut self, frame: FrameId, shape: Shape) -> u64 {
        checksum(self.look(frame, shape))
    }

    fn drop_frame(&mut self, frame: FrameId) {
        self.look(frame, Shape::WHOLE);
        self.frames[frame.0 as usize].fill(0);
    }

    fn block_pointers(&mut self) -> Option<Vec<BackPointer>> {
        self.source.pointers.clone()
    }

    fn block_checksum(&mut self, page: &BackPointer) -> u64 {
        let first = page.sector as usize;
        checksum(&self.source.sectors[first..first + page.shape.sectors() as usize])
    }

    fn keep(&mut self, page: &BackPointer, sector: u32) {
        let (from, to) = (page.sector as usize, sector as usize);
        let count = page.shape.sectors() as usize;
        self.target.sectors[to..to + count]
            .copy_from_slice(&self.source.sectors[from..from + count]);
    }

    fn gather(&mut self, frame: FrameId, shape: Shape, to: u32) -> u64 {
        let contents = self.look(frame, shape).to_vec();
        let to = to as usize / SECTOR_BYTES;
        self.target.sectors[to..to + contents.len()].copy_from_slice(&contents);
        checksum(&contents)
    }

    fn write_header(&mut self, pointers: &[BackPointer]) {
        self.target.pointers = Some(pointers.to_vec());
    }

    fn frames_target(&mut self) -> u32 {
        self.frames_most
    }

    fn borrow_frames(&mut self, more: u32) -> u32 {
        let got = more.min(self.frames_most.saturating_sub(self.frames_lent));
        self.frames_lent += got;
        got
    }

    fn return_frames(&mut self, frames: u32) {
        self.frames_lent -= frames;
    }

    fn commit(&mut self, pages: u64) -> bool {
        let fits = self.committed + pages <= self.commit_most;
        self.committed += if fits { pages } else { 0 };
        fits
    }

    fn uncommit(&mut self, pages: u64) {
        self.committed -= pages;
    }

    fn store_blocks(&mut self) -> (u32, u32) {
        (self.blocks, self.store.free_clusters())
    }

    fn call_writer(&mut self) {
        self.writer_called = true;
    }

    fn tell_lost(&mut self, page: Svmp, shape: Shape) {
        let owned = self.truth.get_mut(&page.0).expect("it was handed out");
        assert_eq!(owned.shape, shape);
        owned.is_lost = true;
    }

    fn fail(&self, why: Failure) -> ! {
        panic!("the process ends: {why}");
    }
}

/// Pages that this many blocks can hold.
pub(super) fn pages_of(blocks: u32) -> u64 {
    u64::from(blocks) * (flashvm_core::chameleon::BLOCK_BYTES / PAGE_SIZE) as u64
}
