//! The swap map: the owner of each slot on flash, and the allocation of slots.
//!
//! Slots are allocated in order through an open cluster; once it is full, through a wholly free
//! cluster; without one, through partly free clusters. Cluster sizes are powers of two, so that a
//! cluster of at least an erase block is aligned with erase blocks (FlashVM, 4.1.1). After a fork,
//! clusters with used slots are sealed: their free slots may hold pages of the other process.
//! `free` handles clusters that become free.

mod free;

use crate::clusters::ClusterSource;
use crate::ids::{ClusterId, PageId, SlotId};
use crate::prefetch::SlotView;

const FREE: u32 = 0;
const BAD: u32 = u32::MAX;
/// Flag beside the owner: the page holds only zeros and nothing was written (FlashVM, 4.2.2).
const ZERO: u32 = 1 << 31;
/// The owner of the slots of a block of the pool.
const PACKED: u32 = u32::MAX - 1;
/// Most sealed clusters that one search checks for another holder.
const SEALED_CHECKS_MAX: usize = 64;
/// Clusters that one search for contiguous slots looks at.
const RUN_CLUSTERS: u32 = 4;

/// Flag beside the state: the cluster is in the list of partly free clusters. One that stops being
/// partly free stays in that list until its turn comes.
const LINKED: u8 = 1 << 7;

/// What this engine may do with a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ClusterState {
    /// Not ours.
    Foreign,
    /// Being filled.
    Open,
    /// Ours, without free slots.
    Full,
    /// Ours, with free slots, in the list of partly free clusters.
    Partial,
    /// Shared with another process since a fork: read only.
    Sealed,
    /// Ours and wholly free, held for a discard.
    Held,
    /// Ours and wholly free, being discarded: not to be written to.
    Discarding,
}

const CLUSTER_STATES: [ClusterState; 7] = [
    ClusterState::Foreign,
    ClusterState::Open,
    ClusterState::Full,
    ClusterState::Partial,
    ClusterState::Sealed,
    ClusterState::Held,
    ClusterState::Discarding,
];

/// The swap map.
pub(crate) struct SwapMap {
    /// Owner page + 1, `FREE`, `BAD` or `PACKED`; an owner with `ZERO` set has no contents on flash.
    owners: Vec<u32>,
    /// Used slots by cluster, without bad ones.
    used: Vec<u16>,
    states: Vec<u8>,
    /// Next in the list of partly free clusters (cluster + 1).
    next_partial: Vec<u32>,
    partial: u32,
    sealed: Vec<ClusterId>,
    sealed_at: usize,
    open: Option<ClusterId>,
    cursor: u32,
    /// No cluster from here on was ever leased.
    leased_end: u32,
    cluster_pages: u32,
    slots_used: u32,
    slots_bad: u32,
    full: bool,
    free: free::Free,
}

impl SwapMap {
    pub(crate) fn new(slots: u32, cluster_pages: u32) -> Self {
        let clusters = slots / cluster_pages;
        Self {
            owners: vec![FREE; (clusters * cluster_pages) as usize],
            used: vec![0; clusters as usize],
            states: vec![ClusterState::Foreign as u8; clusters as usize],
            next_partial: vec![0; clusters as usize],
            partial: 0,
            sealed: Vec::new(),
            sealed_at: 0,
            open: None,
            cursor: 0,
            leased_end: 0,
            cluster_pages,
            slots_used: 0,
            slots_bad: 0,
            full: false,
            free: free::Free::default(),
        }
    }

    /// Whether the last allocation found no slot, and none has been freed since.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Lets the next allocation retry: another process may have freed slots.
    pub(crate) fn retry(&mut self) {
        self.full = false;
    }

    pub(crate) fn slots_used(&self) -> u32 {
        self.slots_used
    }

    pub(crate) fn slots_bad(&self) -> u32 {
        self.slots_bad
    }

    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.owners.len()).expect("built from a u32")
    }

    pub(crate) fn owner(&self, slot: SlotId) -> Option<PageId> {
        match self.owners[slot.0 as usize] {
            FREE | BAD | PACKED => None,
            owner => Some(PageId((owner & !ZERO) - 1)),
        }
    }

    pub(crate) fn is_zero(&self, slot: SlotId) -> bool {
        let owner = self.owners[slot.0 as usize];
        !matches!(owner, BAD | PACKED) && owner & ZERO != 0
    }

    pub(crate) fn view(&self, slot: SlotId) -> SlotView {
        match self.owners.get(slot.0 as usize) {
            None => SlotView::Outside,
            Some(&BAD | &PACKED) => SlotView::Bad,
            Some(&FREE) => {
                if self.state(self.cluster_of(slot)) == ClusterState::Foreign {
                    SlotView::Outside
                } else {
                    SlotView::Free
                }
            }
            Some(&owner) => SlotView::Page(PageId((owner & !ZERO) - 1)),
        }
    }

    fn state(&self, cluster: ClusterId) -> ClusterState {
        CLUSTER_STATES[usize::from(self.states[cluster.0 as usize] & !LINKED)]
    }

    fn set_state(&mut self, cluster: ClusterId, state: ClusterState) {
        let byte = &mut self.states[cluster.0 as usize];
        *byte = (*byte & LINKED) | state as u8;
    }

    fn cluster_of(&self, slot: SlotId) -> ClusterId {
        ClusterId(slot.0 / self.cluster_pages)
    }

    fn has_free(&self, cluster: ClusterId) -> bool {
        let start = (cluster.0 * self.cluster_pages) as usize;
        self.owners[start..start + self.cluster_pages as usize].contains(&FREE)
    }

    fn cluster_end(&self, cluster: ClusterId) -> u32 {
        (cluster.0 + 1) * self.cluster_pages
    }

    /// Takes the next free slot for a page. `None`: the store is full.
    pub(crate) fn allocate(
        &mut self,
        page: PageId,
        zero: bool,
        clusters: &mut impl ClusterSource,
    ) -> Option<SlotId> {
        loop {
            if let Some(cluster) = self.open {
                let end = self.cluster_end(cluster);
                while self.cursor < end {
                    let slot = SlotId(self.cursor);
                    self.cursor += 1;
                    if self.owners[slot.0 as usize] == FREE {
                        self.owners[slot.0 as usize] = (page.0 + 1) | if zero { ZERO } else { 0 };
                        self.used[cluster.0 as usize] += 1;
                        self.slots_used += 1;
                        return Some(slot);
                    }
                }
                self.close(cluster, clusters);
            }
            let Some(next) = self.next_cluster(clusters) else {
                self.full = true;
                return None;
            };
            self.set_state(next, ClusterState::Open);
            self.open = Some(next);
            self.cursor = next.0 * self.cluster_pages;
        }
    }

    /// Takes contiguous free slots of one cluster for a block of the pool. `None`: the next [`RUN_CLUSTERS`] clusters
    /// have none.
    pub(crate) fn allocate_run(
        &mut self,
        slots: u32,
        clusters: &mut impl ClusterSource,
    ) -> Option<SlotId> {
        for _ in 0..RUN_CLUSTERS {
            if let Some(cluster) = self.open {
                let end = self.cluster_end(cluster);
                while self.cursor + slots <= end {
                    let run = self.cursor as usize..(self.cursor + slots) as usize;
                    match self.owners[run.clone()]
                        .iter()
                        .rposition(|&owner| owner != FREE)
                    {
                        Some(last) => self.cursor += last as u32 + 1,
                        None => {
                            self.owners[run].fill(PACKED);
                            let first = SlotId(self.cursor);
                            self.cursor += slots;
                            self.used[cluster.0 as usize] += slots as u16;
                            self.slots_used += slots;
                            return Some(first);
                        }
                    }
                }
                self.close(cluster, clusters);
            }
            let next = self.next_cluster(clusters)?;
            self.set_state(next, ClusterState::Open);
            self.open = Some(next);
            self.cursor = next.0 * self.cluster_pages;
        }
        None
    }

    /// Frees the slots of a block of the pool.
    pub(crate) fn free_run(
        &mut self,
        first: SlotId,
        slots: u32,
        clusters: &mut impl ClusterSource,
    ) {
        for slot in (0..slots).map(|i| first.plus(i)) {
            let owner = self.owners[slot.0 as usize];
            assert_eq!(owner, PACKED, "slot {} is not of the pool", slot.0);
            self.owners[slot.0 as usize] = FREE;
            self.note_freed(slot);
            self.vacate(slot, clusters);
        }
    }

    /// Takes a slot of a block of the pool out of use for good.
    pub(crate) fn mark_run_bad(&mut self, slot: SlotId, clusters: &mut impl ClusterSource) {
        let owner = self.owners[slot.0 as usize];
        assert_eq!(owner, PACKED, "slot {} is not of the pool", slot.0);
        self.owners[slot.0 as usize] = BAD;
        self.slots_bad += 1;
        self.vacate(slot, clusters);
    }

    /// Closes the open cluster at its end. Slots freed behind the cursor are found again through the
    /// list of partly free clusters.
    fn close(&mut self, cluster: ClusterId, clusters: &mut impl ClusterSource) {
        self.open = None;
        if !self.has_free(cluster) {
            self.set_state(cluster, ClusterState::Full);
        } else if self.used[cluster.0 as usize] == 0 {
            self.empty_cluster(cluster, clusters);
        } else {
            self.push_partial(cluster);
        }
    }

    fn push_partial(&mut self, cluster: ClusterId) {
        self.set_state(cluster, ClusterState::Partial);
        if self.states[cluster.0 as usize] & LINKED == 0 {
            self.states[cluster.0 as usize] |= LINKED;
            self.next_partial[cluster.0 as usize] = self.partial;
            self.partial = cluster.0 + 1;
        }
    }

    fn next_cluster(&mut self, clusters: &mut impl ClusterSource) -> Option<ClusterId> {
        self.free.scans += 1;
        if let Some(cluster) = clusters.lease() {
            assert_eq!(
                self.state(cluster),
                ClusterState::Foreign,
                "cluster {} leased twice",
                cluster.0
            );
            self.leased_end = self.leased_end.max(cluster.0 + 1);
            return Some(cluster);
        }
        let held = self.take_back();
        held.or_else(|| self.pop_partial()).or_else(|| {
            self.unseal_some(clusters);
            self.pop_partial()
        })
    }

    fn pop_partial(&mut self) -> Option<ClusterId> {
        while let Some(cluster) = self.partial.checked_sub(1).map(ClusterId) {
            self.partial = self.next_partial[cluster.0 as usize];
            self.states[cluster.0 as usize] &= !LINKED;
            if self.state(cluster) == ClusterState::Partial {
                return Some(cluster);
            }
        }
        None
    }

    /// Unseals sealed clusters that no other process holds any more.
    fn unseal_some(&mut self, clusters: &impl ClusterSource) {
        for _ in 0..SEALED_CHECKS_MAX.min(self.sealed.len()) {
            if self.sealed.is_empty() {
                return;
            }
            self.sealed_at %= self.sealed.len();
            let cluster = self.sealed[self.sealed_at];
            if self.state(cluster) != ClusterState::Sealed {
                self.sealed.swap_remove(self.sealed_at);
            } else if clusters.shared(cluster) {
                self.sealed_at += 1;
            } else {
                self.sealed.swap_remove(self.sealed_at);
                if self.has_free(cluster) {
                    self.push_partial(cluster);
                } else {
                    self.set_state(cluster, ClusterState::Full);
                }
            }
        }
    }

    /// Frees a slot.
    pub(crate) fn free(&mut self, slot: SlotId, clusters: &mut impl ClusterSource) {
        assert!(
            self.owner(slot).is_some(),
            "slot {} freed but not used",
            slot.0
        );
        self.owners[slot.0 as usize] = FREE;
        self.note_freed(slot);
        self.vacate(slot, clusters);
    }

    /// Takes a used slot out of use for good.
    pub(crate) fn mark_bad(&mut self, slot: SlotId, clusters: &mut impl ClusterSource) {
        assert!(
            self.owner(slot).is_some(),
            "slot {} turned bad but not used",
            slot.0
        );
        self.owners[slot.0 as usize] = BAD;
        self.slots_bad += 1;
        self.vacate(slot, clusters);
    }

    fn vacate(&mut self, slot: SlotId, clusters: &mut impl ClusterSource) {
        let cluster = self.cluster_of(slot);
        let used = &mut self.used[cluster.0 as usize];
        *used -= 1;
        let empty = *used == 0;
        self.slots_used -= 1;
        let usable = self.owners[slot.0 as usize] == FREE;
        match self.state(cluster) {
            state @ (ClusterState::Foreign | ClusterState::Held | ClusterState::Discarding) => {
                panic!("slot {} in use in a cluster that is {state:?}", slot.0)
            }
            ClusterState::Open => {}
            ClusterState::Sealed if empty => {
                self.set_state(cluster, ClusterState::Foreign);
                clusters.release(cluster);
            }
            ClusterState::Sealed => {}
            ClusterState::Full | ClusterState::Partial if empty => {
                self.empty_cluster(cluster, clusters)
            }
            ClusterState::Full if usable => self.push_partial(cluster),
            ClusterState::Full | ClusterState::Partial => {}
        }
        if usable {
            self.full = false;
        }
    }

    /// The process forked: the other process may read all slots in use. Both release clusters
    /// without used slots.
    pub(crate) fn seal(&mut self, clusters: &mut impl ClusterSource) {
        self.sealed.clear();
        self.sealed_at = 0;
        self.open = None;
        self.let_go_all(clusters);
        for cluster in (0..self.leased_end).map(ClusterId) {
            if self.state(cluster) == ClusterState::Foreign {
                continue;
            }
            if self.used[cluster.0 as usize] == 0 {
                self.give_back(cluster, clusters);
            } else {
                self.set_state(cluster, ClusterState::Sealed);
                self.sealed.push(cluster);
            }
        }
    }

    /// The page of a used slot has another address now.
    pub(crate) fn reassign(&mut self, slot: SlotId, page: PageId) {
        assert!(self.owner(slot).is_some(), "slot {} is not used", slot.0);
        let owner = &mut self.owners[slot.0 as usize];
        *owner = (*owner & ZERO) | (page.0 + 1);
    }

    /// Checks the counts against the columns.
    ///
    /// # Panics
    /// If they differ: a bug in this file.
    pub(crate) fn check(&self) {
        let (mut used_sum, mut bad_sum) = (0, 0);
        for (cluster, &used) in self.used.iter().enumerate() {
            let cluster = ClusterId(u32::try_from(cluster).expect("fits"));
            let start = (cluster.0 * self.cluster_pages) as usize;
            let slots = &self.owners[start..start + self.cluster_pages as usize];
            let bad = slots.iter().filter(|&&o| o == BAD).count();
            let free = slots.iter().filter(|&&o| o == FREE).count();
            assert_eq!(slots.len() - bad - free, usize::from(used), "{cluster:?}");
            let linked = self.states[cluster.0 as usize] & LINKED != 0;
            match self.state(cluster) {
                ClusterState::Foreign => assert_eq!(used, 0, "{cluster:?} is not ours"),
                ClusterState::Partial => assert!(linked && used > 0, "{cluster:?} cannot be found"),
                ClusterState::Full => assert_eq!(free, 0, "{cluster:?} is not full"),
                ClusterState::Open => assert_eq!(self.open, Some(cluster)),
                ClusterState::Sealed => assert!(self.sealed.contains(&cluster)),
                ClusterState::Held | ClusterState::Discarding => {
                    assert!(used == 0 && self.free.has(cluster), "{cluster:?} is lost");
                }
            }
            used_sum += u32::from(used);
            bad_sum += bad;
        }
        assert_eq!(used_sum, self.slots_used);
        assert_eq!(bad_sum, self.slots_bad as usize);
    }
}

#[cfg(test)]
mod tests;
