//! Clusters that become free: released at once, or held until they have been discarded.

use super::{ClusterState, SwapMap};
use crate::clusters::ClusterSource;
use crate::ids::{ClusterId, SlotId};
use std::collections::VecDeque;

/// Free clusters before a discard.
#[derive(Default)]
pub(super) struct Free {
    /// Whether clusters that become free are kept here until the strategy decides.
    keeps: bool,
    emptied: Vec<ClusterId>,
    /// Held clusters, the longest held first.
    held: VecDeque<ClusterId>,
    discarding: Vec<ClusterId>,
    /// Searches for a free cluster since the last query.
    pub(super) scans: u32,
    /// Slots freed since the last query, if they are recorded.
    freed: Option<Vec<SlotId>>,
}

impl Free {
    pub(super) fn has(&self, cluster: ClusterId) -> bool {
        self.emptied.contains(&cluster)
            || self.held.contains(&cluster)
            || self.discarding.contains(&cluster)
    }
}

impl SwapMap {
    /// Sets whether clusters that become free are kept for [`Self::pop_emptied`].
    pub(crate) fn keep_emptied(&mut self, keep: bool) {
        self.free.keeps = keep;
    }

    /// Releases a cluster without used slots, unless all of it is bad or the strategy has to decide
    /// first.
    pub(super) fn empty_cluster(&mut self, cluster: ClusterId, clusters: &mut impl ClusterSource) {
        if self.free.keeps && self.has_free(cluster) {
            self.set_state(cluster, ClusterState::Held);
            self.free.emptied.push(cluster);
        } else {
            self.give_back(cluster, clusters);
        }
    }

    /// Releases a cluster without used slots, unless all of it is bad.
    pub(super) fn give_back(&mut self, cluster: ClusterId, clusters: &mut impl ClusterSource) {
        if self.has_free(cluster) {
            self.set_state(cluster, ClusterState::Foreign);
            clusters.release(cluster);
        } else {
            self.set_state(cluster, ClusterState::Full);
        }
    }

    /// Takes a held cluster back, because there is no other free one.
    pub(super) fn take_back(&mut self) -> Option<ClusterId> {
        let youngest = self.free.emptied.pop();
        youngest.or_else(|| self.free.held.pop_back())
    }

    /// Searches for a free cluster since the last call.
    pub(crate) fn take_scans(&mut self) -> u32 {
        std::mem::take(&mut self.free.scans)
    }

    /// A cluster that became free. The caller must hold it or let it go.
    pub(crate) fn pop_emptied(&mut self) -> Option<ClusterId> {
        self.free.emptied.pop()
    }

    /// Holds a cluster of [`Self::pop_emptied`] for a discard.
    pub(crate) fn hold(&mut self, cluster: ClusterId) {
        self.free.held.push_back(cluster);
    }

    /// Releases a cluster of [`Self::pop_emptied`] without a discard.
    pub(crate) fn let_go(&mut self, cluster: ClusterId, clusters: &mut impl ClusterSource) {
        self.give_back(cluster, clusters);
    }

    /// Slots of the held clusters.
    pub(crate) fn held_slots(&self) -> u32 {
        let held = u32::try_from(self.free.held.len()).expect("a count of clusters");
        held * self.cluster_pages
    }

    /// Begins to discard clusters of at least `slots` slots, the longest held first; appends their
    /// ranges, with adjacent ones joined.
    pub(crate) fn begin_discard(&mut self, slots: u32, ranges: &mut VecDeque<(SlotId, u32)>) {
        assert!(self.free.discarding.is_empty(), "one discard at a time");
        let clusters = slots.div_ceil(self.cluster_pages) as usize;
        let clusters = clusters.min(self.free.held.len());
        self.free
            .discarding
            .extend(self.free.held.drain(..clusters));
        self.free.discarding.sort_unstable();
        for i in 0..self.free.discarding.len() {
            let cluster = self.free.discarding[i];
            self.set_state(cluster, ClusterState::Discarding);
            let first = cluster.0 * self.cluster_pages;
            match ranges.back_mut() {
                Some((start, count)) if start.0 + *count == first => *count += self.cluster_pages,
                _ => ranges.push_back((SlotId(first), self.cluster_pages)),
            }
        }
    }

    /// The discard has ended: releases its clusters.
    pub(crate) fn end_discard(&mut self, clusters: &mut impl ClusterSource) {
        while let Some(cluster) = self.free.discarding.pop() {
            self.give_back(cluster, clusters);
            self.full = false;
        }
    }

    /// Releases all held clusters.
    pub(crate) fn let_go_all(&mut self, clusters: &mut impl ClusterSource) {
        assert!(self.free.discarding.is_empty(), "a discard is in flight");
        while let Some(cluster) = self.take_back() {
            self.give_back(cluster, clusters);
        }
    }

    /// Records every freed slot from now on.
    pub(crate) fn log_freed(&mut self) {
        self.free.freed = Some(Vec::new());
    }

    /// A slot freed since the last call, if they are recorded.
    pub(crate) fn pop_freed(&mut self) -> Option<SlotId> {
        self.free.freed.as_mut()?.pop()
    }

    pub(super) fn note_freed(&mut self, slot: SlotId) {
        if let Some(freed) = &mut self.free.freed {
            freed.push(slot);
        }
    }
}
