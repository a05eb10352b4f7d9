//! Which process of the run holds which clusters of the store.
//!
//! A process takes a free cluster with one compare-and-swap of the cluster's holder count
//! ([`super::holders`]); a fork adds the child to the holders of all its parent's clusters. Two
//! processes never write into one cluster. A process takes the first free cluster of the store, so
//! that the store file is no longer than necessary.

use super::process::Process;
use flashvm_core::{ClusterId, ClusterSource};
use std::sync::atomic::Ordering;

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

impl ClusterSource for SharedClusters {
    fn lease(&mut self) -> Option<ClusterId> {
        let region = self.process.region();
        let header = region.header();
        let less_one = |free: u32| free.checked_sub(1);
        header
            .clusters_free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one)
            .ok()?;
        let leases = self.process.leases();
        let all = leases.holders.len() as u32;
        let start = header.cluster_hint.load(Ordering::Relaxed).min(all);
        // The hint is only a guess: the second search begins at the start of the store.
        let mut claimed = leases.claim((start..all).chain(0..all));
        let pages = region.sizes().cluster_pages;
        if let Some(index) = claimed
            && !self.process.back((index + 1) * pages)
        {
            // The disk is full: only clusters that already have space on it are usable.
            leases.put_back(index);
            let backed = header.backed.load(Ordering::Acquire) / pages;
            claimed = leases.claim(0..backed);
        }
        let Some(index) = claimed else {
            header.clusters_free.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.process.slot().wrote.store(1, Ordering::Relaxed);
        leases.mark(index);
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
        self.process.leases().holders[cluster.0 as usize].load(Ordering::Acquire) > 1
    }
}
