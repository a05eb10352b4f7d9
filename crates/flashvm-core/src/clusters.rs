//! Owners of the store's clusters: the border between this engine and the engines of the run's other
//! processes.

use crate::ids::ClusterId;

/// Which clusters of the run's store this engine may use.
pub trait ClusterSource {
    /// Leases a wholly free cluster to this engine. `None`: there is none.
    fn lease(&mut self) -> Option<ClusterId>;

    /// This engine no longer holds a slot in the cluster.
    fn release(&mut self, cluster: ClusterId);

    /// Whether another process (after a fork) also holds slots in this cluster.
    fn shared(&self, cluster: ClusterId) -> bool;
}

/// All clusters of a store for one engine, first fit from the start of the store as in Linux
/// (FlashVM, 4.1.1).
#[derive(Clone, Debug)]
pub struct LocalClusters {
    /// By cluster, one bit: whether it is leased.
    leased: Vec<u64>,
    clusters: u32,
    /// Words before this one have no free cluster.
    hint: usize,
}

impl LocalClusters {
    /// A store of `clusters` clusters, all free.
    #[must_use]
    pub fn new(clusters: u32) -> Self {
        Self {
            leased: vec![0; (clusters as usize).div_ceil(64)],
            clusters,
            hint: 0,
        }
    }
}

impl ClusterSource for LocalClusters {
    fn lease(&mut self) -> Option<ClusterId> {
        while self.hint < self.leased.len() {
            let word = &mut self.leased[self.hint];
            if *word != u64::MAX {
                let bit = word.trailing_ones();
                let cluster = u32::try_from(self.hint).expect("fits") * 64 + bit;
                if cluster >= self.clusters {
                    return None;
                }
                *word |= 1 << bit;
                return Some(ClusterId(cluster));
            }
            self.hint += 1;
        }
        None
    }

    fn release(&mut self, cluster: ClusterId) {
        let word = (cluster.0 / 64) as usize;
        let bit = 1 << (cluster.0 % 64);
        assert!(
            self.leased[word] & bit != 0,
            "cluster {} released but not leased",
            cluster.0
        );
        self.leased[word] &= !bit;
        self.hint = self.hint.min(word);
    }

    fn shared(&self, _cluster: ClusterId) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fit_from_the_start() {
        let mut local = LocalClusters::new(130);
        for i in 0..130 {
            assert_eq!(local.lease(), Some(ClusterId(i)));
        }
        assert_eq!(local.lease(), None);
        local.release(ClusterId(129));
        local.release(ClusterId(3));
        assert_eq!(local.lease(), Some(ClusterId(3)));
        assert_eq!(local.lease(), Some(ClusterId(129)));
        assert_eq!(local.lease(), None);
    }
}
