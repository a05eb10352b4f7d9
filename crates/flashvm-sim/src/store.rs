//! The flash store of a run: the contents of its slots, and the holders of its clusters.

use crate::memory::Version;
use crate::pool::Image;
use flashvm_core::PAGE_SIZE;
use flashvm_core::pool::BLOCK_SLOTS;
use flashvm_core::record::ClusterAnswer;
use flashvm_core::{ClusterId, ClusterSource, LocalClusters, SlotId};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// A store that several simulated processes share.
#[derive(Clone)]
pub struct Store(Rc<RefCell<Shared>>);

struct Shared {
    slots: HashMap<SlotId, Version>,
    /// By slot that was written with a block of a pool: the block's first slot, and its contents.
    blocks: HashMap<SlotId, (SlotId, Rc<Image>)>,
    writing: HashSet<SlotId>,
    clusters: LocalClusters,
    /// Clusters of the store.
    all: u32,
    /// By leased cluster, the processes that hold it.
    holders: HashMap<ClusterId, BTreeSet<u32>>,
    processes: u32,
}

impl Store {
    /// A store of this many clusters.
    #[must_use]
    pub fn new(clusters: u32) -> Self {
        Self(Rc::new(RefCell::new(Shared {
            slots: HashMap::new(),
            blocks: HashMap::new(),
            writing: HashSet::new(),
            clusters: LocalClusters::new(clusters),
            all: clusters,
            holders: HashMap::new(),
            processes: 0,
        })))
    }

    /// The contents of a slot; none while it is being written.
    #[must_use]
    pub fn slot(&self, slot: SlotId) -> Option<Version> {
        self.0.borrow().slots.get(&slot).copied()
    }

    /// The compressed contents of `bytes` bytes, `skip` bytes behind the start of a slot; `None` if they do not lie
    /// there whole.
    #[must_use]
    pub fn packed(&self, slot: SlotId, skip: u32, bytes: u32) -> Option<Version> {
        let shared = self.0.borrow();
        let (slot, skip) = (slot.plus(skip / PAGE_SIZE as u32), skip % PAGE_SIZE as u32);
        let (first, image) = shared.blocks.get(&slot)?;
        let at = (slot.0 - first.0) * PAGE_SIZE as u32 + skip;
        let placed = image.get(&at)?;
        let last = slot.plus((skip + bytes - 1) / PAGE_SIZE as u32);
        let whole = (slot.0..=last.0).all(|slot| {
            let block = shared.blocks.get(&SlotId(slot));
            block.is_some_and(|(of, other)| of == first && Rc::ptr_eq(image, other))
        });
        (whole && placed.bytes == bytes).then_some(placed.version)
    }

    /// The contents of a block of a pool, from its first slot.
    pub(crate) fn image(&self, first: SlotId) -> Image {
        let shared = self.0.borrow();
        shared.blocks[&first].1.as_ref().clone()
    }

    /// A block of a pool has been written from slot `first` on, except for the slots in `failed`.
    pub(crate) fn end_block(&self, first: SlotId, image: &Image, failed: u64) {
        let mut shared = self.0.borrow_mut();
        let image = Rc::new(image.clone());
        for i in 0..BLOCK_SLOTS {
            let slot = first.plus(i);
            assert!(
                shared.writing.remove(&slot),
                "{slot:?} is not being written"
            );
            if failed >> i & 1 == 0 {
                shared.blocks.insert(slot, (first, Rc::clone(&image)));
            }
        }
    }

    /// Clusters without a holder.
    pub(crate) fn free_clusters(&self) -> u32 {
        let shared = self.0.borrow();
        shared.all - shared.holders.len() as u32
    }

    /// A write to a slot begins.
    pub(crate) fn begin_write(&self, slot: SlotId) {
        let mut shared = self.0.borrow_mut();
        shared.slots.remove(&slot);
        shared.blocks.remove(&slot);
        assert!(shared.writing.insert(slot), "two writes to {slot:?}");
    }

    /// A write to a slot ends; its contents if it succeeded.
    pub(crate) fn end_write(&self, slot: SlotId, version: Option<Version>) {
        let mut shared = self.0.borrow_mut();
        assert!(
            shared.writing.remove(&slot),
            "{slot:?} is not being written"
        );
        if let Some(version) = version {
            shared.slots.insert(slot, version);
        }
    }

    /// Discards a slot's contents.
    pub(crate) fn discard(&self, slot: SlotId) {
        let mut shared = self.0.borrow_mut();
        assert!(
            !shared.writing.contains(&slot),
            "{slot:?} discarded amid a write"
        );
        shared.blocks.remove(&slot);
        shared.slots.remove(&slot);
    }

    /// A new process; it holds its parent's clusters.
    pub(crate) fn process(&self, parent: Option<u32>) -> u32 {
        let mut shared = self.0.borrow_mut();
        let process = shared.processes;
        shared.processes += 1;
        for holders in shared.holders.values_mut() {
            if parent.is_some_and(|parent| holders.contains(&parent)) {
                holders.insert(process);
            }
        }
        process
    }

    /// A process ends and releases all its clusters.
    pub(crate) fn exit(&self, process: u32) {
        let mut shared = self.0.borrow_mut();
        let mut held: Vec<_> = shared
            .holders
            .iter()
            .filter(|h| h.1.contains(&process))
            .collect();
        held.sort_unstable();
        let held: Vec<_> = held.into_iter().map(|(&cluster, _)| cluster).collect();
        for cluster in held {
            shared.release(cluster, process);
        }
    }
}

impl Shared {
    fn release(&mut self, cluster: ClusterId, process: u32) {
        let holders = self.holders.get_mut(&cluster).expect("a leased cluster");
        assert!(
            holders.remove(&process),
            "{cluster:?} is not held by {process}"
        );
        if holders.is_empty() {
            self.holders.remove(&cluster);
            self.clusters.release(cluster);
        }
    }
}

/// The clusters of one process.
#[derive(Clone)]
pub struct StoreClusters {
    store: Store,
    process: u32,
    /// Recorded answers to the parent, given again while the child's engine is built from the parent's record.
    remembered: RefCell<VecDeque<ClusterAnswer>>,
}

impl StoreClusters {
    pub(crate) fn new(store: Store, process: u32) -> Self {
        Self {
            store,
            process,
            remembered: RefCell::default(),
        }
    }

    /// In a forked child: the same clusters, held by another process.
    pub(crate) fn of_child(&self, process: u32) -> Self {
        Self::new(self.store.clone(), process)
    }

    pub(crate) fn remember(&mut self, answers: &[ClusterAnswer]) {
        self.remembered.get_mut().extend(answers);
    }
}

impl ClusterSource for StoreClusters {
    fn lease(&mut self) -> Option<ClusterId> {
        if let Some(answer) = self.remembered.get_mut().pop_front() {
            let ClusterAnswer::Leased(cluster) = answer else {
                panic!("{answer:?} was remembered, not a lease");
            };
            return cluster;
        }
        let mut shared = self.store.0.borrow_mut();
        let cluster = shared.clusters.lease()?;
        shared
            .holders
            .insert(cluster, BTreeSet::from([self.process]));
        Some(cluster)
    }

    fn release(&mut self, cluster: ClusterId) {
        if let Some(answer) = self.remembered.get_mut().pop_front() {
            assert_eq!(answer, ClusterAnswer::Released(cluster));
            return;
        }
        self.store.0.borrow_mut().release(cluster, self.process);
    }

    fn shared(&self, cluster: ClusterId) -> bool {
        if let Some(answer) = self.remembered.borrow_mut().pop_front() {
            let ClusterAnswer::Shared(of, shared) = answer else {
                panic!("{answer:?} was remembered, not whether a cluster is shared");
            };
            assert_eq!(of, cluster);
            return shared;
        }
        let shared = self.store.0.borrow();
        let holders = shared.holders.get(&cluster);
        holders.is_some_and(|holders| holders.iter().any(|&p| p != self.process))
    }
}
