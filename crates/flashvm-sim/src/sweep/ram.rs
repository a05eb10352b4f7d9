//! Frames, a policy that evicts, and a device: a pager reduced to replacement. A reference faults
//! at most once; a fault waits for all its reads and writes.
//!
//! Accounting: every fault reads its page, also the page's first (as in the CRAW paper and in block
//! traces). A dirty page is written when it is evicted; pages that are dirty at the end are not
//! written.

use crate::device::{DeviceModel, Range, Request};
use flashvm_core::policy::{BLOCK_PAGES, Policy, PolicyContext, Proposal};
use flashvm_core::{Access, Nanos, PageId};
use std::sync::Arc;

/// What a policy observes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observation {
    /// Every reference.
    #[default]
    Full,
    /// What a live pager observes: references to pages whose reference bit was cleared, and first
    /// stores to clean pages.
    Live,
    /// What a pager observes that emulates a read and a write bit by access rights (CRAW, VI.B): the first
    /// reference after the policy cleared a bit, and the first store after that or after a load, to dirty
    /// pages too. A page that may be written can be read: loads after a store are not observed.
    Protected,
}

/// The results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// References to pages that were not in RAM.
    pub misses: u64,
    /// Pages read from the device.
    pub page_reads: u64,
    /// Pages written to it.
    pub page_writes: u64,
    /// Device time of these reads and writes, one after the other.
    pub io_time: Nanos,
    /// References to pages in RAM that the policy observed; a live pager takes a fault for each.
    pub observed: u64,
}

const IN_RAM: u8 = 1;
const DIRTY: u8 = 1 << 1;
/// Its reference bit was cleared: a live pager observes the next reference.
const UNREFERENCED: u8 = 1 << 2;
/// Under [`Observation::Protected`]: stores are allowed.
const WRITABLE: u8 = 1 << 3;

/// The frames, their policy and the device.
pub(super) struct Ram {
    policy: Box<dyn Policy>,
    model: Box<dyn DeviceModel>,
    tells_of_frees: bool,
    places: Arc<[u32]>,
    /// Cost of a read, for the policy.
    read_cost: Nanos,
    observation: Observation,
    free: u32,
    pages: Vec<u8>,
    counts: Counts,
    begun: Nanos,
    now: Nanos,
    /// Pages evicted together: place, and whether it is dirty.
    leaving: Vec<(u32, bool)>,
    worn: bool,
}

impl Ram {
    pub(super) fn new(
        policy: Box<dyn Policy>,
        model: Box<dyn DeviceModel>,
        context: &PolicyContext,
        frames: u32,
        observation: Observation,
    ) -> Self {
        let places = context.places.clone();
        let places = places.expect("a sweep knows the places of its pages");
        let mut ram = Self {
            policy,
            tells_of_frees: model.hears_of_frees(),
            model,
            observation,
            free: frames,
            pages: vec![0; places.len()],
            places,
            read_cost: context.costs.read,
            counts: Counts::default(),
            begun: Nanos(0),
            now: Nanos(0),
            leaving: Vec::new(),
            worn: false,
        };
        ram.fill();
        ram
    }

    /// Writes every page before anything is counted: models of chips read pages that were never
    /// written in no time.
    fn fill(&mut self) {
        let pages = self.model.pages();
        for first in (0..pages).step_by(BLOCK_PAGES as usize) {
            let count = BLOCK_PAGES.min(pages - first);
            self.issue(&Request::Write(Range { first, count }));
        }
        self.begun = self.now;
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            io_time: self.now.since(self.begun),
            ..self.counts
        }
    }

    pub(super) fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Whether a request has failed: the device is worn out.
    pub(super) fn is_worn(&self) -> bool {
        self.worn
    }

    pub(super) fn foresee(&mut self, next_use: u64) {
        self.policy.foresee(next_use);
    }

    /// Takes a reference; returns whether it was a fault.
    #[inline]
    pub(super) fn reference(&mut self, page: PageId, access: Access) -> bool {
        let state = self.pages[page.0 as usize];
        let hit = state & IN_RAM != 0;
        let write = access == Access::Write;
        let first_store = write && state & DIRTY == 0;
        let unreferenced = state & UNREFERENCED != 0;
        let observes = match self.observation {
            Observation::Full => true,
            Observation::Live => first_store || unreferenced,
            Observation::Protected => unreferenced || write && state & WRITABLE == 0,
        };
        if !hit {
            self.fault(page, access);
        } else if observes {
            self.counts.observed += 1;
            self.policy.touched(page, access);
            self.pages[page.0 as usize] &= !UNREFERENCED;
        }
        if write {
            self.pages[page.0 as usize] |= WRITABLE;
        }
        if first_store {
            self.pages[page.0 as usize] |= DIRTY;
            self.policy.dirtied(page);
        }
        !hit
    }

    fn fault(&mut self, page: PageId, access: Access) {
        self.counts.misses += 1;
        self.policy.wanted(page, access, self.read_cost);
        if self.free == 0 {
            self.reclaim();
        }
        self.free -= 1;
        let first = self.places[page.0 as usize];
        self.read(Range { first, count: 1 });
        self.policy.inserted(page, Some(access));
        self.pages[page.0 as usize] = IN_RAM;
    }

    /// Evicts a page, or several together, and writes the dirty ones.
    fn reclaim(&mut self) {
        loop {
            let proposal = self.policy.propose();
            match proposal.expect("a policy proposes while there are pages in RAM") {
                Proposal::Unreference(page) => {
                    let state = &mut self.pages[page.0 as usize];
                    *state = (*state | UNREFERENCED) & !WRITABLE;
                }
                Proposal::Evict(page) => {
                    let state = std::mem::take(&mut self.pages[page.0 as usize]);
                    assert!(
                        state & IN_RAM != 0,
                        "{page:?} was proposed and is not in RAM"
                    );
                    let dirty = state & DIRTY != 0;
                    if dirty {
                        self.policy.cleaned(page);
                    }
                    self.free += 1;
                    self.leaving.push((self.places[page.0 as usize], dirty));
                    if !self.policy.leaves_with_next() {
                        break;
                    }
                }
            }
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.sort_unstable();
        if self.policy.pads_blocks() && leaving.iter().any(|&(_, dirty)| dirty) {
            self.write_whole_block(&leaving);
        } else {
            let dirty = |a: &(u32, bool), b: &(u32, bool)| a.1 && b.1 && a.0 + 1 == b.0;
            for run in leaving.chunk_by(dirty).filter(|run| run[0].1) {
                let count = u32::try_from(run.len()).expect("pages of a block");
                let first = run[0].0;
                self.write(Range { first, count });
            }
        }
        leaving.clear();
        self.leaving = leaving;
    }

    /// Page padding: reads the pages of the block that are not resident, and writes all of it.
    fn write_whole_block(&mut self, leaving: &[(u32, bool)]) {
        let first = leaving[0].0 / BLOCK_PAGES * BLOCK_PAGES;
        let mut at = first;
        let end = first + BLOCK_PAGES;
        for &(place, _) in leaving.iter().chain(&[(end, false)]) {
            if place > at {
                self.read(Range {
                    first: at,
                    count: place - at,
                });
            }
            at = place + 1;
        }
        self.write(Range {
            first,
            count: BLOCK_PAGES,
        });
    }

    fn read(&mut self, range: Range) {
        self.counts.page_reads += u64::from(range.count);
        self.issue(&Request::Read(range));
    }

    fn write(&mut self, range: Range) {
        self.counts.page_writes += u64::from(range.count);
        if self.tells_of_frees {
            // The host frees the old copies before it writes new ones.
            (range.first..range.end()).for_each(|page| self.model.freed(page));
        }
        self.issue(&Request::Write(range));
    }

    fn issue(&mut self, request: &Request) {
        let completion = self.model.issue(self.now, request);
        self.now = completion.end;
        self.worn |= !completion.done;
    }
}
