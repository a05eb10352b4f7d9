//! What the processes of a run know together of the sides of a stripe or a tier: which of them are away, and the counters of
//! the summary.

use super::Control;
use super::layout::Region;
use super::process::Process;
use crate::sys::STORES_MAX;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// The part of the region that belongs to sides.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct SidesHead {
    away: [AtomicU64; STORES_MAX],
    reads: [AtomicU64; STORES_MAX],
    writes: [AtomicU64; STORES_MAX],
    given_up: AtomicU64,
}

/// The sides' state of a run. Nothing here allocates.
#[derive(Clone, Copy, Debug)]
pub struct SidesState {
    region: Region,
}

/// What the sides did, for the summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SideCounters {
    /// Requests that each side answered with data.
    pub reads: Vec<u64>,
    /// Writes that each side took.
    pub writes: Vec<u64>,
    /// How often a side stayed away, so that the run went on without it.
    pub given_up: u64,
}

impl Control {
    /// The sides' state; of no use without a stripe or a tier.
    #[must_use]
    pub fn sides(&self) -> SidesState {
        SidesState {
            region: self.region,
        }
    }
}

impl Process {
    /// The sides' state of this process's run.
    #[must_use]
    pub fn sides(&self) -> SidesState {
        self.control.sides()
    }
}

impl SidesState {
    fn head(&self) -> &'static SidesHead {
        self.region.sides()
    }

    /// A side's word: 0 if it serves, else the time of the next try, in nanoseconds.
    #[must_use]
    pub fn away(&self, side: usize) -> u64 {
        self.head().away[side].load(Ordering::SeqCst)
    }

    /// Changes a side's word, if it is still `from`. Returns whether it was.
    #[must_use]
    pub fn change_away(&self, side: usize, from: u64, to: u64) -> bool {
        let word = &self.head().away[side];
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Counts a read that a side answered.
    pub fn count_read(&self, side: usize) {
        self.head().reads[side].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write that a side took.
    pub fn count_write(&self, side: usize) {
        self.head().writes[side].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a side that the run goes on without.
    pub fn count_given_up(&self) {
        self.head().given_up.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters of the first `sides` sides. Allocates.
    #[must_use]
    pub fn counters(&self, sides: usize) -> SideCounters {
        let head = self.head();
        let all = |counters: &[AtomicU64; STORES_MAX]| {
            let counts = counters[..sides].iter();
            counts.map(|count| count.load(Ordering::Relaxed)).collect()
        };
        SideCounters {
            reads: all(&head.reads),
            writes: all(&head.writes),
            given_up: head.given_up.load(Ordering::Relaxed),
        }
    }
}
