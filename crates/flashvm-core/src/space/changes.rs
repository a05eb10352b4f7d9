//! Ranges whose mappings the program is changing at this moment.
//!
//! The kernel lets a thread that drops pages go on as soon as its message is read, and drops them
//! after that (`MADV_DONTNEED`) or has dropped them before (`munmap`). So for a while the engine
//! has a range as absent that is not, or the other way round. Whatever a thread touches there is
//! served as ever; but nothing is filled in ahead of need, because such a page could be taken
//! for what lay there before.

use crate::ids::PageId;

/// First page and pages of a range.
pub type Range = (PageId, u32);

/// The changes that are under way.
#[derive(Debug, Default)]
pub struct Changes {
    /// How many, those of no particular range among them.
    count: u32,
    ranges: Vec<Range>,
}

impl Changes {
    /// A change begins.
    pub fn begin(&mut self, ranges: &[Option<Range>]) {
        self.count += 1;
        self.ranges.extend(ranges.iter().flatten());
    }

    /// A change ends that began with these ranges.
    ///
    /// # Panics
    /// If none did.
    pub fn end(&mut self, ranges: &[Option<Range>]) {
        self.count -= 1;
        for range in ranges.iter().flatten() {
            // Equal ranges stand for each other.
            let at = self.ranges.iter().position(|other| other == range);
            self.ranges.swap_remove(at.expect("noted when it began"));
        }
    }

    /// Whether no mapping is changing: a fork may happen.
    #[must_use]
    pub fn none(&self) -> bool {
        self.count == 0
    }

    /// Whether any of these pages is being given up or moved.
    #[must_use]
    pub fn touch(&self, first: PageId, count: u32) -> bool {
        let overlaps = |&(at, pages): &Range| first.0 < at.0 + pages && at.0 < first.0 + count;
        self.ranges.iter().any(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_changes_end_one_by_one() {
        let range = [Some((PageId(4), 2)), None];
        let mut changes = Changes::default();
        changes.begin(&range);
        changes.begin(&range);
        changes.end(&range);
        assert!(!changes.none() && changes.touch(PageId(5), 1));
        assert!(!changes.touch(PageId(6), 9) && !changes.touch(PageId(0), 4));
        changes.end(&range);
        assert!(changes.none() && !changes.touch(PageId(0), 100));
    }
}
