//! Holders of numbered items that several processes may hold: clusters of the store, frames
//! shared since a fork.
//!
//! Each item has a number and a count of holders; each process slot has a bitmap of the items
//! it holds. The count is raised before the bit is set, and the bit is cleared before the count is
//! lowered: a kill in between leaks the item until the run ends, and never frees it while a
//! process holds it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The items of one kind that one process slot holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    /// By number: how many process slots hold the item.
    pub(super) holders: &'static [AtomicU32],
    /// By number, one bit each: whether this process slot holds the item.
    pub(super) bits: &'static [AtomicU64],
    /// This process slot holds no item from this number on.
    pub(super) high: &'static AtomicU32,
}

impl Holdings {
    /// Makes this process slot the holder of the first of these numbers without a holder. The caller
    /// marks the number next, or puts it back.
    pub(super) fn claim(&self, mut numbers: impl Iterator<Item = u32>) -> Option<u32> {
        numbers.find(|&number| {
            let count = &self.holders[number as usize];
            count.load(Ordering::Relaxed) == 0
                && count
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Undoes a claim of a number that was not marked since.
    pub(super) fn put_back(&self, number: u32) {
        self.holders[number as usize].store(0, Ordering::Release);
    }

    /// Marks a number as held; its count already includes this process slot.
    pub(super) fn mark(&self, number: u32) {
        self.high.fetch_max(number + 1, Ordering::Relaxed);
        let bit = 1 << (number % 64);
        let before = self.bits[number as usize / 64].fetch_or(bit, Ordering::Relaxed);
        assert!(before & bit == 0, "{number} is held twice");
    }

    /// Adds this process slot to the holders of a number.
    pub(super) fn join(&self, number: u32) {
        self.holders[number as usize].fetch_add(1, Ordering::Relaxed);
        self.mark(number);
    }

    /// Clears the bit of a number; `false` if it was not held. The count still includes this
    /// process slot.
    pub(super) fn unmark(&self, number: u32) -> bool {
        let bit = 1 << (number % 64);
        self.bits[number as usize / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Removes this process slot from the holders of a number. `None`: it did not hold the number;
    /// otherwise whether it was the last holder.
    pub(super) fn leave(&self, number: u32) -> Option<bool> {
        self.unmark(number)
            .then(|| self.holders[number as usize].fetch_sub(1, Ordering::Release) == 1)
    }

    /// Whether exactly one process slot holds a number.
    pub(super) fn is_sole(&self, number: u32) -> bool {
        self.holders[number as usize].load(Ordering::Acquire) == 1
    }

    /// The numbers that this process slot holds.
    pub(super) fn held(&self) -> impl Iterator<Item = u32> {
        let high = self.high.load(Ordering::Relaxed);
        let words = &self.bits[..high.div_ceil(64) as usize];
        (0_u32..).zip(words).flat_map(|(at, word)| {
            let mut word = word.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                (bit < 64).then(|| {
                    word &= word - 1;
                    at * 64 + bit
                })
            })
        })
    }
}
