//! Buffers for pages on their way from flash: one range, registered once for direct I/O, handed out in runs of pages.

use super::store::Part;
use crate::sys::map;
use flashvm_core::PAGE_SIZE;
use rustix::io::Errno;

/// One range of buffers. Each word of the bitmap covers 64 pages; a run lies within one word.
#[derive(Debug)]
pub(crate) struct ReadBuffers {
    base: usize,
    /// A set bit is a free page.
    free: Vec<u64>,
}

impl ReadBuffers {
    /// Pages of a word: the longest run.
    pub(crate) const RUN: u32 = u64::BITS;

    pub(crate) fn new(words: usize) -> Result<Self, Errno> {
        let base = map::own(words * Self::RUN as usize * PAGE_SIZE)?;
        Ok(Self {
            base,
            free: vec![u64::MAX; words],
        })
    }

    /// The whole range, for registration.
    pub(crate) fn range(&self) -> Part {
        Part {
            address: self.base,
            len: self.free.len() * Self::RUN as usize * PAGE_SIZE,
        }
    }

    /// Pages of all buffers.
    pub(crate) fn pages(&self) -> u32 {
        self.free.len() as u32 * Self::RUN
    }

    /// Takes `count` contiguous free pages, in 1..=[`Self::RUN`]. Returns their address.
    pub(crate) fn take(&mut self, count: u32) -> Option<usize> {
        debug_assert!((1..=Self::RUN).contains(&count));
        for (word, free) in self.free.iter_mut().enumerate() {
            let mut runs = *free;
            // After step k a set bit starts a run of at least k + 1 free pages.
            let mut have = 1;
            while have < count && runs != 0 {
                let step = have.min(count - have);
                runs &= runs >> step;
                have += step;
            }
            if runs != 0 {
                let bit = runs.trailing_zeros();
                *free &= !(mask(count) << bit);
                return Some(self.base + (word * Self::RUN as usize + bit as usize) * PAGE_SIZE);
            }
        }
        None
    }

    /// Gives back pages that [`Self::take`] returned.
    ///
    /// # Panics
    /// If one of them is free.
    pub(crate) fn give(&mut self, address: usize, count: u32) {
        let page = (address - self.base) / PAGE_SIZE;
        let (word, bit) = (page / Self::RUN as usize, page % Self::RUN as usize);
        let run = mask(count) << bit;
        assert_eq!(self.free[word] & run, 0, "read buffer given back twice");
        self.free[word] |= run;
    }
}

fn mask(count: u32) -> u64 {
    u64::MAX >> (u64::BITS - count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buffers_never_overlap(requests in prop::collection::vec((1u32..=64, any::<bool>()), 1..200)) {
            let mut buffers = ReadBuffers::new(3).unwrap();
            let mut taken: Vec<(usize, u32)> = Vec::new();
            for (count, give) in requests {
                if give && !taken.is_empty() {
                    let (address, count) = taken.swap_remove(count as usize % taken.len());
                    buffers.give(address, count);
                } else if let Some(address) = buffers.take(count) {
                    let end = address + count as usize * PAGE_SIZE;
                    for &(other, pages) in &taken {
                        let other_end = other + pages as usize * PAGE_SIZE;
                        prop_assert!(end <= other || other_end <= address);
                    }
                    let all = buffers.range();
                    prop_assert!(address >= all.address && end <= all.address + all.len);
                    taken.push((address, count));
                }
            }
            for (address, count) in taken {
                buffers.give(address, count);
            }
            for _ in 0..3 {
                prop_assert!(buffers.take(64).is_some());
            }
            prop_assert!(buffers.take(1).is_none());
        }
    }
}
