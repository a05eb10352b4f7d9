//! What more RAM would have saved: distances of refaults.
//!
//! A page that faults again after `d` other pages have left would still have been in RAM with `d` more frames, if
//! eviction is in order of arrival (the refault distance of Linux's `workingset.c`). Pages are sampled by their hash
//! once there are many: a sampled page stands for others, at each of its faults.

use flashvm_live::control::{Sight, Sighting};
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::{Deserialize, Serialize};
use std::hash::BuildHasher;

/// Pages outside RAM that are remembered at most.
const PAGES_MAX: usize = 1 << 16;
/// Distances are kept in eighths of the budget, up to eight budgets.
const PARTS: u64 = 8;
const BINS: usize = 64;

/// The faults that some more RAM would have saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhatIf {
    /// RAM as a multiple of the run's, in eighths.
    pub(crate) eighths: u64,
    /// Faults from flash that would not have happened.
    pub(crate) flash_saved: u64,
    /// Faults from the pool that would not have happened.
    pub(crate) pool_saved: u64,
}

/// The multiples of RAM in the table: 1.25, 1.5, 2, 3, 4, 8.
const EIGHTHS: [u64; 6] = [10, 12, 16, 24, 32, 64];

/// Collects sightings.
#[derive(Debug)]
pub(super) struct Refaults {
    budget_pages: u64,
    /// How many pages had left when a page left.
    left: FxHashMap<(u32, u32), u64>,
    leaves: u64,
    /// A page is sampled if so many bits of its hash are 0.
    bits: u32,
    flash: [u64; BINS],
    pool: [u64; BINS],
}

impl Refaults {
    pub(super) fn new(budget_pages: u64) -> Self {
        Self {
            budget_pages: budget_pages.max(1),
            left: FxHashMap::default(),
            leaves: 0,
            bits: 0,
            flash: [0; BINS],
            pool: [0; BINS],
        }
    }

    pub(super) fn add(&mut self, seen: &Sighting) {
        for page in seen.first.0..seen.first.0.saturating_add(seen.count) {
            let place = (seen.pid, page);
            let is_sampled = is_sampled(place, self.bits);
            if seen.sight == Sight::Left {
                self.leaves += 1;
                if is_sampled {
                    self.left.insert(place, self.leaves);
                }
            } else if is_sampled && let Some(number) = self.left.remove(&place) {
                let bin = (self.leaves - number) * PARTS / self.budget_pages;
                let bins = match seen.sight {
                    Sight::FromFlash => &mut self.flash,
                    Sight::FromPool => &mut self.pool,
                    _ => continue,
                };
                if let Some(faults) = bins.get_mut(bin as usize) {
                    *faults += 1 << self.bits;
                }
            }
        }
        while self.left.len() > PAGES_MAX {
            self.bits += 1;
            self.left.retain(|place, _| is_sampled(*place, self.bits));
        }
    }

    pub(super) fn finish(&self) -> Vec<WhatIf> {
        let within = |bins: &[u64; BINS], more: u64| bins[..more as usize].iter().sum();
        let row = |eighths: u64| WhatIf {
            eighths,
            flash_saved: within(&self.flash, eighths - PARTS),
            pool_saved: within(&self.pool, eighths - PARTS),
        };
        EIGHTHS.into_iter().map(row).collect()
    }
}

fn is_sampled(place: (u32, u32), bits: u32) -> bool {
    if bits == 0 {
        return true;
    }
    // Other bits than those by which the map finds its places.
    let hash = FxBuildHasher.hash_one(place) >> 24;
    hash & ((1 << bits) - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashvm_core::PageId;
    use std::collections::VecDeque;

    /// Gives the faults of a queue of `frames` pages, and what it tells the report.
    fn fifo(touches: &[u32], frames: usize, mut tell: impl FnMut(Sight, u32)) -> u64 {
        let (mut queue, mut faults) = (VecDeque::new(), 0);
        let mut known = std::collections::HashSet::new();
        for &page in touches {
            if queue.contains(&page) {
                continue;
            }
            let again = !known.insert(page);
            faults += u64::from(again);
            let sight = if again { Sight::FromFlash } else { Sight::Zero };
            tell(sight, page);
            queue.push_back(page);
            if queue.len() > frames {
                tell(Sight::Left, queue.pop_front().expect("a page"));
            }
        }
        faults
    }

    /// A loop over 3 budgets: twice the RAM saves nothing, four times saves all.
    #[test]
    fn a_loop_needs_all_of_its_pages() {
        let touches: Vec<u32> = (0..10).flat_map(|_| 0..300).collect();
        let mut refaults = Refaults::new(100);
        let tell = |sight, page| {
            refaults.add(&Sighting {
                pid: 1,
                sight,
                store: false,
                first: PageId(page),
                count: 1,
            });
        };
        let faults = fifo(&touches, 100, tell);
        assert_eq!(faults, 2700);
        let saved: Vec<_> = refaults
            .finish()
            .iter()
            .map(|row| row.flash_saved)
            .collect();
        assert_eq!(saved, [0, 0, 0, faults, faults, faults]);
        for (eighths, expected) in [(16, faults), (24, 0)] {
            assert_eq!(fifo(&touches, eighths * 100 / 8, |_, _| ()), expected);
        }
    }

    /// Sampled pages stand for all: within 5 % of the exact count.
    #[test]
    fn many_pages_are_sampled() {
        let pages = 4 * PAGES_MAX as u32;
        let mut refaults = Refaults::new(pages.into());
        for sight in [Sight::Left, Sight::FromPool] {
            for first in (0..pages).step_by(256) {
                refaults.add(&Sighting {
                    pid: 1,
                    sight,
                    store: false,
                    first: PageId(first),
                    count: 256,
                });
            }
        }
        assert!(refaults.bits > 0);
        let saved = refaults.finish().last().expect("rows").pool_saved as f64;
        let exact = f64::from(pages);
        assert!((saved - exact).abs() < 0.05 * exact, "{saved} of {exact}");
    }
}
