//! One bit for each of many pages, in memory that takes no RAM where no bit was ever set.

use crate::sys::map;
use flashvm_core::{PageId, Run};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bits. Whoever changes or reads one has the engine locked, or a lock of its own; so no order is needed between
/// them.
#[derive(Debug)]
pub(super) struct Bits {
    words: &'static [AtomicU64],
}

impl Bits {
    /// Bits for `count` pages, all clear.
    pub(super) fn new(count: u32) -> Result<Self, Errno> {
        let words = map::own_counters(count.div_ceil(u64::BITS) as usize)?;
        Ok(Self { words })
    }

    pub(super) fn get(&self, at: u32) -> bool {
        let word = self.words[(at / u64::BITS) as usize].load(Ordering::Relaxed);
        word >> (at % u64::BITS) & 1 != 0
    }

    /// Sets or clears the bits of a run.
    pub(super) fn put(&self, run: Run, to: bool) {
        let (mut at, end) = (run.first.0, run.end().0);
        while at < end {
            let (index, bit) = (at / u64::BITS, at % u64::BITS);
            let count = (u64::BITS - bit).min(end - at);
            let mask = (u64::MAX >> (u64::BITS - count)) << bit;
            let word = &self.words[index as usize];
            if to {
                word.fetch_or(mask, Ordering::Relaxed);
            } else {
                word.fetch_and(!mask, Ordering::Relaxed);
            }
            at += count;
        }
    }

    /// Set bits within a range, in order.
    pub(super) fn within(&self, first: u32, count: u32) -> impl Iterator<Item = u32> {
        let end = first + count;
        let mut at = first;
        std::iter::from_fn(move || {
            while at < end {
                let word = self.words[(at / u64::BITS) as usize].load(Ordering::Relaxed);
                let rest = word >> (at % u64::BITS);
                if rest == 0 {
                    at = (at / u64::BITS + 1) * u64::BITS;
                    continue;
                }
                let found = at + rest.trailing_zeros();
                at = found + 1;
                return (found < end).then_some(found);
            }
            None
        })
    }

    /// Pages of a run whose bits are set.
    pub(super) fn pages(&self, run: Run) -> impl Iterator<Item = PageId> {
        self.within(run.first.0, run.count).map(PageId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_an_array(steps in prop::collection::vec((0..300u32, 0..200u32, any::<bool>()), 1..40)) {
            let bits = Bits::new(300).unwrap();
            let mut naive = [false; 300];
            for (first, count, to) in steps {
                let count = count.min(300 - first);
                bits.put(Run::new(PageId(first), count), to);
                naive[first as usize..(first + count) as usize].fill(to);
                for at in 0..300 {
                    prop_assert_eq!(bits.get(at), naive[at as usize]);
                }
                let expected: Vec<u32> = (first..first + count).filter(|&at| naive[at as usize]).collect();
                prop_assert_eq!(bits.within(first, count).collect::<Vec<_>>(), expected);
            }
        }
    }
}
