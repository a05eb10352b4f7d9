//! What the processes of a run know together of the two sides of a mirror.
//!
//! - A word says which sides serve; `flash::mirror::health` has its meaning.
//! - For each side, a bit for each page: it is *stale*, the side lacks its newest contents.
//! - Copies: the supervisor brings stale pages up to date while processes write. Each *unit* of 64 pages shares a
//!   counter of each side with other units, which is odd during a copy to that side. A write that overlaps a copy in time leaves its pages stale, so
//!   they are copied again: nobody waits for anybody, and a process may be killed at any instruction.
//! - Average latencies, by which a side is chosen, and the counters of the summary.

use super::Control;
use super::layout::Region;
use super::process::Process;
use serde::Serialize;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages of a unit.
pub const UNIT_PAGES: u32 = u64::BITS;
/// Counters of copies.
const COPIES: usize = 1024;

/// The part of the region that belongs to a mirror, but for its bits.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct MirrorHead {
    health: AtomicU64,
    /// 0: the spare is not in use; else 1 + the index of the side whose place it has taken.
    spare: AtomicU32,
    /// Changes whenever a page becomes stale.
    marks: AtomicU32,
    averages: [AtomicU64; 2],
    /// When the slower side was last tried.
    tried: AtomicU64,
    reads: [AtomicU64; 2],
    hedged: AtomicU64,
    failed_over: AtomicU64,
    mended: AtomicU64,
    lost: AtomicU64,
    resynced_bytes: AtomicU64,
    copies: [[AtomicU32; COPIES]; 2],
}

/// The mirror's state of a run. Nothing here allocates.
#[derive(Clone, Copy, Debug)]
pub struct MirrorState {
    region: Region,
}

/// What a mirror did, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MirrorCounters {
    /// Reads that each side answered.
    pub reads: [u64; 2],
    /// Reads that were sent to the other side too, as the first took long.
    pub hedged: u64,
    /// Reads that one side failed, so that the other was asked.
    pub failed_over: u64,
    /// Pages that were wrong on one side, right on the other, and are written again.
    pub mended: u64,
    /// How often a side was lost.
    pub sides_lost: u64,
    /// Bytes copied to a side that lacked them.
    pub resynced_bytes: u64,
}

/// One of [`MirrorCounters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorCounter {
    /// [`MirrorCounters::reads`] of the side with this index.
    Read(usize),
    /// [`MirrorCounters::hedged`].
    Hedged,
    /// [`MirrorCounters::failed_over`].
    FailedOver,
    /// [`MirrorCounters::mended`].
    Mended,
    /// [`MirrorCounters::sides_lost`].
    Lost,
    /// [`MirrorCounters::resynced_bytes`].
    ResyncedBytes,
}

impl Control {
    /// The mirror's state; of no use without a mirror.
    #[must_use]
    pub fn mirror(&self) -> MirrorState {
        MirrorState {
            region: self.region,
        }
    }
}

impl Process {
    /// The mirror's state of this process's run.
    #[must_use]
    pub fn mirror(&self) -> MirrorState {
        self.control.mirror()
    }
}

impl MirrorState {
    fn head(&self) -> &'static MirrorHead {
        self.region.mirror()
    }

    /// The word that says which sides serve: 0 at first.
    #[must_use]
    pub fn health(&self) -> u64 {
        self.head().health.load(Ordering::SeqCst)
    }

    /// Changes that word, if it is still `from`. Returns whether it was.
    pub fn change_health(&self, from: u64, to: u64) -> bool {
        let word = &self.head().health;
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The index of the side whose place the spare has taken.
    #[must_use]
    pub fn spared(&self) -> Option<usize> {
        let side = self.head().spare.load(Ordering::SeqCst);
        side.checked_sub(1).map(|side| side as usize)
    }

    /// Puts the spare in the place of a side that is lost: before the side returns. Only the supervisor does.
    pub fn use_spare(&self, side: usize) {
        self.head().spare.store(1 + side as u32, Ordering::SeqCst);
    }

    /// The average latencies of small reads, in nanoseconds; 0: not known.
    #[must_use]
    pub fn averages(&self) -> [u64; 2] {
        [0, 1].map(|side: usize| self.head().averages[side].load(Ordering::Relaxed))
    }

    /// Reads that were answered, of both sides.
    #[must_use]
    pub fn reads(&self) -> u64 {
        let [a, b] = &self.head().reads;
        a.load(Ordering::Relaxed) + b.load(Ordering::Relaxed)
    }

    /// Sets one of [`Self::averages`]. Of two that do so at once one is lost.
    pub fn set_average(&self, side: usize, ns: u64) {
        self.head().averages[side].store(ns, Ordering::Relaxed);
    }

    /// Whether the slower side was not tried for `every` nanoseconds: then the caller tries it at `now`, and no other.
    #[must_use]
    pub fn may_try(&self, now: u64, every: u64) -> bool {
        let tried = &self.head().tried;
        let last = tried.load(Ordering::Relaxed);
        now.saturating_sub(last) >= every
            && tried
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Adds to a counter.
    pub fn count(&self, counter: MirrorCounter, by: u64) {
        let head = self.head();
        let counter = match counter {
            MirrorCounter::Read(side) => &head.reads[side],
            MirrorCounter::Hedged => &head.hedged,
            MirrorCounter::FailedOver => &head.failed_over,
            MirrorCounter::Mended => &head.mended,
            MirrorCounter::Lost => &head.lost,
            MirrorCounter::ResyncedBytes => &head.resynced_bytes,
        };
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// All counters.
    #[must_use]
    pub fn counters(&self) -> MirrorCounters {
        let head = self.head();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MirrorCounters {
            reads: [of(&head.reads[0]), of(&head.reads[1])],
            hedged: of(&head.hedged),
            failed_over: of(&head.failed_over),
            mended: of(&head.mended),
            sides_lost: of(&head.lost),
            resynced_bytes: of(&head.resynced_bytes),
        }
    }

    /// Changes whenever a page becomes stale.
    #[must_use]
    pub fn marks(&self) -> u32 {
        self.head().marks.load(Ordering::SeqCst)
    }

    /// The words of bits that cover `pages`, each with the mask of those pages.
    fn words(&self, side: usize, pages: Range<u32>) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let bits = self.region.stale(side);
        let (first, end) = (pages.start / UNIT_PAGES, pages.end.div_ceil(UNIT_PAGES));
        (first..end).map(move |word| {
            let begin = word * UNIT_PAGES;
            let from = pages.start.max(begin) - begin;
            let to = pages.end.min(begin + UNIT_PAGES) - begin;
            let mask = u64::MAX << from & u64::MAX >> (UNIT_PAGES - to);
            (&bits[word as usize], mask)
        })
    }

    /// Marks pages of a side as stale.
    pub fn mark(&self, side: usize, pages: Range<u32>) {
        for (word, mask) in self.words(side, pages) {
            word.fetch_or(mask, Ordering::SeqCst);
        }
        self.head().marks.fetch_add(1, Ordering::SeqCst);
    }

    /// Says that a side has the newest contents of pages.
    pub fn clear(&self, side: usize, pages: Range<u32>) {
        for (word, mask) in self.words(side, pages) {
            // Most are fresh already.
            if word.load(Ordering::SeqCst) & mask != 0 {
                word.fetch_and(!mask, Ordering::SeqCst);
            }
        }
    }

    /// Whether any of these pages is stale on a side.
    #[must_use]
    pub fn any_stale(&self, side: usize, pages: Range<u32>) -> bool {
        self.words(side, pages)
            .any(|(word, mask)| word.load(Ordering::SeqCst) & mask != 0)
    }

    /// The stale pages of a unit, one bit each.
    #[must_use]
    pub fn stale(&self, side: usize, unit: u32) -> u64 {
        self.region.stale(side)[unit as usize].load(Ordering::SeqCst)
    }

    fn copies(&self, side: usize, unit: u32) -> &'static AtomicU32 {
        &self.head().copies[side][unit as usize % COPIES]
    }

    /// The sum of copies to a side that began and ended in the units of these pages, or in others that share their
    /// counters; `None` during one.
    #[must_use]
    pub fn copied(&self, side: usize, pages: Range<u32>) -> Option<u32> {
        let units = pages.start / UNIT_PAGES..pages.end.div_ceil(UNIT_PAGES);
        units.into_iter().try_fold(0_u32, |sum, unit| {
            let count = self.copies(side, unit).load(Ordering::SeqCst);
            count.is_multiple_of(2).then(|| sum.wrapping_add(count))
        })
    }

    /// A copy to a side in this unit begins or ends. Only the supervisor copies.
    pub fn turn_copy(&self, side: usize, unit: u32) {
        self.copies(side, unit).fetch_add(1, Ordering::SeqCst);
    }

    /// The pages of the clusters that processes hold, in runs.
    pub fn held(&self) -> impl Iterator<Item = Range<u32>> {
        let pages = self.region.sizes().cluster_pages;
        let held = |count: &AtomicU32| count.load(Ordering::SeqCst) > 0;
        let holders = self.region.holders().iter();
        (0_u32..)
            .zip(holders)
            .filter(move |(_, count)| held(count))
            .map(move |(cluster, _)| cluster * pages..(cluster + 1) * pages)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Control, RunSettings};
    use super::*;
    use crate::space::Delivery;
    use flashvm_core::{ClusterSource, Preset};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: u32 = 4096;

    fn control() -> Control {
        let engine = Preset::Flashvm.settings();
        let bytes = u64::from(PAGES) * 4096;
        let settings = RunSettings::new(4 << 20, bytes, engine, Delivery::Inline);
        Control::create(&settings).unwrap().0
    }

    proptest! {
        #[test]
        fn bits_are_those_of_a_set(
            steps in prop::collection::vec((any::<bool>(), 0_usize..2, 0..PAGES, 1_u32..200), 1..100),
        ) {
            let state = control().mirror();
            let mut stale = [BTreeSet::new(), BTreeSet::new()];
            for (mark, side, first, count) in steps {
                let pages = first..(first + count).min(PAGES);
                if mark {
                    state.mark(side, pages.clone());
                    stale[side].extend(pages.clone());
                } else {
                    state.clear(side, pages.clone());
                    stale[side].retain(|page| !pages.contains(page));
                }
                let near = first.saturating_sub(3)..(first + count + 3).min(PAGES);
                for (side, stale) in stale.iter().enumerate() {
                    let any = stale.range(near.clone()).next().is_some();
                    prop_assert_eq!(state.any_stale(side, near.clone()), any);
                    let unit = first / UNIT_PAGES;
                    let bits = (0..64).filter(|bit| stale.contains(&(unit * 64 + bit)));
                    prop_assert_eq!(state.stale(side, unit), bits.fold(0, |sum, bit| sum | 1 << bit));
                }
            }
        }
    }

    #[test]
    fn a_copy_is_seen_in_its_unit() {
        let state = control().mirror();
        let before = state.copied(0, 60..70);
        assert!(before.is_some());
        state.turn_copy(0, 1);
        assert_eq!(state.copied(0, 60..70), None);
        assert_eq!(state.copied(0, 0..64), before);
        assert!(state.copied(1, 60..70).is_some());
        state.turn_copy(0, 1);
        let after = state.copied(0, 60..70);
        assert!(after.is_some() && after != before);
    }

    #[test]
    fn held_clusters_are_those_that_processes_lease() {
        let control = control();
        let state = control.mirror();
        assert_eq!(state.held().count(), 0);
        let process = control.register(1, "mirror").unwrap();
        let cluster = process.clusters().lease().unwrap();
        let pages = control.cluster_pages();
        let first = cluster.0 * pages;
        let held = Vec::from_iter(state.held().flatten());
        assert_eq!(held, Vec::from_iter(first..first + pages));
    }

    #[test]
    fn the_slower_side_is_tried_by_one_at_a_time() {
        let state = control().mirror();
        assert!(state.may_try(1000, 100) && !state.may_try(1050, 100));
        assert!(state.may_try(1100, 100));
    }
}
