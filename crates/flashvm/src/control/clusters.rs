//! Which process of the run holds which clusters of the store.
//!
//! A cluster has a count of holders, and every seat a bitmap of what it holds. A free cluster
//! (count 0) is taken by one compare-and-swap; a fork adds the child to all clusters of its
//! parent. The count is raised before the bit is set and the bit cleared before the count is
//! lowered: a kill in between leaks the cluster until the run ends, but can never let two
//! processes write into it. Free clusters are taken from the start of the store, so that a
//! store file is no longer than it must be.

use super::process::Process;
use flashvm_core::{ClusterId, ClusterSource};
use std::sync::atomic::{AtomicU32, Ordering};

/// The clusters of the run's store, as one process sees them.
#[derive(Clone, Copy, Debug)]
pub struct SharedClusters {
    process: Process,
}

impl SharedClusters {
    pub(super) fn new(process: Process) -> Self {
        Self { process }
    }
}

/// Makes this process the holder of the first of these clusters that nobody holds.
fn claim(holders: &[AtomicU32], mut clusters: impl Iterator<Item = u32>) -> Option<u32> {
    clusters.find(|&index| {
        let count = &holders[index as usize];
        count.load(Ordering::Relaxed) == 0
            && count
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    })
}

impl ClusterSource for SharedClusters {
    fn lease(&mut self) -> Option<ClusterId> {
        let region = self.process.region();
        let header = region.header();
        let less_one = |free: u32| free.checked_sub(1);
        header
            .clusters_free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one)
            .ok()?;
        let holders = region.holders();
        let start = header
            .cluster_hint
            .load(Ordering::Relaxed)
            .min(holders.len() as u32);
        let all = holders.len() as u32;
        // The hint is only a guess, hence the second leg from the start of the store.
        let mut claimed = claim(holders, (start..all).chain(0..all));
        let pages = region.geometry().cluster_pages;
        if let Some(index) = claimed
            && !self.process.back((index + 1) * pages)
        {
            // The disk is full: only what has space there is of use.
            holders[index as usize].store(0, Ordering::Release);
            let backed = header.backed.load(Ordering::Acquire) / pages;
            claimed = claim(holders, 0..backed);
        }
        let Some(index) = claimed else {
            header.clusters_free.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.process.seat().wrote.store(1, Ordering::Relaxed);
        self.process.mark(index);
        let _ = header.cluster_hint.compare_exchange(
            start,
            index + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        Some(ClusterId(index))
    }

    fn release(&mut self, cluster: ClusterId) {
        assert!(
            self.process.give_back(cluster.0),
            "{cluster:?} released but not held"
        );
    }

    fn shared(&self, cluster: ClusterId) -> bool {
        self.process.region().holders()[cluster.0 as usize].load(Ordering::Acquire) > 1
    }
}
